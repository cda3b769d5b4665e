//! The two directions of a stream, by offsets. What the pod answers is checked here: it may answer anything.

use bytes::{Buf, Bytes, BytesMut};
use podbay_proto::exchange::{LARGEST_INPUT, LARGEST_OUTPUT};

/// The pod's answer can't be right.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pod acknowledged or sent bytes outside the valid range")]
pub(super) struct Impossible;

/// Bytes for podbayd, kept until it has them.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Where the bytes that are kept begin.
    acknowledged: u64,
    kept: BytesMut,
    /// What was sent, and what is counted as sent: less if something has to be sent again.
    ever_sent: u64,
    sent: u64,
}

/// Some of them, in one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) data: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

impl Outgoing {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// How many more may be kept.
    pub(super) fn room(&self) -> usize {
        (2 * LARGEST_INPUT).saturating_sub(self.kept.len())
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.acknowledged + self.kept.len() as u64
    }

    /// The next piece to send, or an empty one.
    pub(super) fn next(&mut self) -> Piece {
        let begin = usize::try_from(self.sent - self.acknowledged).unwrap_or(usize::MAX).min(self.kept.len());
        let end = self.kept.len().min(begin + LARGEST_INPUT);
        let piece = Piece { offset: self.sent, data: Bytes::copy_from_slice(&self.kept[begin..end]) };
        self.sent = piece.end();
        self.ever_sent = self.ever_sent.max(self.sent);
        piece
    }

    /// What podbayd has, by the answer to a piece. If that is less than the piece brought, the rest is sent again.
    pub(super) fn acknowledge(&mut self, piece: &Piece, received: u64) -> Result<(), Impossible> {
        if received > self.ever_sent {
            return Err(Impossible);
        }
        // An answer that was overtaken says less than is known already.
        if let Some(more) = received.checked_sub(self.acknowledged) {
            self.kept.advance(usize::try_from(more).map_err(|_| Impossible)?);
            self.acknowledged = received;
            self.sent = self.sent.max(received);
        }
        if piece.end() > self.acknowledged && !piece.data.is_empty() {
            self.sent = self.acknowledged;
        }
        Ok(())
    }

    /// Counts everything that isn't acknowledged as unsent.
    pub(super) fn send_again(&mut self) {
        self.sent = self.acknowledged;
    }
}

/// Bytes from podbayd, until they are read.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    received: u64,
    pub(super) unread: BytesMut,
}

impl Incoming {
    /// How many have arrived.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// How many more may arrive.
    pub(super) fn room(&self) -> usize {
        LARGEST_OUTPUT.saturating_sub(self.unread.len())
    }

    /// Takes what is new in an answer.
    pub(super) fn accept(&mut self, offset: u64, data: &[u8]) -> Result<(), Impossible> {
        let known = self.received.checked_sub(offset).ok_or(Impossible)?;
        // Of two requests under way at once, both may get the same bytes.
        let new = usize::try_from(known).ok().and_then(|known| data.get(known..)).unwrap_or_default();
        self.unread.extend_from_slice(new);
        self.received += new.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_acknowledged_is_sent_again() {
        let mut outgoing = Outgoing::default();
        outgoing.push(b"abcdef");
        let first = outgoing.next();
        assert_eq!(first, Piece { offset: 0, data: Bytes::from_static(b"abcdef") });
        assert!(!outgoing.has_unsent());
        outgoing.push(b"ghi");
        let second = outgoing.next();
        assert_eq!((second.offset, &second.data[..]), (6, &b"ghi"[..]));
        // The second arrives, with all before it; the answer to the first comes later.
        outgoing.acknowledge(&second, 9).unwrap();
        outgoing.acknowledge(&first, 6).unwrap();
        assert!(!outgoing.has_unsent() && outgoing.kept.is_empty());
        // Only a part was accepted.
        outgoing.push(b"jkl");
        let third = outgoing.next();
        outgoing.acknowledge(&third, 10).unwrap();
        assert_eq!(outgoing.next(), Piece { offset: 10, data: Bytes::from_static(b"kl") });
    }

    #[test]
    fn impossible_answers_are_refused() {
        let mut outgoing = Outgoing::default();
        outgoing.push(b"abc");
        let piece = outgoing.next();
        outgoing.push(b"def");
        assert_eq!(outgoing.acknowledge(&piece, 4), Err(Impossible), "that wasn't sent yet");
        let mut incoming = Incoming::default();
        incoming.accept(0, b"abc").unwrap();
        assert_eq!(incoming.accept(4, b"x"), Err(Impossible), "a gap");
    }

    #[test]
    fn bytes_that_arrive_twice_count_once() {
        let mut incoming = Incoming::default();
        for (offset, data) in [(0, &b"abc"[..]), (0, b"abc"), (0, b"ab"), (1, b"bcde"), (5, b""), (5, b"f")] {
            incoming.accept(offset, data).unwrap();
        }
        assert_eq!((&incoming.unread[..], incoming.received()), (&b"abcdef"[..], 6));
    }
}
