//! How results come from Rust's threads to a Python event loop.
//!
//! Each loop has a port: a queue, and a socket that the loop listens to. A result is put into the queue and a byte into the
//! socket; the loop wakes up and takes all that is there. So Rust's threads never wait for the GIL, and a thousand results
//! that come at once wake the loop once.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

/// A result that becomes Python's on the loop's own thread.
pub type Settle = Box<dyn for<'py> FnOnce(Python<'py>) -> PyResult<Py<PyAny>> + Send>;

/// The side that Rust's threads have.
pub struct Inbox {
    done: Mutex<Vec<(u64, Settle)>>,
    /// Whether a byte is on its way already.
    called: AtomicBool,
    bell: UnixStream,
}

impl Inbox {
    /// Hands a result over.
    pub fn put(&self, ticket: u64, settle: Settle) {
        lock(&self.done).push((ticket, settle));
        if !self.called.swap(true, Ordering::AcqRel) {
            // A full socket rings anyway, and one whose loop is closed has nobody to ring for.
            let _ = (&self.bell).write(&[1]);
        }
    }
}

/// The side that the loop has.
#[pyclass(frozen, weakref, module = "podbay._native")]
pub struct Port {
    inbox: Arc<Inbox>,
    ear: UnixStream,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Py<PyAny>>>,
}

/// The ports of all loops, by the address of the loop. A port lives as long as its loop listens to it.
static PORTS: Mutex<Option<HashMap<usize, Py<PyWeakrefReference>>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Port {
    /// The port of a loop.
    pub fn of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = event_loop.py();
        let key = event_loop.as_ptr() as usize;
        let known = lock(&PORTS).as_ref().and_then(|ports| ports.get(&key).map(|port| port.clone_ref(py)));
        if let Some(port) = known.and_then(|port| port.bind(py).upgrade()) {
            return Ok(port.cast_into::<Self>()?);
        }
        let port = Bound::new(py, Self::new()?)?;
        let fd = port.get().ear.as_raw_fd();
        event_loop.call_method1(intern!(py, "add_reader"), (fd, port.getattr(intern!(py, "drain"))?))?;
        let reference = PyWeakrefReference::new(port.as_any())?.unbind();
        let mut ports = lock(&PORTS);
        let ports = ports.get_or_insert_default();
        // Loops that are over are forgotten here, where a new one is heard of.
        ports.retain(|_, port| port.bind(py).upgrade().is_some());
        ports.insert(key, reference);
        Ok(port)
    }

    fn new() -> PyResult<Self> {
        let (bell, ear) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ear.set_nonblocking(true)?;
        let inbox = Inbox { done: Mutex::default(), called: AtomicBool::new(false), bell };
        Ok(Self { inbox: Arc::new(inbox), ear, next: AtomicU64::new(0), waiting: Mutex::default() })
    }

    /// A ticket under which a result is handed over, and the side to hand it to.
    pub fn expect(&self, future: Py<PyAny>) -> (u64, Arc<Inbox>) {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.waiting).insert(ticket, future);
        (ticket, self.inbox.clone())
    }

    /// Nobody waits for that any more.
    pub fn forget(&self, ticket: u64) {
        drop(lock(&self.waiting).remove(&ticket));
    }
}

#[pymethods]
impl Port {
    /// Takes what has come and settles the futures that wait for it.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let mut bytes = [0; 64];
        loop {
            match (&self.ear).read(&mut bytes) {
                Ok(read) if read == bytes.len() => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        // Before the queue is taken: what comes from now on rings again.
        self.inbox.called.store(false, Ordering::Release);
        let done = std::mem::take(&mut *lock(&self.inbox.done));
        for (ticket, settle) in done {
            let Some(future) = lock(&self.waiting).remove(&ticket) else { continue };
            let future = future.bind(py);
            if future.call_method0(intern!(py, "done"))?.extract()? {
                continue;
            }
            match settle(py) {
                Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
                Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
            };
        }
        Ok(())
    }
}
