//! Operations on files without content: their requests and answers are nothing but their heads. All of this is made from the
//! protocol's table.

use podbay_proto::files::*;
use podbay_proto::{ErrorCode, Operation};

use crate::Sandbox;
use crate::error::{Error, Result};

macro_rules! methods {
    (
        with_content { $($with_content:tt)+ }
        without_content {$(
            $(#[$doc:meta])+ $module:ident: $request:ident -> $output:ident $(, from $new:ident)?, method $method:ident;
        )+}
    ) => {
        /// Requests that need no more than a path or a pattern can be written as one.
        ///
        /// ```no_run
        /// # use podbay_client::{Sandbox, files::Move};
        /// # async fn example(sandbox: Sandbox) -> podbay_client::Result<()> {
        /// sandbox.mkdir("drafts").await?;
        /// sandbox.mv(("draft.txt", "final.txt")).await?;
        /// sandbox.mv(Move::new("new.txt", "final.txt").overwrite()).await?;
        /// # Ok(()) }
        /// ```
        impl Sandbox {
            $(
                $(#[$doc])+
                ///
                /// # Errors
                /// When it can't be done. A partial result says so itself.
                pub async fn $method(&self, request: impl Into<$request>) -> Result<$output> {
                    self.session.ask(request.into()).await
                }
            )+

            /// Performs the operation of a request that was [read](PlainRequest::from_json) from JSON, and returns its answer as
            /// JSON.
            ///
            /// # Errors
            /// When it can't be done.
            pub async fn perform(&self, request: PlainRequest) -> Result<String> {
                match request.0 {
                    $(Plain::$request(request) => encoded::<$request>(&self.session.ask(request).await?),)+
                }
            }
        }

        /// A request that was read from JSON, for languages whose bindings have no types of their own for requests.
        #[derive(Debug, Clone)]
        pub struct PlainRequest(Plain);

        #[derive(Debug, Clone)]
        enum Plain {
            $($request($request),)+
        }

        impl PlainRequest {
            /// Reads the request of an operation on files without content, as it is sent to podbayd.
            ///
            /// # Errors
            /// When there is no such operation, or this isn't a request of it.
            pub fn from_json(operation: &str, request: &str) -> podbay_proto::Result<Self> {
                Ok(Self(match operation {
                    $(<$request as Operation>::NAME => Plain::$request(decoded(operation, request)?),)+
                    _ => {
                        let message = format!("{operation:?} isn't an operation on files without content");
                        return Err(podbay_proto::Error::new(ErrorCode::UnknownOperation, message));
                    }
                }))
            }
        }
    };
}
podbay_proto::file_operations!(methods);

fn decoded<O: Operation>(operation: &str, request: &str) -> podbay_proto::Result<O> {
    serde_json::from_str(request).map_err(|error| {
        let message = format!("the arguments of {operation} are invalid: {error}");
        podbay_proto::Error::new(ErrorCode::InvalidArgument, message)
    })
}

fn encoded<O: Operation>(answer: &O::Output) -> Result<String> {
    serde_json::to_string(answer).map_err(|error| Error::BadAnswer { what: O::NAME, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_in_json_is_that_of_its_operation() {
        let request = PlainRequest::from_json("mkdir", r#"{"path": "/d", "parents": false}"#).unwrap();
        let Plain::Mkdir(mkdir) = request.0 else { panic!("{request:?}") };
        assert_eq!(mkdir, Mkdir::new("/d").without_parents());
        let error = PlainRequest::from_json("mkdir", r#"{"path": 7}"#).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument);
        assert!(error.message.contains("mkdir"), "{error}");
        let error = PlainRequest::from_json("read", r#"{"path": "f"}"#).unwrap_err();
        assert_eq!(error.code, ErrorCode::UnknownOperation);
    }
}
