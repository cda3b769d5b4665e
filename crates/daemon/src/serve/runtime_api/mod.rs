//! The API of agent-sandbox's stock Python runtime, so that upstream's own SDKs can use a sandbox whose runtime is podbayd.
//!
//! That API has no authentication: whoever reaches the port is served. podbayd therefore serves it only when asked to, and gives
//! nobody more than it has to: files below one directory, without podbayd's own, and commands that are confined like all others.
//! No stranger can take so many connections, threads, descriptors or bytes of memory that podbayd can't serve its clients.
//!
//! Answers are those of upstream's `examples/python-runtime-sandbox/main.py` of v1.0.3, and of the FastAPI below it, with the
//! fields `timeout_seconds` and `timed_out` of newer clients.

mod answer;
mod arriving;
mod base_dir;
mod execute;
mod files;
mod multipart;
mod shell_words;
mod text;
mod unsent;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::answer::Answer;
use self::base_dir::BaseDir;
use self::unsent::UnsentLimit;
use super::tcp::bind;
use super::{Daemon, pause};
use crate::stderr_log::log_error;

type Request = http::Request<Incoming>;

/// The stock runtime's variable for the directory that it serves.
const BASE_DIR: &str = "SANDBOX_BASE_DIR";

/// The stock runtime's variable for the time limit of commands, in seconds, and its default.
const EXEC_TIMEOUT: &str = "SANDBOX_EXEC_TIMEOUT_SECONDS";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// How many connections are served at the same time. Others wait in the kernel.
const MOST_CONNECTIONS: usize = 64;

/// How many commands run at the same time, as in the stock runtime on a large machine.
const MOST_COMMANDS: usize = 32;

/// How many lists of directories are made or sent at the same time.
const MOST_LISTS: usize = 4;

/// How long a client has for the head of its next request.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);

/// How much of a connection is buffered, and so the largest head of a request.
const BUFFER: usize = 128 << 10;

/// Where and how to serve the API.
#[derive(Debug)]
pub struct RuntimeOptions {
    /// Where to listen, tried in this order.
    pub addresses: Vec<SocketAddr>,
    /// Whether podbayd fails if it can't listen on all of them. Otherwise one is enough, or none.
    pub required: bool,
    /// The directory for files and commands; the sandbox's working directory by default.
    pub base_dir: Option<PathBuf>,
    /// The time limit of commands whose request names none.
    pub timeout: Duration,
}

impl RuntimeOptions {
    /// On these addresses, with everything else from the stock runtime's environment variables.
    pub fn from_environment(addresses: Vec<SocketAddr>, required: bool) -> Self {
        let variable = |name: &str| {
            let value = std::env::var(name).unwrap_or_default().trim().to_owned();
            Some(value).filter(|value| !value.is_empty())
        };
        let timeout = variable(EXEC_TIMEOUT).map_or(DEFAULT_TIMEOUT, |text| {
            text.parse().ok().and_then(execute::timeout).unwrap_or_else(|| {
                log_error(format_args!("{EXEC_TIMEOUT} is {text:?}, which isn't a number above 0: using 300"));
                DEFAULT_TIMEOUT
            })
        });
        Self { addresses, required, base_dir: variable(BASE_DIR).map(PathBuf::from), timeout }
    }
}

/// The API, for all its connections.
struct RuntimeApi {
    daemon: Arc<Daemon>,
    base: BaseDir,
    timeout: Duration,
    connections: Arc<Semaphore>,
    commands: Arc<Semaphore>,
    lists: Arc<Semaphore>,
}

/// Begins to serve the API.
///
/// # Errors
/// When a required address can't be bound.
pub(super) async fn listen(
    daemon: &Arc<Daemon>,
    state: &Path,
    workdir: &Path,
    options: RuntimeOptions,
) -> io::Result<()> {
    let base = options.base_dir.unwrap_or_else(|| workdir.to_owned());
    let api = Arc::new(RuntimeApi {
        daemon: daemon.clone(),
        base: BaseDir::new(base, state),
        timeout: options.timeout,
        connections: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
        commands: Arc::new(Semaphore::new(MOST_COMMANDS)),
        lists: Arc::new(Semaphore::new(MOST_LISTS)),
    });
    for listener in bind(options.addresses, options.required).await? {
        tokio::spawn(accept(api.clone(), listener));
    }
    Ok(())
}

async fn accept(api: Arc<RuntimeApi>, listener: TcpListener) {
    while let Ok(room) = api.connections.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(api.clone(), stream, room))),
            Err(_) => pause().await,
        }
    }
}

async fn serve(api: Arc<RuntimeApi>, stream: TcpStream, _room: OwnedSemaphorePermit) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let api = api.clone();
        async move { Ok::<_, Infallible>(respond(api, request).await) }
    });
    // A connection that breaks concerns nobody else.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(UnsentLimit::new(stream)), service)
        .await;
}

async fn respond(api: Arc<RuntimeApi>, request: Request) -> Answer {
    let path = percent_decoded(request.uri().path().as_bytes());
    let method = request.method().clone();
    if path == b"/" {
        // A probe asks every second, which isn't activity.
        return match method {
            Method::GET => {
                answer::json(StatusCode::OK, &json!({"status": "ok", "message": "Sandbox Runtime is active."}))
            }
            _ => answer::wrong_method("GET"),
        };
    }
    let daemon = api.daemon.clone();
    let _activity = daemon.activity.begin();
    match (&path[..], &method) {
        (b"/execute", &Method::POST) => return execute::execute(api, request).await,
        (b"/upload", &Method::POST) => return files::upload(api, request).await,
        (b"/execute" | b"/upload", _) => return answer::wrong_method("POST"),
        _ => {}
    }
    for (prefix, kind) in [("/download/", Of::Download), ("/list/", Of::List), ("/exists/", Of::Exists)] {
        let Some(file) = path.strip_prefix(prefix.as_bytes()) else { continue };
        if method != Method::GET {
            return answer::wrong_method("GET");
        }
        // The stock runtime decodes twice, and clients have come to rely on it.
        let file = percent_decoded(file);
        return match kind {
            Of::Download => files::download(api, file).await,
            Of::List => files::list(api, file).await,
            Of::Exists => files::exists(api, file).await,
        };
    }
    answer::detail(StatusCode::NOT_FOUND, "Not Found")
}

/// What a request wants of a file.
enum Of {
    Download,
    List,
    Exists,
}

/// Decodes `%20` and the like. What isn't valid stays as it is.
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|value| value as u8);
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let pair = match (first, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match pair {
            Some((high, low)) => {
                decoded.push(high << 4 | low);
                rest = &after[2..];
            }
            None => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_everything_else_is_left() {
        for (text, decoded) in [
            ("", &b""[..]),
            ("a%20b", b"a b"),
            ("%2F%2f%C3%BC", "//ü".as_bytes()),
            ("%", b"%"),
            ("%2", b"%2"),
            ("%zz%+1", b"%zz%+1"),
            ("%%41", b"%A"),
            ("%2541", b"%41"),
            ("%ff%00", b"\xff\0"),
        ] {
            assert_eq!(percent_decoded(text.as_bytes()), decoded, "{text}");
        }
    }
}
