//! A progress bar for transfers.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use podbay::Progress;

use crate::terminal::bytes;

/// How often the line changes at most.
const PACE: Duration = Duration::from_millis(100);

/// How many characters the bar has.
const WIDTH: u64 = 24;

/// A progress bar on standard error, if that is a terminal.
#[derive(Debug)]
pub struct Bar {
    shown: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    began: Instant,
    drawn: Option<Instant>,
    length: usize,
    /// The size of the file, if only one is copied.
    expected: Option<u64>,
}

impl Bar {
    /// A bar, unless the output is JSON.
    pub fn new(json: bool) -> Self {
        let shown = !json && std::io::stderr().is_terminal();
        Self { shown, state: Mutex::new(State { began: Instant::now(), drawn: None, length: 0, expected: None }) }
    }

    /// Announces that one file of so many bytes is copied.
    pub fn expect(&self, bytes: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).expected = Some(bytes);
    }

    /// Draws the bar.
    pub fn show(&self, progress: Progress) {
        if !self.shown {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // What takes less than that needs no bar.
        if now - state.drawn.unwrap_or(state.began) < PACE {
            return;
        }
        state.drawn = Some(now);
        let progress = match state.expected {
            Some(bytes) => Progress { total_files: Some(1), total_bytes: Some(bytes), ..progress },
            None => progress,
        };
        let line = line(progress, now - state.began);
        let blanks = " ".repeat(state.length.saturating_sub(line.chars().count()));
        state.length = line.chars().count();
        // A bar that can't be drawn is no failure of the transfer.
        let _ = write!(std::io::stderr(), "\r{line}{blanks}");
    }

    /// Removes the bar.
    pub fn clear(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.length > 0 {
            let _ = write!(std::io::stderr(), "\r{}\r", " ".repeat(state.length));
        }
    }
}

fn line(progress: Progress, since: Duration) -> String {
    let speed = (progress.bytes as f64 / since.as_secs_f64().max(0.001)) as u64;
    let files = match progress.total_files {
        Some(1) => String::new(),
        Some(total) => format!("  {}/{total} files", progress.files),
        None => format!("  {} files", progress.files),
    };
    match progress.total_bytes.filter(|total| *total > 0) {
        Some(total) => {
            // What had to be sent again counts again.
            let done = progress.bytes.min(total);
            let filled = (u128::from(done) * u128::from(WIDTH) / u128::from(total)) as usize;
            let bar = format!("{}{}", "#".repeat(filled), "-".repeat(WIDTH as usize - filled));
            format!("[{bar}] {}/{}  {}/s{files}", bytes(done), bytes(total), bytes(speed))
        }
        None => format!("{}  {}/s{files}", bytes(progress.bytes), bytes(speed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_how_far_it_is() {
        let progress = Progress { files: 1, bytes: 512, total_files: Some(4), total_bytes: Some(1024) };
        assert_eq!(
            line(progress, Duration::from_secs(1)),
            "[############------------] 512 B/1.0 KiB  512 B/s  1/4 files"
        );
        let unknown = Progress { total_files: None, total_bytes: None, ..progress };
        assert_eq!(line(unknown, Duration::from_secs(1)), "512 B  512 B/s  1 files");
        let one = Progress { total_files: Some(1), ..progress };
        assert_eq!(line(one, Duration::from_secs(1)), "[############------------] 512 B/1.0 KiB  512 B/s");
        let again = Progress { bytes: 4096, ..progress };
        assert!(line(again, Duration::from_secs(1)).starts_with("[########################] 1.0 KiB/1.0 KiB"));
    }
}
