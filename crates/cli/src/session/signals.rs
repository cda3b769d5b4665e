//! Passes signals of this process on to a command.

use std::time::Duration;

use podbay::Control;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// How long a command may take to end after a signal that ends most programs.
const GRACE: Duration = Duration::from_secs(2);

/// A signal that is listened for; none when this process ignores it.
struct Listener(Option<Signal>);

impl Listener {
    async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// The signals that a session listens for.
pub struct Signals {
    interrupt: Listener,
    terminate: Listener,
    hangup: Listener,
    quit: Listener,
    user1: Listener,
    user2: Listener,
}

impl Signals {
    /// Starts listening.
    ///
    /// # Errors
    /// When signals can't be received.
    pub fn open() -> Result<Self, Failure> {
        Self::listen().map_err(|error| Failure::new(format!("can't listen for signals: {error}")))
    }

    fn listen() -> std::io::Result<Self> {
        let ignored = ignored();
        // A shell starts background jobs with the interrupt ignored, and nohup everything with the hang-up ignored: whoever
        // wanted that gets it.
        let listener = |kind: SignalKind| match ignored & (1 << (kind.as_raw_value() - 1)) {
            0 => signal(kind).map(|signal| Listener(Some(signal))),
            _ => Ok(Listener(None)),
        };
        Ok(Self {
            interrupt: listener(SignalKind::interrupt())?,
            terminate: listener(SignalKind::terminate())?,
            hangup: listener(SignalKind::hangup())?,
            quit: listener(SignalKind::quit())?,
            user1: listener(SignalKind::user_defined1())?,
            user2: listener(SignalKind::user_defined2())?,
        })
    }

    /// The next signal, and whether it asks for the end.
    async fn recv(&mut self) -> (SignalKind, bool) {
        tokio::select! {
            _ = self.interrupt.recv() => (SignalKind::interrupt(), true),
            _ = self.terminate.recv() => (SignalKind::terminate(), true),
            _ = self.hangup.recv() => (SignalKind::hangup(), true),
            _ = self.quit.recv() => (SignalKind::quit(), true),
            _ = self.user1.recv() => (SignalKind::user_defined1(), false),
            _ = self.user2.recv() => (SignalKind::user_defined2(), false),
        }
    }
}

/// Waits for a signal that asks this process to end and returns its number.
///
/// # Errors
/// When signals can't be received.
pub async fn end() -> Result<u8, Failure> {
    let mut signals = Signals::open()?;
    loop {
        let (kind, ends) = signals.recv().await;
        if ends {
            return Ok(number(kind));
        }
    }
}

/// The signals that this process ignores, one bit each. Where there is no `/proc` to ask, none.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn number(kind: SignalKind) -> u8 {
    u8::try_from(kind.as_raw_value()).unwrap_or(u8::MAX)
}

/// Passes signals on. Returns the signal's number when this process must end: when the command didn't end in time after a signal
/// that asks for the end, after a second such signal, or at once if signals aren't passed on.
pub async fn pass(mut signals: Signals, control: Control, passing: bool) -> Result<u8, Failure> {
    loop {
        let (kind, ends) = signals.recv().await;
        let number = number(kind);
        if !passing {
            match ends {
                true => return Ok(number),
                false => continue,
            }
        }
        let sent = control.signal(kind.as_raw_value());
        if !ends {
            sent.await?;
            continue;
        }
        let last = async {
            // Whether it could be sent or not, the end comes.
            let _ = sent.await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = last => {}
            () = tokio::time::sleep(GRACE) => {}
            () = second(&mut signals) => {}
        }
        return Ok(number);
    }
}

async fn second(signals: &mut Signals) {
    while !signals.recv().await.1 {}
}
