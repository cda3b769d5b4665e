//! Answers to requests.

use bytes::Bytes;
use http::{Response, StatusCode};
use podbay_proto::body::{MessageBody, Payload};
use podbay_proto::message::encode_head;
use podbay_proto::{Error, ErrorCode, Result};
use serde::Serialize;

/// An answer: its status, its encoded head, and its payload.
#[derive(Debug)]
pub struct Reply {
    status: StatusCode,
    head: Bytes,
    payload: Payload,
}

impl Reply {
    /// An answer without a payload.
    pub fn new(head: &impl Serialize) -> Result<Self> {
        Self::with_payload(head, Payload::Bytes(Bytes::new()))
    }

    /// An answer with a payload.
    pub fn with_payload(head: &impl Serialize, payload: Payload) -> Result<Self> {
        Ok(Self { status: StatusCode::OK, head: encode_head(head)?, payload })
    }

    /// An answer that reports an error.
    pub fn error(error: &Error) -> Self {
        let status = match error.code {
            ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
            ErrorCode::UnknownOperation => StatusCode::NOT_FOUND,
            ErrorCode::VersionMismatch => StatusCode::UPGRADE_REQUIRED,
            ErrorCode::BadMessage => StatusCode::BAD_REQUEST,
            ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let head = encode_head(error).unwrap_or_else(|_| Bytes::from_static(b"\0\0\0\0"));
        Self { status, head, payload: Payload::Bytes(Bytes::new()) }
    }

    /// A copy, if the payload is in memory.
    pub fn copy(&self) -> Option<Self> {
        match &self.payload {
            Payload::Bytes(bytes) => {
                let payload = Payload::Bytes(bytes.clone());
                Some(Self { status: self.status, head: self.head.clone(), payload })
            }
            Payload::Stream(_) => None,
        }
    }

    /// As an HTTP response.
    pub fn into_response(self) -> Response<MessageBody> {
        let mut response = Response::new(MessageBody::new(self.head, self.payload));
        *response.status_mut() = self.status;
        response
    }
}

impl From<Result<Reply>> for Reply {
    fn from(result: Result<Reply>) -> Self {
        result.unwrap_or_else(|error| Self::error(&error))
    }
}
