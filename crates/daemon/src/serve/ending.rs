//! Being told to end by a signal: by whom it counts.
//!
//! Commands have podbayd's user and may send it any signal. A local sandbox is ended by its supervisor, with KILL, so podbayd
//! ignores all others there. Elsewhere TERM and INT count when they come from outside: from another pid namespace, as a
//! container's runtime sends them, from the terminal, or from a process that podbayd's commands can't be.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;

use crate::{process_tree, sys};

/// How podbayd can be told to end.
pub struct Ending(Option<OwnedFd>);

impl Ending {
    /// Decides it for this process, which must have one thread. Where it is `supervised`, no signal counts.
    ///
    /// # Errors
    /// When signals can't be taken.
    pub fn prepare(supervised: bool) -> io::Result<Self> {
        if supervised {
            sys::ignore_signals();
            return Ok(Self(None));
        }
        let signals = sys::end_signals()?;
        sys::ignore_signals();
        // What is ignored doesn't arrive even where it is blocked.
        sys::heed_end_signals();
        Ok(Self(Some(signals)))
    }

    /// Waits until somebody who may says so.
    pub async fn asked(self) {
        let Some(Ok(signals)) = self.0.map(sys::readable) else {
            return std::future::pending().await;
        };
        loop {
            match signals.async_io(Interest::READABLE, sys::signal_sender).await {
                Ok(sender) if counts(sender) => return,
                Ok(_) => {}
                Err(_) => return std::future::pending().await,
            }
        }
    }
}

/// Whether a sender is one of whom we know that it is outside. Who has ended already could have been a command.
fn counts(sender: i32) -> bool {
    sender == 0 || process_tree::is_outside(sender)
}
