//! The connections to one sandbox, opened when needed and opened again when they break.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use podbay_proto::Operation;
use podbay_proto::exec::Command;
use podbay_proto::session::{Hello, Welcome};
use tokio::sync::Mutex;

use crate::channel::Channel;
use crate::connection::{Answer, Connection, Failure, Purpose};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::guard::{Both, Content, Effect, Guard, Permit};
use crate::origin::Origin;

/// The pause after the first failure; each further one is twice as long, up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The connections to one sandbox and who decides on its operations. Cheap to clone; all clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    connections: Arc<Connections>,
    guard: Option<Arc<dyn Guard>>,
    origin: Option<Arc<Origin>>,
    /// What every command finds in its environment unless it says otherwise.
    env: Option<Arc<BTreeMap<String, String>>>,
}

#[derive(Debug)]
struct Connections {
    channel: Arc<dyn Channel>,
    shared: Mutex<Option<Connection>>,
    bulk: Mutex<Option<Connection>>,
    /// When a podbayd was connected to last and didn't say who it is.
    silent: std::sync::Mutex<Option<Instant>>,
    /// Another podbayd answered than the time before, and nobody was told yet.
    restarted: AtomicBool,
}

/// A session that doesn't keep its connections open by itself.
#[derive(Debug, Clone)]
pub(crate) struct WeakSession(Weak<Connections>);

impl WeakSession {
    pub(crate) fn upgrade(&self) -> Option<Session> {
        self.0.upgrade().map(Session::over)
    }
}

impl Session {
    pub(crate) fn new(channel: Arc<dyn Channel>) -> Self {
        Self::over(Arc::new(Connections {
            channel,
            shared: Mutex::default(),
            bulk: Mutex::default(),
            silent: std::sync::Mutex::default(),
            restarted: AtomicBool::default(),
        }))
    }

    fn over(connections: Arc<Connections>) -> Self {
        Self { connections, guard: None, origin: None, env: None }
    }

    /// The same connections with a guard in front of the one that is there.
    pub(crate) fn guarded(&self, guard: Arc<dyn Guard>) -> Self {
        let guard = match &self.guard {
            Some(inner) => Arc::new(Both(guard, inner.clone())),
            None => guard,
        };
        Self { guard: Some(guard), ..self.clone() }
    }

    pub(crate) fn with_env(&self, env: BTreeMap<String, String>) -> Self {
        Self { env: (!env.is_empty()).then(|| Arc::new(env)), ..self.clone() }
    }

    pub(crate) fn with_origin(&self, origin: Origin) -> Self {
        Self { origin: Some(Arc::new(origin)), ..self.clone() }
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_deref()
    }

    pub(crate) fn guard(&self) -> Option<&Arc<dyn Guard>> {
        self.guard.as_ref()
    }

    /// A permit for a request, under the name that its operation has.
    pub(crate) fn permit<O: Operation>(&self, mut request: O, content: Content<'_>) -> Result<Permit<O>> {
        let mut asked = None;
        if let (Some(env), Some(command)) = (&self.env, request.command_mut()) {
            asked = self.guard.is_some().then(|| command.clone());
            for (name, value) in env.iter() {
                command.env.entry(name.clone()).or_insert_with(|| value.as_str().into());
            }
        }
        Permit::asked(self.guard(), request.action(), request, asked.as_ref(), content)
    }

    /// An open connection: the one there is, or a new one.
    pub(crate) async fn connection(&self, purpose: Purpose) -> Result<Connection, Failure> {
        let place = match purpose {
            Purpose::Shared => &self.connections.shared,
            Purpose::Bulk => &self.connections.bulk,
        };
        let asked = Instant::now();
        let silent = || self.connections.silent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Whoever finds it broken opens it while the others wait for the same one.
        let mut place = place.lock().await;
        match place.as_ref() {
            Some(connection) if !connection.is_closed() => Ok(connection.clone()),
            // What others found while this one waited for them isn't tried again: a hundred callers would wait one after another.
            _ if silent().is_some_and(|when| when >= asked) => {
                Err(Failure::Final(Error::NoAnswer { what: Hello::NAME, seconds: asked.elapsed().as_secs() }))
            }
            before => {
                let opened = Connection::open(&self.connections.channel, purpose).await;
                if let Err(Failure::Final(Error::NoAnswer { .. })) = &opened {
                    *silent() = Some(Instant::now());
                }
                let connection = opened?;
                if before.is_some_and(|before| before.welcome.instance != connection.welcome.instance) {
                    self.connections.restarted.store(true, Ordering::Relaxed);
                }
                Ok(place.insert(connection).clone())
            }
        }
    }

