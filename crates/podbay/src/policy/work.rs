//! How much a check may do.

use std::cell::Cell;

/// Enough for four lines of the greatest length, or for some thousand long commands. It is done in a fraction of a second.
const MOST: usize = 1 << 20;

/// The work that a check may still do, in characters read and words compared. What is nested in a line can be looked at in more
/// ways than anybody has time for, though each is short: bounds on length and depth don't bound that.
#[derive(Debug)]
pub(super) struct Work(Cell<usize>);

impl Default for Work {
    fn default() -> Self {
        Self(Cell::new(MOST))
    }
}

impl Work {
    /// # Errors
    /// When nothing is left.
    pub(super) fn spend(&self, work: usize) -> Result<(), String> {
        let left = self.0.get().checked_sub(work);
        self.0.set(left.unwrap_or_default());
        left.map(|_| ()).ok_or_else(|| "it is too complex to be checked".to_owned())
    }
}
