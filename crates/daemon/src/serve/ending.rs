//! Signals that end podbayd, and whose signals count.
//!
//! Commands run as podbayd's user and may send it any signal. A local sandbox is ended by its supervisor, with KILL, so podbayd
//! ignores all others there. Elsewhere TERM and INT count when they come from outside: from another pid namespace, as a
//! container's runtime sends them, from the terminal, or from a process that podbayd's commands can't be.

use std::io;
use std::os::fd::OwnedFd;

use podbay_jail::process_tree;
use tokio::io::Interest;

use crate::sys;

/// How podbayd is told to stop.
pub struct Ending(Option<OwnedFd>);

impl Ending {
    /// Sets up signals for this process, which must have one thread. If it is `supervised`, no signal counts.
    ///
    /// # Errors
    /// When the kernel refuses the signal descriptor.
    pub fn prepare(supervised: bool) -> io::Result<Self> {
        if supervised {
            sys::ignore_signals();
            return Ok(Self(None));
        }
        let signals = sys::end_signals()?;
        sys::ignore_signals();
        // An ignored signal isn't delivered, even if it is blocked.
        sys::accept_end_signals();
        Ok(Self(Some(signals)))
    }

    /// Waits for a signal that counts.
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

/// Whether the sender is known to be outside of the sandbox's commands. One that has ended could have been a command.
fn counts(sender: i32) -> bool {
    sender == 0 || process_tree::is_outside(sender)
}
