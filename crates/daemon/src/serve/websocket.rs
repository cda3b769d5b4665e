//! A WebSocket as a byte stream, on the server's side (RFC 6455). Routers end every other request after some minutes, but
//! pass these on.
//!
//! Payloads of data frames are one stream of bytes, whatever the frames are; they are never kept, so frames may have any size.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, BytesMut};
use sha1::{Digest, Sha1};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the protocol appends to a client's key.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The most that goes into one frame.
const LARGEST_WRITE: usize = 64 << 10;

/// The longest payload of a control frame.
const LARGEST_CONTROL: u64 = 125;

const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The answer to a client's key, which shows that this side speaks WebSocket.
pub(super) fn accept_key(key: &str) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(MAGIC).finalize())
}

/// The bytes that a WebSocket carries.
#[derive(Debug)]
pub(super) struct WebSocketStream<S> {
    stream: S,
    /// What has arrived of the next frame's head.
    head: BytesMut,
    frame: Option<Frame>,
    /// The payload of the current control frame.
    control: Vec<u8>,
    /// Whether the client has closed it.
    closed: bool,
    /// Frames that wait to be sent.
    out: BytesMut,
}

/// The frame that is being read.
#[derive(Debug)]
struct Frame {
    opcode: u8,
    left: u64,
    mask: [u8; 4],
    /// How many bytes of the payload were read.
    offset: usize,
}

impl Frame {
    fn unmask(&mut self, payload: &mut [u8]) {
        let mask: [u8; 8] = std::array::from_fn(|place| self.mask[self.offset.wrapping_add(place) & 3]);
        // Eight bytes at a time: uploads of gigabytes pass through here.
        let mut words = payload.chunks_exact_mut(8);
        for word in &mut words {
            let bytes: [u8; 8] = std::array::from_fn(|place| word[place]);
            word.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ u64::from_ne_bytes(mask)).to_ne_bytes());
        }
        for (byte, mask) in words.into_remainder().iter_mut().zip(mask) {
            *byte ^= mask;
        }
        self.offset = self.offset.wrapping_add(payload.len());
        self.left -= payload.len() as u64;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocketStream<S> {
    /// Takes over a stream after the handshake.
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            head: BytesMut::with_capacity(14),
            frame: None,
            control: Vec::new(),
            closed: false,
            out: BytesMut::new(),
        }
    }

    /// Sends what waits to be sent.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, &self.out))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    fn queue(&mut self, opcode: u8, parts: &[IoSlice<'_>], length: usize) {
        self.out.extend_from_slice(&[0x80 | opcode]);
        match length {
            0..=125 => self.out.extend_from_slice(&[length as u8]),
            126..=0xffff => {
                self.out.extend_from_slice(&[126]);
                self.out.extend_from_slice(&(length as u16).to_be_bytes());
            }
            _ => {
                self.out.extend_from_slice(&[127]);
                self.out.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        let mut room = length;
        for part in parts {
            let count = part.len().min(room);
            self.out.extend_from_slice(&part[..count]);
            room -= count;
        }
    }

    /// Reads until a frame has begun. Nothing if the stream has ended between two frames.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let needed = needed(&self.head)?;
            if self.head.len() == needed {
                self.frame = Some(parse(&self.head));
                self.head.clear();
                return Poll::Ready(Ok(true));
            }
            let mut bytes = [0; 14];
            let mut buffer = ReadBuf::new(&mut bytes[..needed - self.head.len()]);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return match self.head.is_empty() {
                    true => Poll::Ready(Ok(false)),
                    false => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                };
            }
            self.head.extend_from_slice(buffer.filled());
        }
    }

    /// Reads a control frame to its end and does what it says.
    fn poll_control(&mut self, context: &mut Context<'_>, opcode: u8) -> Poll<io::Result<()>> {
        while let Some(frame) = self.frame.as_mut().filter(|frame| frame.left > 0) {
            let mut bytes = [0; LARGEST_CONTROL as usize];
            let mut buffer = ReadBuf::new(&mut bytes[..frame.left as usize]);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            frame.unmask(buffer.filled_mut());
            self.control.extend_from_slice(buffer.filled());
        }
        self.frame = None;
        let payload = std::mem::take(&mut self.control);
        match opcode {
            CLOSE => self.closed = true,
            // A client that pings and doesn't read would fill the memory.
            PING if self.out.is_empty() => {
                self.queue(PONG, &[IoSlice::new(&payload)], payload.len());
                // What can't be sent now goes with the next frame.
                let _ = self.poll_drain(context)?;
            }
            _ => {}
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_parts(&mut self, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>().min(LARGEST_WRITE);
        if length == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_drain(context))?;
        self.queue(2, parts, length);
        // It is queued, so it counts as written; whoever flushes waits for it.
        let _ = self.poll_drain(context)?;
        Poll::Ready(Ok(length))
    }
}

/// How long a frame's head is, as far as its beginning tells.
fn needed(head: &[u8]) -> io::Result<usize> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("a WebSocket frame {why}"));
    let (Some(first), Some(second)) = (head.first(), head.get(1)) else { return Ok(2) };
    if first & 0x70 != 0 {
        return Err(invalid("uses an extension that wasn't agreed on"));
    }
    if second & 0x80 == 0 {
        return Err(invalid("isn't masked, as those of clients have to be"));
    }
    let length = second & 0x7f;
    match first & 0x0f {
        0..=2 => {}
        CLOSE | PING | PONG if first & 0x80 != 0 && u64::from(length) <= LARGEST_CONTROL => {}
        CLOSE | PING | PONG => return Err(invalid("of control is too long or in pieces")),
        _ => return Err(invalid("has an unknown type")),
    }
    Ok(match length {
        126 => 8,
        127 => 14,
        _ => 6,
    })
}

