//! Exchanges that wait for bytes. Each of them holds a process, and one of the few threads in which the stock runtime waits for
//! processes: were all of those taken, no client could send anything.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// How many wait at the same time. The stock runtime has four threads and one for each processor.
const MOST: usize = 4;

/// Those that wait, the one that began first in front.
#[derive(Default)]
pub struct Waiting(Mutex<VecDeque<Arc<Notify>>>);

/// One that waits, until it is dropped.
pub struct Turn<'a> {
    waiting: &'a Waiting,
    over: Arc<Notify>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait. If there are too many, whoever waits for the longest time has to stop.
    pub fn begin(&self) -> Turn<'_> {
        let over = Arc::new(Notify::new());
        let mut all = self.lock();
        all.push_back(over.clone());
        if all.len() > MOST
            && let Some(first) = all.pop_front()
        {
            first.notify_one();
        }
        Turn { waiting: self, over }
    }
}

impl Turn<'_> {
    /// Returns when others need the place.
    pub async fn over(&self) {
        self.over.notified().await;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.waiting.lock().retain(|other| !Arc::ptr_eq(other, &self.over));
    }
}
