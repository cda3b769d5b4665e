//! Messages as HTTP bodies: the payload in memory or streaming.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use crate::message::HeadReader;
use crate::{Error, ErrorCode, Result};

/// Payloads up to this size are sent in one piece with their head.
const ONE_PIECE: usize = 16 << 10;

/// How much of a payload in memory is handed on at once where it is counted.
const COUNTED_PIECE: usize = 256 << 10;

/// What comes after the head.
#[derive(Debug)]
pub enum Payload {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes that are still being produced. An error cuts the body off, so that it can't be mistaken for a complete one.
    Stream(mpsc::Receiver<io::Result<Bytes>>),
}

/// The body of a request or an answer.
#[derive(Debug)]
pub struct MessageBody {
    first: Option<Bytes>,
    rest: Payload,
    taken: Option<Arc<AtomicU64>>,
}

impl MessageBody {
    /// A head that is [encoded](crate::message::encode_head), and the payload behind it.
    pub fn new(head: Bytes, payload: Payload) -> Self {
        match payload {
            Payload::Bytes(bytes) if !bytes.is_empty() && bytes.len() <= ONE_PIECE => {
                let mut whole = BytesMut::with_capacity(head.len() + bytes.len());
                whole.extend_from_slice(&head);
                whole.extend_from_slice(&bytes);
                Self { first: Some(whole.freeze()), rest: Payload::Bytes(Bytes::new()), taken: None }
            }
            rest => Self { first: Some(head), rest, taken: None },
        }
    }

    /// Counts the pieces that the connection takes of it: as long as they become more, the other side receives.
    #[must_use]
    pub fn counted(mut self, taken: Arc<AtomicU64>) -> Self {
        self.taken = Some(taken);
        self
    }
}

impl Body for MessageBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(taken) = &self.taken {
            taken.fetch_add(1, Ordering::Relaxed);
        }
        let counted = self.taken.is_some();
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match &mut self.rest {
            Payload::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Payload::Bytes(bytes) => {
                let most = if counted { COUNTED_PIECE } else { bytes.len() };
                Poll::Ready(Some(Ok(Frame::data(bytes.split_to(bytes.len().min(most))))))
            }
            Payload::Stream(pieces) => pieces.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && matches!(&self.rest, Payload::Bytes(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().map_or(0, Bytes::len) as u64;
        match &self.rest {
            Payload::Bytes(bytes) => SizeHint::with_exact(first + bytes.len() as u64),
            Payload::Stream(_) => SizeHint::default(),
        }
    }
}

/// A message whose head has been read; the payload is still coming.
#[derive(Debug)]
pub struct Incoming<B> {
    /// The head, not yet decoded.
    pub head: Bytes,
    first: Bytes,
    rest: B,
}

impl<B: Body<Data = Bytes> + Unpin> Incoming<B>
where
    B::Error: std::fmt::Display,
{
    /// Reads the head, of at most `most` bytes.
    ///
    /// # Errors
    /// When the body isn't a message or is cut.
    pub async fn read(mut body: B, most: usize) -> Result<Self> {
        let mut reader = HeadReader::at_most(most);
        while let Some(piece) = next_piece(&mut body).await? {
            if let Some((head, first)) = reader.push(&piece)? {
                return Ok(Self { head, first, rest: body });
            }
        }
        Err(reader.cut())
    }

    /// The next piece of the payload.
    ///
    /// # Errors
    /// When the body is cut.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        if !self.first.is_empty() {
            return Ok(Some(std::mem::take(&mut self.first)));
        }
        next_piece(&mut self.rest).await
    }

    /// The whole payload.
    ///
    /// # Errors
    /// `too_large` when it has more than `most` bytes, or when the body is cut.
    pub async fn collect(&mut self, most: usize) -> Result<Bytes> {
        let mut payload = PayloadBuffer::at_most(most);
        while let Some(piece) = self.next().await? {
            payload.push(piece)?;
        }
        Ok(payload.into_bytes())
    }
}

/// A payload that is put together from its pieces. Most have one, which isn't copied.
#[derive(Debug)]
pub struct PayloadBuffer {
    most: usize,
    first: Bytes,
    all: BytesMut,
}

impl PayloadBuffer {
    /// A buffer for at most this many bytes.
    pub fn at_most(most: usize) -> Self {
        Self { most, first: Bytes::new(), all: BytesMut::new() }
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// `too_large`.
    pub fn push(&mut self, piece: Bytes) -> Result<()> {
        if self.first.len() + self.all.len() + piece.len() > self.most {
            let message = format!("the message's payload exceeds this operation's limit of {} bytes", self.most);
            return Err(Error::new(ErrorCode::TooLarge, message));
        }
        if self.first.is_empty() && self.all.is_empty() {
            self.first = piece;
        } else {
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
            self.all.extend_from_slice(&piece);
        }
        Ok(())
    }

    /// All of it.
    pub fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}

async fn next_piece<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Result<Option<Bytes>>
where
    B::Error: std::fmt::Display,
{
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Error::new(ErrorCode::BadMessage, format!("the connection broke in the middle of a message: {error}"))
        })?;
        match frame.into_data() {
            Ok(data) if !data.is_empty() => return Ok(Some(data)),
            _ => {}
        }
    }
    Ok(None)
}