    pub(crate) fn downgrade(&self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.connections))
    }

    pub(crate) fn take_restarted(&self) -> bool {
        self.connections.restarted.swap(false, Ordering::Relaxed)
    }

    /// Asks who is there on the connection that is open; nothing when none is.
    pub(crate) async fn glance(&self) -> Option<Welcome> {
        let connection = self.connections.shared.lock().await.clone()?;
        let answer = connection.ask(&Permit::hello(), None, Bytes::new()).await;
        answer.ok().map(|answer| answer.head)
    }

    /// Who is at the other end.
    pub(crate) async fn welcome(&self) -> Result<Welcome> {
        let mut patience = self.patience("connecting");
        loop {
            match self.connection(Purpose::Shared).await {
                Ok(connection) => return Ok(connection.welcome),
                Err(failure) => patience.after(failure).await?,
            }
        }
    }

    pub(crate) fn patience(&self, what: &'static str) -> Patience {
        Patience { what, until: Instant::now() + self.connections.channel.patience(), pause: FIRST_PAUSE }
    }

    /// When a caller stops waiting for a command that is started now.
    pub(crate) fn deadline(&self, command: &Command) -> Deadline {
        Deadline::of(command, self.connections.channel.patience())
    }

    /// Performs an operation, if the guard lets it, however often the connection breaks, with its effect happening once.
    pub(crate) async fn call<O: Operation>(
        &self,
        request: O,
        payload: Bytes,
        most: Option<usize>,
    ) -> Result<(O::Output, Bytes)> {
        let permit = self.permit(request, Content::of(&payload))?;
        self.perform(permit, payload, most).await
    }

    /// Like [`call`](Self::call), for an operation without payloads.
    pub(crate) async fn ask<O: Operation>(&self, request: O) -> Result<O::Output> {
        Ok(self.call(request, Bytes::new(), Some(0)).await?.0)
    }

    /// Performs an operation that is permitted, to its end.
    pub(crate) async fn perform<O: Operation>(
        &self,
        permit: Permit<O>,
        payload: Bytes,
        most: Option<usize>,
    ) -> Result<(O::Output, Bytes)> {
        let result = self.send(&permit, payload, most).await;
        permit.finish(result, |(answer, payload)| Effect {
            bytes: O::bytes(answer, payload.len() as u64),
            ..Effect::default()
        })
    }

    /// Sends a request that is permitted, and collects the answer.
    pub(crate) async fn send<O: Operation>(
        &self,
        permit: &Permit<O>,
        payload: Bytes,
        most: Option<usize>,
    ) -> Result<(O::Output, Bytes)> {
        let purpose =
            if payload.len() as u64 > podbay_proto::session::BULK_FROM { Purpose::Bulk } else { Purpose::Shared };
        let id = O::MUTATES.then(request_id);
        self.retry(O::NAME, O::MUTATES, purpose, |connection| {
            let (id, payload) = (id.as_deref(), payload.clone());
            async move { connection.ask(permit, id, payload).await?.collect(most).await }
        })
        .await
    }

    /// Sends a request that is permitted, and whose answer's payload is then streamed. Reading it isn't retried here.
    pub(crate) async fn open<O: Operation>(&self, permit: &Permit<O>, purpose: Purpose) -> Result<Answer<O::Output>> {
        self.retry(
            O::NAME,
            false,
            purpose,
            |connection| async move { connection.ask(permit, None, Bytes::new()).await },
        )
        .await
    }

    /// Tries until it succeeds or fails for good. With `once`, never at another podbayd than the first: that one doesn't
    /// know what the first has done.
    pub(crate) async fn retry<T, F>(
        &self,
        what: &'static str,
        once: bool,
        purpose: Purpose,
        mut attempt: impl FnMut(Connection) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut patience = self.patience(what);
        let mut asked: Option<String> = None;
        loop {
            let failure = match self.connection(purpose).await {
                Ok(connection) => {
                    let instance = connection.welcome.instance.clone();
                    if once && asked.as_ref().is_some_and(|asked| *asked != instance) {
                        return Err(Error::SandboxRestarted { what });
                    }
                    asked = Some(instance);
                    let begun = Instant::now();
                    match attempt(connection).await {
                        Ok(value) => return Ok(value),
                        Err(failure) => {
                            patience.was_served_since(begun);
                            failure
                        }
                    }
                }
                Err(failure) => failure,
            };
            patience.after(failure).await?;
        }
    }
}

/// How long an operation keeps trying.
pub(crate) struct Patience {
    what: &'static str,
    until: Instant,
    pause: Duration,
}

impl Patience {
    /// Leaves out of account the time in which a connection was there: a request may take long, and if the connection breaks
    /// then there is as much patience as at its beginning. Pauses are always counted, so this comes to an end.
    pub(crate) fn was_served_since(&mut self, begun: Instant) {
        self.until += begun.elapsed();
    }

    /// Waits a little after a failure.
    ///
    /// # Errors
    /// The failure, when it is final or the time is over.
    pub(crate) async fn after(&mut self, failure: Failure) -> Result<()> {
        match failure {
            Failure::Final(error) => Err(error),
            Failure::Broken(reason) if Instant::now() + self.pause > self.until => {
                Err(Error::Unreachable { what: self.what, reason })
            }
            Failure::Broken(reason) => {
                tracing::debug!(what = self.what, reason, "trying again");
                tokio::time::sleep(jittered(self.pause)).await;
                self.pause = (self.pause * 2).min(Duration::from_secs(1));
                Ok(())
            }
        }
    }
}

/// Half of a pause to all of it: of many clients whose connections broke at once, not all come back at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..1.0))
}

/// A name that no other request has.
pub(crate) fn request_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every client of a restarted API server came back after exactly 5, 10, 20 … ms.
    #[test]
    fn pauses_are_spread_and_never_longer_than_said() {
        let pause = Duration::from_secs(1);
        let all: Vec<_> = (0..100).map(|_| jittered(pause)).collect();
        assert!(all.iter().all(|one| *one >= pause / 2 && *one <= pause), "{all:?}");
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!(*most - *least > pause / 4, "all between {least:?} and {most:?}");
    }
}
