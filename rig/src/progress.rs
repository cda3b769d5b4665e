//! What the rig tells the person who waits for it: one line per step, on standard error, with the time it took.

use std::io::Write;
use std::time::Instant;

/// A step that is under way. Says what it does when it starts, and how long it took when it was long.
pub(crate) struct Step {
    what: String,
    start: Instant,
}

impl Step {
    /// Says that `what` begins now.
    pub(crate) fn begin(what: impl Into<String>) -> Self {
        let what = what.into();
        say(&format!("{what} …"));
        Self { what, start: Instant::now() }
    }

    /// Says that the step is over.
    pub(crate) fn done(self) {
        say(&format!("{}: {:.1} s", self.what, self.start.elapsed().as_secs_f64()));
    }
}

/// Prints one line for the person at the terminal. Written directly: `eprintln!` in a test that passes shows nothing,
/// and a test that was left out has to be seen.
pub(crate) fn say(line: &str) {
    // With nobody to read it there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "rig: {line}");
}
