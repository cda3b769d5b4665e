//! Operations on files. One module per operation; what they share is in [`scope`] and [`entry`].
//!
//! Contents are never part of these types: they travel as the message's payload. Every request has a [`Scope`], which says
//! how its paths are to be interpreted and what it may touch.

use crate::RawPath;

pub mod delete;
pub mod download;
pub mod edit;
pub mod entry;
pub mod glob;
pub mod grep;
pub mod ls;
pub mod mkdir;
pub mod mv;
pub mod number;
pub mod read;
pub mod scope;
pub mod stat;
pub mod tree;
pub mod write;

pub use entry::{Entry, Kind, Link, Partial, PartialReason, Time};
pub use scope::Scope;

/// Hands the table of operations on files to a macro, after what is given with it. Nothing else lists them: the protocol's own
/// table, the methods of `podbay_client::Sandbox` and TypeScript's types of requests and answers are made from it.
///
/// A row is `module: Request -> Output`. `from new` says that a path, or a pattern, is enough for a request, and which function
/// makes one of it. An operation without content, whose request and answer are nothing but their heads, also has the name of its
/// Rust method, and the method's documentation.
#[macro_export]
macro_rules! file_operations {
    ($apply:ident $($given:tt)*) => {
        $apply! {
            $($given)*
            with_content {
                read: Read -> ReadOutput, from new;
                write: Write -> WriteOutput, from new;
                edit: Edit -> EditOutput, from in_file;
                download: Download -> DownloadOutput, from new;
            }
            without_content {
                /// Lists a directory; [`Ls::default`] is the working directory.
                ls: Ls -> LsOutput, from new, method ls;
                /// Describes what is at a path.
                stat: Stat -> StatOutput, from new, method stat;
                /// Lists a directory and everything below it; [`Tree::default`] is the working directory.
                tree: Tree -> TreeOutput, from new, method tree;
                /// Finds files by name.
                glob: Glob -> GlobOutput, from new, method glob;
                /// Finds text in files.
                grep: Grep -> GrepOutput, method grep;
                /// Deletes a file or a directory.
                delete: Delete -> DeleteOutput, from new, method delete;
                /// Creates a directory and its parents.
                mkdir: Mkdir -> MkdirOutput, from new, method mkdir;
                /// Moves or renames: the operation `move`, which Rust keeps for itself. A pair of paths will do, too.
                mv: Move -> MoveOutput, method mv;
            }
        }
    };
}

/// What every request on files has in common: it confines itself to a scope, a kept request can be sent again, and most can be
/// written as a plain path: `sandbox.read("notes.txt")`.
macro_rules! requests {
    ($($section:ident {$(
        $(#[$doc:meta])* $module:ident: $request:ident -> $output:ident $(, from $new:ident)? $(, method $method:ident)?;
    )+})+) => {$($(
        pub use $module::*;

        impl $request {
            /// Interprets paths within this scope, and touches nothing outside it.
            #[must_use]
            pub fn within(mut self, scope: Scope) -> Self {
                self.scope = scope;
                self
            }
        }

        impl From<&$request> for $request {
            fn from(request: &$request) -> Self {
                request.clone()
            }
        }

        $(
            impl From<&str> for $request {
                fn from(path: &str) -> Self {
                    Self::$new(path)
                }
            }

            impl From<String> for $request {
                fn from(path: String) -> Self {
                    Self::$new(path)
                }
            }

            impl From<RawPath> for $request {
                fn from(path: RawPath) -> Self {
                    Self::$new(path)
                }
            }

            impl From<&RawPath> for $request {
                fn from(path: &RawPath) -> Self {
                    Self::$new(path.clone())
                }
            }
        )?
    )+)+};
}
crate::file_operations!(requests);

impl From<&str> for Grep {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Grep {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl<F: Into<RawPath>, T: Into<RawPath>> From<(F, T)> for Move {
    fn from((from, to): (F, T)) -> Self {
        Self::new(from, to)
    }
}

/// For fields that are true unless said otherwise.
pub(crate) fn yes() -> bool {
    true
}

/// For flags that are left out of the JSON when false.
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::decode_head;
    use crate::{ErrorCode, Operation};

    fn decoded<T: Operation>(json: &str) -> crate::Result<T> {
        decode_head(json.as_bytes())
    }

    #[test]
    fn a_request_needs_only_what_has_no_default() {
        let path = r#"{"path":"/f","field_of_a_newer_client":[1]}"#;
        assert_eq!(decoded::<Read>(path).unwrap(), Read::new("/f"));
        assert_eq!(decoded::<Write>(path).unwrap(), Write::new("/f"));
        assert_eq!(decoded::<Delete>(path).unwrap(), Delete::new("/f"));
        assert_eq!(decoded::<Mkdir>(path).unwrap(), Mkdir::new("/f"));
        assert_eq!(decoded::<Stat>(path).unwrap(), Stat::new("/f"));
        assert_eq!(decoded::<Ls>(path).unwrap(), Ls::new("/f"));
        assert_eq!(decoded::<Tree>(path).unwrap(), Tree::new("/f"));
        assert_eq!(decoded::<Download>(path).unwrap(), Download::new("/f"));
        assert_eq!(decoded::<Glob>(r#"{"pattern":"*"}"#).unwrap(), Glob::new("*"));
        assert_eq!(decoded::<Grep>(r#"{"pattern":"x"}"#).unwrap(), Grep::new("x"));
        assert_eq!(decoded::<Move>(r#"{"from":"a","to":"b"}"#).unwrap(), Move::new("a", "b"));
        let edit = r#"{"path":"f","old_length":1,"new_length":2}"#;
        assert_eq!(decoded::<Edit>(edit).unwrap(), Edit::new("f", b"a", b"bc").0);
        for json in ["{}", "[]", "null", r#"{"path":7}"#] {
            assert_eq!(decoded::<Read>(json).unwrap_err().code, ErrorCode::BadMessage, "{json}");
        }
    }

    #[test]
    fn numbers_come_as_callers_send_them() {
        for (json, expected) in [
            ("-3", Some(-3)),
            ("18446744073709551615", Some(i64::MAX)),
            ("1e3", Some(1000)),
            ("1e300", Some(i64::MAX)),
            ("0.5", None),
            ("\"1\"", None),
            ("null", None),
        ] {
            let read = decoded::<Read>(&format!(r#"{{"path":"f","limit":{json}}}"#));
            assert_eq!(read.ok().map(|read| read.limit), expected, "{json}");
        }
        assert!(decoded::<Ls>(r#"{"path":"f","limit":-1}"#).is_err(), "where a negative number means nothing");
    }

    #[test]
    fn what_is_not_set_is_not_sent() {
        let json = serde_json::to_string(&Write::new("f")).unwrap();
        assert_eq!(json, r#"{"path":"f","scope":{},"parents":true}"#);
        let error = crate::Error::new(ErrorCode::TooLarge, "m").with_count(7);
        assert_eq!(serde_json::to_string(&error).unwrap(), r#"{"code":"too_large","message":"m","count":7}"#);
    }

    #[test]
    fn kinds_from_the_future_are_tolerated() {
        assert_eq!(serde_json::from_str::<Kind>(r#""door""#).unwrap(), Kind::Other);
        assert_eq!(serde_json::from_str::<PartialReason>(r#""mood""#).unwrap(), PartialReason::Other);
    }
}
