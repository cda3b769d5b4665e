//! Answers of the stock runtime's API: JSON, or a file.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use podbay_proto::body::{MessageBody, Payload};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// An answer's body, and the room that it takes until it is sent.
pub(super) struct AnswerBody {
    body: MessageBody,
    _room: Option<OwnedSemaphorePermit>,
}

/// An answer.
pub(super) type Answer = Response<AnswerBody>;

/// An answer in JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    with_body("application/json", status, bytes.into(), Payload::Bytes(Bytes::new()))
}

/// What the runtime itself says about a request.
pub(super) fn message(status: StatusCode, text: &str) -> Answer {
    json(status, &json!({"message": text}))
}

/// What the runtime's framework says about a request.
pub(super) fn detail(status: StatusCode, text: &str) -> Answer {
    json(status, &json!({"detail": text}))
}

/// A request that doesn't have the form that it should have.
pub(super) fn invalid(kind: &str, place: &[&str], text: &str) -> Answer {
    json(StatusCode::UNPROCESSABLE_ENTITY, &json!({"detail": [{"type": kind, "loc": place, "msg": text}]}))
}

/// The path exists, but not for this method.
pub(super) fn wrong_method(allowed: &'static str) -> Answer {
    let mut answer = detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// An answer in JSON that is already encoded, whose rest may still be coming.
pub(super) fn encoded(first: Bytes, rest: Payload) -> Answer {
    with_body("application/json", StatusCode::OK, first, rest)
}

/// The content of a file.
pub(super) fn content(payload: Payload) -> Answer {
    with_body("application/octet-stream", StatusCode::OK, Bytes::new(), payload)
}

fn with_body(kind: &'static str, status: StatusCode, first: Bytes, rest: Payload) -> Answer {
    let mut answer = Response::new(AnswerBody { body: MessageBody::new(first, rest), _room: None });
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Keeps `room` until the answer has been sent.
pub(super) fn keeping(answer: Answer, room: OwnedSemaphorePermit) -> Answer {
    answer.map(|body| AnswerBody { _room: Some(room), ..body })
}

/// A body from a source that blocks. Unlike [`files`](super::super::files)' it holds a thread only while it reads: strangers that
/// don't take what they asked for mustn't use up the threads of everybody.
pub(super) fn stream<S>(
    mut source: S,
    next: impl Fn(&mut S) -> io::Result<Option<Bytes>> + Send + Copy + 'static,
) -> Payload
where
    S: Send + 'static,
{
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let piece = next(&mut source);
                (source, piece)
            });
            let Ok((back, piece)) = read.await else { return };
            source = back;
            let sent = match piece {
                Ok(Some(piece)) => sender.send(Ok(piece)).await,
                Ok(None) => return,
                Err(error) => return drop(sender.send(Err(error)).await),
            };
            if sent.is_err() {
                return;
            }
        }
    });
    Payload::Stream(receiver)
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
