//! One byte stream: what has arrived of the client's bytes, and what the client doesn't have yet of podbayd's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use podbay_proto::exchange::{ExchangeAnswer, ExchangeRequest, ExchangeStatus, LARGEST_OUTPUT};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::waiting::Waiting;

/// A stream that nobody has used for so long is dropped. Clients ask every 20 s, and give up after 45.
pub const LIFE: Duration = Duration::from_secs(90);

/// How long bytes wait for those before them, which another request brings.
const GAP: Duration = Duration::from_secs(5);

/// How long podbayd's server may take to accept bytes.
const ACCEPT: Duration = Duration::from_secs(10);

/// A stream.
pub struct Session {
    /// Where the client's bytes go. Whoever has it writes them in their order.
    input: tokio::sync::Mutex<WriteHalf<DuplexStream>>,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// How many of the client's bytes podbayd's server has.
    received: u64,
    /// podbayd's bytes that the client hasn't acknowledged, and where they begin.
    output: VecDeque<u8>,
    acknowledged: u64,
    /// The newest request.
    newest: u64,
    used: Instant,
    /// podbayd's server sends nothing more.
    ended: bool,
    closed: bool,
}

impl State {
    /// podbayd's bytes from an offset on.
    fn output_from(&self, offset: u64, most: usize) -> Vec<u8> {
        let skipped = usize::try_from(offset.saturating_sub(self.acknowledged)).unwrap_or(usize::MAX);
        self.output.iter().skip(skipped).take(most).copied().collect()
    }

    fn end(&self) -> u64 {
        self.acknowledged + self.output.len() as u64
    }

    /// Forgets what the client has. False if it claims to have more than there is.
    fn acknowledge(&mut self, offset: u64) -> bool {
        if offset > self.end() {
            return false;
        }
        // A request that was overtaken says less than is known already.
        let count = usize::try_from(offset.saturating_sub(self.acknowledged)).unwrap_or(0);
        self.output.drain(..count);
        self.acknowledged += count as u64;
        if self.output.is_empty() {
            self.output.shrink_to(4 << 10);
        }
        true
    }
}

impl Session {
    /// A stream on one end of a connection; [`Self::keep`] needs what is returned with it.
    pub fn new(near: DuplexStream) -> (Arc<Self>, ReadHalf<DuplexStream>) {
        let (reader, writer) = tokio::io::split(near);
        let state = State {
            received: 0,
            output: VecDeque::new(),
            acknowledged: 0,
            newest: 0,
            used: Instant::now(),
            ended: false,
            closed: false,
        };
        let session = Self { input: tokio::sync::Mutex::new(writer), state: Mutex::new(state), changed: Notify::new() };
        (Arc::new(session), reader)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_waiters();
        changed
    }

    pub fn last_used(&self) -> Instant {
        self.lock().used
    }

    /// Ends it. Whoever waits is answered.
    pub fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Waits until something is the case; nothing when the time is over.
    async fn until<T>(&self, deadline: Instant, mut check: impl FnMut(&State) -> Option<T>) -> Option<T> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = check(&self.lock()) {
                return Some(found);
            }
            if timeout_at(deadline, changed).await.is_err() {
                return None;
            }
        }
    }

    /// Collects podbayd's bytes, as many as are kept, until the stream is closed or nobody uses it any more.
    pub async fn keep(&self, mut reader: ReadHalf<DuplexStream>) {
        let collect = async {
            let mut bytes = vec![0; 16 << 10];
            loop {
                let forever = Instant::now() + Duration::from_secs(1 << 30);
                self.until(forever, |state| (state.output.len() < LARGEST_OUTPUT).then_some(())).await;
                match reader.read(&mut bytes).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => self.change(|state| state.output.extend(&bytes[..count])),
                }
            }
            drop(bytes);
            self.change(|state| state.ended = true);
            std::future::pending::<()>().await;
        };
        let over = async {
            loop {
                let deadline = self.last_used() + LIFE;
                let closed = self.until(deadline, |state| state.closed.then_some(())).await;
                if closed.is_some() || self.last_used() + LIFE <= Instant::now() {
                    return;
                }
            }
        };
        tokio::select! {
            () = collect => {}
            () = over => {}
        }
        self.close();
        // The server's end of the connection ends too.
        let _ = self.input.lock().await.shutdown().await;
    }

    /// Takes the client's bytes, each once, and gives what it doesn't have yet of podbayd's.
    pub async fn exchange(&self, request: &ExchangeRequest, data: &[u8], waiting: &Waiting) -> ExchangeAnswer {
        // From the beginning: routers wait for an answer only so long.
        let deadline = Instant::now() + Duration::from_millis(request.wait_ms);
        let sound = self.change(|state| {
            state.used = Instant::now();
            state.newest = state.newest.max(request.number);
            !state.closed && state.acknowledge(request.acknowledged)
        });
        if !sound {
            self.close();
            return ExchangeAnswer::only(ExchangeStatus::Gone);
        }
        self.take(request.offset, data).await;
        let turn = waiting.begin();
        let status = tokio::select! {
            biased;
            status = self.until(deadline, |state| ready(state, request)) => status.unwrap_or(ExchangeStatus::Open),
            () = turn.over() => ExchangeStatus::Busy,
        };
        drop(turn);
        self.change(|state| state.used = Instant::now());
        self.answer(status, request)
    }

    fn answer(&self, status: ExchangeStatus, request: &ExchangeRequest) -> ExchangeAnswer {
        let state = self.lock();
        if state.closed && !request.close {
            return ExchangeAnswer::only(ExchangeStatus::Gone);
        }
        let offset = request.acknowledged.max(state.acknowledged);
        let data = state.output_from(offset, request.most);
        // What is left has to be asked for.
        let all = offset + data.len() as u64 == state.end();
        let status = if status == ExchangeStatus::Ended && !all { ExchangeStatus::Open } else { status };
        ExchangeAnswer { status, received: state.received, offset, data: STANDARD.encode(data) }
    }

    /// Hands the client's bytes to podbayd's server, except for those that it has. What it doesn't accept in time, the client sends
    /// again.
    async fn take(&self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let arrived = |state: &State| (state.received >= offset || state.closed).then_some(());
        if self.until(Instant::now() + GAP, arrived).await.is_none() {
            return;
        }
        let deadline = Instant::now() + ACCEPT;
        // A server that can't get rid of its answers may stop reading. Then the client has to take some of them first.
        let stuck = |state: &State| (state.output.len() >= LARGEST_OUTPUT || state.closed).then_some(());
        let Ok(mut input) = timeout_at(deadline, self.input.lock()).await else { return };
        loop {
            let had = self.lock().received.saturating_sub(offset);
            let Some(rest) = usize::try_from(had).ok().and_then(|had| data.get(had..)).filter(|rest| !rest.is_empty())
            else {
                return;
            };
            let written = tokio::select! {
                biased;
                written = input.write(rest) => written,
                _ = self.until(deadline, stuck) => return,
            };
            match written {
                Ok(0) | Err(_) => return,
                Ok(count) => self.change(|state| state.received += count as u64),
            }
        }
    }
}

/// Whether a request can be answered.
fn ready(state: &State, request: &ExchangeRequest) -> Option<ExchangeStatus> {
    let has_output = request.most > 0 && state.end() > request.acknowledged.max(state.acknowledged);
    match () {
        () if state.closed => Some(ExchangeStatus::Gone),
        () if state.ended => Some(ExchangeStatus::Ended),
        () if has_output || request.most == 0 || request.close || state.newest > request.number => {
            Some(ExchangeStatus::Open)
        }
        () => None,
    }
}