/// A head that is complete.
fn parse(head: &[u8]) -> Frame {
    let (rest, mask) = head.split_at(head.len() - 4);
    let left = match rest.len() {
        4 => u64::from(u16::from_be_bytes([rest[2], rest[3]])),
        10 => rest[2..].iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
        _ => u64::from(rest[1] & 0x7f),
    };
    Frame { opcode: rest[0] & 0x0f, left, mask: [mask[0], mask[1], mask[2], mask[3]], offset: 0 }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocketStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.closed || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            match this.frame.as_ref().map(|frame| (frame.opcode, frame.left)) {
                None => {
                    if !ready!(this.poll_head(context))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Some((opcode @ (CLOSE | PING | PONG), _)) => ready!(this.poll_control(context, opcode))?,
                Some((_, 0)) => this.frame = None,
                Some((_, left)) => {
                    let room = buffer.remaining().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
                    ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
                    let count = part.filled().len();
                    if count == 0 {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    if let Some(frame) = &mut this.frame {
                        frame.unmask(part.filled_mut());
                    }
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocketStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_parts(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_parts(context, parts)
    }

    /// Otherwise HTTP/2 would send the nine bytes before each piece of data as a frame of their own.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.closed {
            this.closed = true;
            this.queue(CLOSE, &[], 0);
        }
        ready!(this.poll_drain(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    fn pair() -> (DuplexStream, WebSocketStream<DuplexStream>) {
        let (near, far) = tokio::io::duplex(1 << 20);
        (near, WebSocketStream::new(far))
    }

    /// A client's frame.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut bytes = vec![first];
        match payload.len() {
            length @ 0..=125 => bytes.push(0x80 | length as u8),
            length @ 126..=0xffff => {
                bytes.push(0x80 | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            length => {
                bytes.push(0x80 | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(mask);
        bytes.extend(payload.iter().enumerate().map(|(place, byte)| byte ^ mask[place & 3]));
        bytes
    }

    #[test]
    fn the_answer_to_a_key_is_that_of_the_standard() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[tokio::test]
    async fn frames_of_all_sizes_are_one_stream_of_bytes() {
        let (mut client, mut server) = pair();
        let (small, middle, large) = (vec![1; 5], vec![2; 60_000], vec![3; 200_000]);
        for (first, payload) in [(0x02, &small), (0x00, &middle), (0x80, &large), (0x82, &Vec::new()), (0x82, &small)] {
            client.write_all(&frame(first, payload)).await.unwrap();
        }
        client.write_all(&frame(0x88, b"")).await.unwrap();
        let mut seen = Vec::new();
        server.read_to_end(&mut seen).await.unwrap();
        assert!(seen == [small.clone(), middle, large, small].concat());
    }

    /// The mask goes on where the piece before has ended.
    #[tokio::test]
    async fn a_frame_may_be_read_in_pieces_of_any_length() {
        let (mut client, mut server) = pair();
        let data: Vec<u8> = (0..5_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        client.write_all(&frame(0x82, &data)).await.unwrap();
        let mut seen = Vec::new();
        for length in [1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31].into_iter().cycle() {
            let mut piece = vec![0; length.min(data.len() - seen.len())];
            server.read_exact(&mut piece).await.unwrap();
            seen.extend(piece);
            if seen.len() == data.len() {
                break;
            }
        }
        assert!(seen == data);
    }

    #[tokio::test]
    async fn what_is_written_arrives_in_frames_that_are_not_masked() {
        let (mut client, mut server) = pair();
        let data: Vec<u8> = (0..150_000_u32).map(|number| number as u8).collect();
        server.write_all(&data).await.unwrap();
        server.shutdown().await.unwrap();
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        let (mut seen, mut rest) = (Vec::new(), &bytes[..]);
        while rest[0] == 0x82 {
            let (length, start) = match rest[1] {
                126 => (usize::from(u16::from_be_bytes([rest[2], rest[3]])), 4),
                127 => (u64::from_be_bytes(rest[2..10].try_into().unwrap()) as usize, 10),
                length => (usize::from(length), 2),
            };
            seen.extend_from_slice(&rest[start..start + length]);
            rest = &rest[start + length..];
        }
        assert!(seen == data && rest == [0x88, 0]);
    }

    #[tokio::test]
    async fn pings_are_answered_even_in_the_middle_of_a_message() {
        let (mut client, mut server) = pair();
        for bytes in [frame(0x02, b"ab"), frame(0x89, b"hello"), frame(0x80, b"cd")] {
            client.write_all(&bytes).await.unwrap();
        }
        let mut seen = [0; 4];
        server.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"abcd");
        let mut pong = [0; 7];
        client.read_exact(&mut pong).await.unwrap();
        assert_eq!(&pong, b"\x8a\x05hello");
    }

    #[tokio::test]
    async fn what_no_client_sends_ends_the_connection() {
        for bad in [
            b"\x82\x02ab".to_vec(),
            frame(0xc2, b"x"),
            frame(0x83, b"x"),
            frame(0x09, b"x"),
            frame(0x89, &[0; 126]),
            frame(0x82, &[0; 300])[..50].to_vec(),
        ] {
            let (mut client, mut server) = pair();
            client.write_all(&bad).await.unwrap();
            drop(client);
            assert!(server.read_to_end(&mut Vec::new()).await.is_err(), "{bad:?}");
        }
    }
}
