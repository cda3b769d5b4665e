//! A byte stream to podbayd, carried by commands that the stock runtime runs: each hands some bytes over and prints some.
//!
//! Both sides count bytes, so a request whose answer got lost is sent again without effect. A request waits in the pod for podbayd's
//! next bytes, and is answered at once when there is a newer one: so what this client sends needn't wait, and the answer
//! usually comes back with the request that asked. At most two are under way, as the runtime has few threads for commands.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Buf;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use podbay_proto::exchange::{ExchangeAnswer, ExchangeOpened, ExchangeStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::api::{ApiFailure, Executed, RuntimeApi};
use super::windows::{Incoming, Outgoing, Piece};

/// How long a request waits in the pod. The Go router gives up after half a minute.
const WAIT: Duration = Duration::from_secs(20);

/// Whoever got bytes often sends some at once, which is as good as asking for more: so that much later.
const LINGER: Duration = Duration::from_millis(5);

/// How long a request is sent again. podbayd keeps a stream for a minute and a half.
const GIVE_UP: Duration = Duration::from_secs(45);

/// The pauses between.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long the end of a stream may take to be told.
const FAREWELL: Duration = Duration::from_secs(5);

/// What is larger goes by a file: the runtime splits commands into words a character at a time, in Python.
const LARGEST_WORD: usize = 4 << 10;

/// How many requests are under way at most.
const UNDER_WAY: usize = 2;

/// How many bytes wait between this and whoever uses the stream.
const BETWEEN: usize = 256 << 10;

/// A name for a stream, which nobody can guess.
pub(super) fn random_session() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// A stream that podbayd has opened.
pub(super) struct Exchange<A> {
    api: Arc<A>,
    opened: ExchangeOpened,
    session: String,
}

/// What is asked.
struct Request {
    number: u64,
    piece: Piece,
    acknowledged: u64,
    most: usize,
    wait: Duration,
    close: bool,
}

/// What came back.
struct Reply {
    request: Request,
    status: ExchangeStatus,
    received: u64,
    offset: u64,
    data: Vec<u8>,
}

impl<A: RuntimeApi> Exchange<A> {
    pub(super) fn new(api: Arc<A>, opened: ExchangeOpened, session: String) -> Self {
        Self { api, opened, session }
    }

    /// The stream's near end. It ends when the stream does.
    pub(super) fn connect(self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(BETWEEN);
        tokio::spawn(async move {
            if let Err(why) = self.carry(far).await {
                // Whoever uses it finds out that it has ended, and opens another one.
                tracing::debug!(why, "a stream over the stock runtime's API ended");
            }
        });
        near
    }

    /// Carries bytes until either side ends the stream.
    async fn carry(&self, far: DuplexStream) -> Result<(), String> {
        let (mut reader, mut writer) = tokio::io::split(far);
        let (mut outgoing, mut incoming) = (Outgoing::default(), Incoming::default());
        let mut under_way = FuturesUnordered::new();
        let mut number = 0;
        let mut read = vec![0; 64 << 10];
        let (mut ended, mut ask_at, mut pause) = (false, Instant::now(), Duration::ZERO);
        loop {
            if ended && incoming.unread.is_empty() {
                return Ok(());
            }
            let may_ask = !ended && under_way.is_empty() && incoming.room() > 0;
            let has_unsent = !ended && outgoing.has_unsent() && under_way.len() < UNDER_WAY;
            if has_unsent || may_ask && ask_at <= Instant::now() {
                number += 1;
                under_way.push(self.ask(Request {
                    number,
                    piece: outgoing.next(),
                    acknowledged: incoming.received(),
                    most: incoming.room(),
                    wait: WAIT,
                    close: false,
                }));
                continue;
            }
            tokio::select! {
                Some(reply) = under_way.next() => {
                    let Reply { request, status, received, offset, data } = reply?;
                    match status {
                        ExchangeStatus::Gone => return Err("podbayd no longer knows the stream".into()),
                        ExchangeStatus::Ended => ended = true,
                        ExchangeStatus::Open | ExchangeStatus::Busy => {}
                    }
                    outgoing.acknowledge(&request.piece, received).map_err(|error| error.to_string())?;
                    incoming.accept(offset, &data).map_err(|error| error.to_string())?;
                    pause = match status {
                        ExchangeStatus::Busy => (pause * 2).clamp(PAUSE, LONGEST_PAUSE),
                        _ => Duration::ZERO,
                    };
                    // There may be more at once.
                    let linger = if data.is_empty() || data.len() == request.most { Duration::ZERO } else { LINGER };
                    ask_at = Instant::now() + pause.max(linger);
                }
                count = reader.read(&mut read), if outgoing.room() > 0 => match count {
                    Ok(0) | Err(_) => {
                        drop(under_way);
                        self.close(outgoing, number + 1).await;
                        return Ok(());
                    }
                    Ok(count) => outgoing.push(&read[..count]),
                },
                count = writer.write(&incoming.unread), if !incoming.unread.is_empty() => match count {
                    Ok(count) => incoming.unread.advance(count),
                    // It shows at the other end too.
                    Err(error) => return Err(error.to_string()),
                },
                () = sleep_until(ask_at), if may_ask => {}
            }
        }
    }

