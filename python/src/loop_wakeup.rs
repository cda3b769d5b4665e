//! Hands results from Rust's threads to Python event loops.
//!
//! Each loop has a queue, and a socket that the loop reads. A Rust thread pushes a result onto the queue and writes a byte to
//! the socket; the loop wakes up and takes everything in the queue. Rust's threads therefore never wait for the GIL, and a
//! thousand results that arrive together wake the loop once.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

/// A finished operation. It is called on the loop's thread, with the GIL held, to make the Python result.
pub type Completion = Box<dyn for<'py> FnOnce(Python<'py>) -> PyResult<Py<PyAny>> + Send>;

/// The sending half, used by Rust's threads.
pub struct CompletionQueue {
    completed: Mutex<Vec<(u64, Completion)>>,
    /// Whether a byte is already on its way.
    notified: AtomicBool,
    sender: UnixStream,
}

impl CompletionQueue {
    /// Queues a result and wakes the loop.
    pub fn push(&self, ticket: u64, completion: Completion) {
        lock(&self.completed).push((ticket, completion));
        if !self.notified.swap(true, Ordering::AcqRel) {
            // If the socket is full, the loop wakes up anyway; if its loop is closed, nobody is left to wake.
            let _ = (&self.sender).write(&[1]);
        }
    }
}

/// The receiving half, which belongs to one event loop.
#[pyclass(frozen, weakref, module = "podbay._native")]
pub struct LoopWakeup {
    queue: Arc<CompletionQueue>,
    receiver: UnixStream,
    next_ticket: AtomicU64,
    waiting: Mutex<HashMap<u64, Py<PyAny>>>,
}

/// All loops' wakeups, by the address of the loop. The loop's reader keeps its wakeup alive.
static WAKEUPS: Mutex<Option<HashMap<usize, Py<PyWeakrefReference>>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LoopWakeup {
    /// Returns the wakeup of a loop, and registers one if the loop has none yet.
    pub fn of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = event_loop.py();
        let key = event_loop.as_ptr() as usize;
        let known = lock(&WAKEUPS).as_ref().and_then(|wakeups| wakeups.get(&key).map(|wakeup| wakeup.clone_ref(py)));
        if let Some(wakeup) = known.and_then(|wakeup| wakeup.bind(py).upgrade()) {
            return Ok(wakeup.cast_into::<Self>()?);
        }
        let wakeup = Bound::new(py, Self::new()?)?;
        let fd = wakeup.get().receiver.as_raw_fd();
        event_loop.call_method1(intern!(py, "add_reader"), (fd, wakeup.getattr(intern!(py, "drain"))?))?;
        let reference = PyWeakrefReference::new(wakeup.as_any())?.unbind();
        let mut wakeups = lock(&WAKEUPS);
        let wakeups = wakeups.get_or_insert_default();
        // Closed loops are dropped from the map here, whenever a new loop is added.
        wakeups.retain(|_, wakeup| wakeup.bind(py).upgrade().is_some());
        wakeups.insert(key, reference);
        Ok(wakeup)
    }

    fn new() -> PyResult<Self> {
        let (sender, receiver) = UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        receiver.set_nonblocking(true)?;
        let queue = CompletionQueue { completed: Mutex::default(), notified: AtomicBool::new(false), sender };
        Ok(Self { queue: Arc::new(queue), receiver, next_ticket: AtomicU64::new(0), waiting: Mutex::default() })
    }

    /// Registers a future. Returns its ticket and the queue to push the result to.
    pub fn register(&self, future: Py<PyAny>) -> (u64, Arc<CompletionQueue>) {
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        lock(&self.waiting).insert(ticket, future);
        (ticket, self.queue.clone())
    }

    /// Drops a future that nobody waits for any more.
    pub fn forget(&self, ticket: u64) {
        drop(lock(&self.waiting).remove(&ticket));
    }
}

#[pymethods]
impl LoopWakeup {
    /// Empties the queue and sets the results of the waiting futures.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let mut bytes = [0; 64];
        loop {
            match (&self.receiver).read(&mut bytes) {
                Ok(read) if read == bytes.len() => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        // Must happen before the queue is taken, so that a result that arrives from now on wakes the loop again.
        self.queue.notified.store(false, Ordering::Release);
        let completed = std::mem::take(&mut *lock(&self.queue.completed));
        for (ticket, completion) in completed {
            let Some(future) = lock(&self.waiting).remove(&ticket) else { continue };
            let future = future.bind(py);
            if future.call_method0(intern!(py, "done"))?.extract()? {
                continue;
            }
            match completion(py) {
                Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
                Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
            };
        }
        Ok(())
    }
}
