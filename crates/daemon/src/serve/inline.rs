//! Whether an operation on files is done at once or on a thread.
//!
//! Waking a thread, and being woken by it, takes longer than reading a small file. So an operation that takes
//! microseconds is done at once, on podbayd's only thread, where nothing else waits for that thread: no other request is
//! under way, and no file system is mounted that may keep it waiting.

use podbay_proto::Result;

use super::Daemon;
use super::blocking::blocking;

/// The largest file that is read or edited at once.
const SMALL: u64 = 1 << 20;

impl Daemon {
    fn may_work_inline(&self) -> bool {
        self.activity.is_single() && self.mounts.are_local()
    }

    /// Does work that takes about as long for one file as for another.
    pub async fn quick<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        if self.may_work_inline() { work() } else { blocking(work).await? }
    }

    /// Opens a file and works on it. The file is opened once: its size then says where the work is done.
    pub async fn open_then<F, T>(
        &self,
        open: impl FnOnce() -> Result<F> + Send + 'static,
        size: impl FnOnce(&F) -> u64,
        work: impl FnOnce(F) -> Result<T> + Send + 'static,
    ) -> Result<T>
    where
        F: Send + 'static,
        T: Send + 'static,
    {
        if !self.may_work_inline() {
            return blocking(move || open().and_then(work)).await?;
        }
        let file = open()?;
        // Files of the kernel have no size and may have any content.
        if (1..=SMALL).contains(&size(&file)) { work(file) } else { blocking(move || work(file)).await? }
    }
}