    /// Tells podbayd that nobody uses the stream any more, with what wasn't sent yet. It would find out by itself.
    async fn close(&self, mut outgoing: Outgoing, number: u64) {
        outgoing.send_again();
        let piece = outgoing.next();
        let request = Request { number, piece, acknowledged: 0, most: 0, wait: Duration::ZERO, close: true };
        if !matches!(timeout(FAREWELL, self.ask_once(&request)).await, Ok(Ok(_))) {
            tracing::debug!("can't tell podbayd that a stream has ended");
        }
    }

    /// Asks until there is an answer.
    async fn ask(&self, request: Request) -> Result<Reply, String> {
        let (begun, mut pause) = (Instant::now(), PAUSE);
        let answer = loop {
            match self.ask_once(&request).await {
                Ok(answer) => break answer,
                Err(ApiFailure::Unavailable(why)) if begun.elapsed() < GIVE_UP => {
                    tracing::debug!(why, "resending a piece of a stream");
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(failure) => return Err(failure.to_string()),
            }
        };
        let ExchangeAnswer { status, received, offset, data } = answer;
        // What is too long was never asked for.
        let data = STANDARD.decode(data).ok().filter(|data| data.len() <= request.most);
        let data = data.ok_or("the pod's answer can't be read")?;
        Ok(Reply { request, status, received, offset, data })
    }

    async fn ask_once(&self, request: &Request) -> Result<ExchangeAnswer, ApiFailure> {
        let Piece { offset, data } = &request.piece;
        let mut words = vec![self.opened.program.clone(), "exchange".into()];
        let flags: [(&str, &dyn ToString); 7] = [
            ("--state", &self.opened.state),
            ("--session", &self.session),
            ("--number", &request.number),
            ("--offset", offset),
            ("--acknowledged", &request.acknowledged),
            ("--most", &request.most),
            ("--wait", &request.wait.as_millis()),
        ];
        words.extend(flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value.to_string()]));
        if request.close {
            words.push("--close".into());
        }
        if data.len() > LARGEST_WORD {
            // The same name again for the same bytes: nothing is left behind.
            let name = format!(".podbay-{}-{}", self.session, request.number);
            self.api.upload(&name, data.clone()).await?;
            words.extend(["--from".into(), name]);
        } else if !data.is_empty() {
            words.extend(["--data".into(), STANDARD.encode(data)]);
        }
        parse(&self.api.execute(&words).await?)
    }
}

/// The answer in what a command printed.
fn parse(executed: &Executed) -> Result<ExchangeAnswer, ApiFailure> {
    let answer = executed.stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
    answer.ok_or_else(|| {
        let said: String = executed.stderr.trim().chars().take(300).collect();
        ApiFailure::Refused(format!("podbayd exchange ended with {}: {said}", executed.exit_code))
    })
}
