//! Progress notifications while a command runs.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use podbay::utf8;
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;

use crate::failure::Failure;
use crate::reply::one_line;

/// How often the client is told about a running command.
const EVERY: Duration = Duration::from_millis(500);

/// How much of the last line it gets.
const LINE: usize = 200;

/// What a call is doing now.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<String>);

impl Progress {
    pub(crate) fn new(doing: &str) -> Self {
        Self(Mutex::new(doing.to_owned()))
    }

    pub(crate) fn set(&self, doing: &str) {
        doing.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The last line of what a command printed.
    pub(crate) fn printed(&self, bytes: &[u8]) {
        let tail = &bytes[bytes.len().saturating_sub(4 * LINE)..];
        let tail = String::from_utf8_lossy(&tail[utf8::ceil_char_boundary(tail)..]);
        let line = tail.lines().rev().find(|line| !line.trim().is_empty());
        if let Some(line) = line {
            self.set(&one_line(line.trim()).chars().take(LINE).collect::<String>());
        }
    }

    fn current(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether the client wants to be told about progress.
pub(crate) fn token(context: &RequestContext<RoleServer>) -> Option<ProgressToken> {
    context.meta.get_progress_token()
}

/// Does the work and tells the client how it goes, until it is done or the client cancels it.
pub(crate) async fn while_working<T>(
    context: &RequestContext<RoleServer>,
    progress: &Progress,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let telling = async {
        let Some(token) = token(context) else { return std::future::pending::<()>().await };
        let begun = Instant::now();
        loop {
            tokio::time::sleep(EVERY).await;
            let told = ProgressNotificationParam::new(token.clone(), begun.elapsed().as_secs_f64())
                .with_message(progress.current());
            // A client that is gone is noticed elsewhere.
            let _ = context.peer.notify_progress(told).await;
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = context.ct.cancelled() => Err(Failure::Cancelled),
        () = telling => Err(Failure::Cancelled),
    }
}
