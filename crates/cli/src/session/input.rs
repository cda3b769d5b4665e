//! Passes standard input to a command.

use std::io::{self, Read};

use bytes::{Bytes, BytesMut};
use podbay::Control;
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::output::Output;

/// How much is read at once: what a pipe holds.
const PIECE: usize = 64 << 10;

/// How many pieces are read ahead. They are sent together: one request costs the same for one and for all.
const AHEAD: usize = 16;

/// Passes standard input to a command. Returns only on failure, not when the input ends or the command stops reading.
pub async fn pass(mut control: Control, output: &Output) -> Failure {
    let mut pieces = start();
    let mut ready = Vec::with_capacity(AHEAD);
    loop {
        ready.clear();
        if pieces.recv_many(&mut ready, AHEAD).await == 0 {
            break;
        }
        let mut data = BytesMut::new();
        let mut ended = None;
        for piece in ready.drain(..) {
            match piece {
                Ok(piece) if data.is_empty() => data = piece.into(),
                Ok(piece) => data.extend_from_slice(&piece),
                Err(error) => ended = Some(error),
            }
        }
        match control.write(data).await {
            Ok(true) => {}
            Ok(false) => return std::future::pending().await,
            Err(error) => return Failure::from(error).about("standard input can't be passed on"),
        }
        if let Some(error) = ended {
            output.note(&format!("can't read standard input: {error}; it is closed for the command"));
            break;
        }
    }
    match control.close_input().await {
        Ok(()) => std::future::pending().await,
        Err(error) => Failure::from(error).about("standard input can't be closed"),
    }
}

/// Reads on a thread of its own, which may block longer than anyone waits for it.
fn start() -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut buffer = vec![0; PIECE];
        loop {
            let piece = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => Ok(Bytes::copy_from_slice(&buffer[..length])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = piece.is_err();
            if sender.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    receiver
}
