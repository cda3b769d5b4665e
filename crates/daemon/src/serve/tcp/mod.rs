//! podbayd on TCP, for clients outside of its pod.
//!
//! Whoever connects is a stranger until it has shown a token for this very container. Until then it gets a few kilobytes and
//! a few seconds, and no HTTP/2. After that every request carries a token too, so that a connection isn't valid for longer
//! than its client.

mod authorization;
mod listening;
mod strangers;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use podbay_proto::session::{TCP_PATH, TOKEN, UPGRADE};
use podbay_proto::token::TokenError;
use podbay_proto::{Error, ErrorCode, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::websocket::{WebSocketStream, accept_key};
use super::{Daemon, connection, pause};
use authorization::{TokenCheck, refused};
use strangers::{evict, is_local};

pub use authorization::Authorization;
pub(super) use listening::bind;
pub use listening::{Keys, Listening};

/// How many strangers are listened to at the same time. One more, and the one who has been there longest has to go: whoever
/// has a token shows it at once.
const STRANGERS: usize = 64;

/// How many connections are served at the same time. Each client has two; podbayd needs its descriptors for other things too.
const MOST_CONNECTIONS: usize = 128;

/// What an HTTP/2 connection begins with: the preface, and the head of a SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;

/// How long a stranger has for its token, and a client for the first byte after that.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes of a stranger that are read. A token has at most 2 KiB, and routers add headers.
const LARGEST_HEAD: usize = 8 << 10;

/// Begins to listen.
///
/// # Errors
/// When a required address can't be bound.
pub(super) async fn listen(daemon: &Arc<Daemon>, listening: Listening) -> io::Result<()> {
    let Listening { addresses, required, keys, identity, allow_local } = listening;
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let check = Arc::new(TokenCheck { keys, identity, allow_local, failed: AtomicBool::new(false), room });
    for listener in bind(addresses, required).await? {
        tokio::spawn(accept(daemon.clone(), listener, check.clone()));
    }
    Ok(())
}

async fn accept(daemon: Arc<Daemon>, listener: TcpListener, check: Arc<TokenCheck>) {
    let mut strangers: VecDeque<(IpAddr, AbortHandle)> = VecDeque::with_capacity(STRANGERS);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if strangers.len() == STRANGERS {
                    strangers.retain(|(_, task)| !task.is_finished());
                }
                if strangers.len() == STRANGERS {
                    evict(&mut strangers);
                }
                let task = tokio::spawn(meet(daemon.clone(), check.clone(), stream, peer));
                strangers.push_back((peer.ip(), task.abort_handle()));
            }
            Err(_) => pause().await,
        }
    }
}

/// Hears a stranger, and serves it in a task of its own once it has shown its token.
async fn meet(daemon: Arc<Daemon>, check: Arc<TokenCheck>, mut stream: TcpStream, peer: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let heard = timeout(PATIENCE, hear(&check, &mut stream, peer)).await;
    let Ok(Ok(Some(admitted))) = heard else { return };
    let Ok(room) = check.room.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        let _room = room;
        match admitted.websocket {
            // Buffered, because the head of a frame is read in pieces.
            Some(_) => serve(daemon, WebSocketStream::new(BufReader::new(stream)), admitted.authorization).await,
            None => serve(daemon, stream, admitted.authorization).await,
        }
    });
}

async fn serve<S>(daemon: Arc<Daemon>, mut stream: S, authorization: Authorization) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (first, begun) = timeout(PATIENCE, begin(&mut stream)).await??;
    connection::serve(daemon, first, begun, Box::new(stream), Some(Arc::new(authorization))).await
}

/// Reads what every HTTP/2 connection begins with, so that nobody is served who stays silent. Returns the first byte, which says
/// what the connection is for, and the others.
async fn begin(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let first = stream.read_u8().await?;
    let missing = if first == PREFACE[0] { 1 } else { 0 };
    let mut begun = vec![0; PREFACE.len() + FRAME_HEAD - missing];
    stream.read_exact(&mut begun).await?;
    match begun.starts_with(&PREFACE[missing..]) {
        true => Ok((first, begun)),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

async fn hear(check: &Arc<TokenCheck>, stream: &mut TcpStream, peer: SocketAddr) -> io::Result<Option<Admitted>> {
    // A command that got hold of a token would be a client, and could read what other commands recorded.
    let from_inside = !check.allow_local && is_local(peer);
    let admitted = match read_head(stream).await? {
        _ if from_inside => Err(Error::new(ErrorCode::Unauthorized, "podbayd accepts no connections from its own pod")),
        Some(head) => admit(check, &head),
        None => Err(Error::new(ErrorCode::BadMessage, "this isn't a request to podbayd")),
    };
    match admitted {
        Ok(admitted) => {
            let upgrade = match &admitted.websocket {
                Some(key) => format!("websocket\r\nSec-WebSocket-Accept: {}", accept_key(key)),
                None => UPGRADE.to_owned(),
            };
            let answer =
                format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n");
            stream.write_all(answer.as_bytes()).await?;
            Ok(Some(admitted))
        }
        Err(error) => {
            let status = match error.code {
                ErrorCode::Unauthorized => "401 Unauthorized",
                _ => "400 Bad Request",
            };
            let body = serde_json::to_string(&error)?;
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await?;
            Ok(None)
        }
    }
}

/// The head of a request, without the empty line; nothing if that doesn't come, or anything comes after it.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let mut head = Vec::with_capacity(1 << 10);
    let mut limited = stream.take(LARGEST_HEAD as u64);
    while !head.ends_with(b"\r\n\r\n") {
        if limited.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    head.truncate(head.len() - 4);
    Ok(String::from_utf8(head).ok())
}

/// A client that has shown its token.
struct Admitted {
    authorization: Authorization,
    /// The key of a client that asks for a WebSocket, as those behind a router do.
    websocket: Option<String>,
}

fn admit(check: &Arc<TokenCheck>, head: &str) -> Result<Admitted> {
    let bad = |message: &str| Error::new(ErrorCode::BadMessage, message);
    let mut lines = head.split("\r\n");
    let mut request = lines.next().unwrap_or_default().split(' ');
    if (request.next(), request.next(), request.next()) != (Some("GET"), Some(TCP_PATH), Some("HTTP/1.1")) {
        return Err(bad("this isn't a request to podbayd"));
    }
    let (mut shown, mut upgrade, mut key) = (None, None, None);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| bad("a header is malformed"))?;
        let place = match name {
            name if name.eq_ignore_ascii_case(TOKEN) => &mut shown,
            name if name.eq_ignore_ascii_case("upgrade") => &mut upgrade,
            name if name.eq_ignore_ascii_case("sec-websocket-key") => &mut key,
            _ => continue,
        };
        if place.replace(value.trim()).is_some() {
            return Err(bad("a header occurs twice"));
        }
    }
    let shown = shown.ok_or_else(|| refused(TokenError::Missing))?;
    let claims = check.verify(shown).map_err(refused)?;
    // Only for those who may know what podbayd speaks.
    let websocket = match upgrade {
        Some(UPGRADE) => None,
        Some(name) if name.eq_ignore_ascii_case("websocket") => {
            Some(key.ok_or_else(|| bad("a WebSocket needs a key"))?.to_owned())
        }
        _ => return Err(bad("this podbayd doesn't support that upgrade")),
    };
    let authorization = Authorization { check: check.clone(), last: Mutex::new((shown.to_owned(), claims)) };
    Ok(Admitted { authorization, websocket })
}

#[cfg(test)]
mod tests {
    use super::authorization::now;
    use super::*;
    use podbay_proto::token::{Claims, Identity, PrivateKey};

    fn check() -> Arc<TokenCheck> {
        let identity = Identity {
            namespace: "agents".into(),
            uid: "u-1".into(),
            container: "sandbox".into(),
            ..Identity::default()
        };
        let keys = Keys::Fixed(vec![PrivateKey::from_seed([1; 32]).public()]);
        let room = Arc::new(Semaphore::new(1));
        Arc::new(TokenCheck { keys, identity, allow_local: false, failed: AtomicBool::new(false), room })
    }

    fn token(uid: &str, expires: u64) -> String {
        PrivateKey::from_seed([1; 32]).sign(&Claims {
            namespace: "agents".into(),
            sandbox: "pb-1".into(),
            pod: "pb-1-x".into(),
            uid: uid.into(),
            container: "sandbox".into(),
            expires,
        })
    }

    #[test]
    fn only_a_token_for_this_container_is_admitted() {
        let head =
            |token: &str| format!("GET {TCP_PATH} HTTP/1.1\r\nHost: x\r\nupgrade: podbay\r\nX-Podbay-Token: {token}");
        let good = token("u-1", now() + 60);
        admit(&check(), &head(&good)).unwrap();
        let code = |head: &str| admit(&check(), head).err().unwrap().code;
        for wrong in
            [token("u-2", now() + 60), token("u-1", now() - 1), String::new(), good[..good.len() - 1].to_owned()]
        {
            assert_eq!(code(&head(&wrong)), ErrorCode::Unauthorized, "{wrong}");
        }
        assert_eq!(code(&format!("GET {TCP_PATH} HTTP/1.1\r\nUpgrade: podbay")), ErrorCode::Unauthorized);
        for bad in [
            String::new(),
            "GET / HTTP/1.1".into(),
            format!("POST {TCP_PATH} HTTP/1.1"),
            format!("GET {TCP_PATH} HTTP/1.1\r\nno colon"),
            format!("{}\r\nX-Podbay-Token: {good}", head(&good)),
            head(&good).replace("podbay\r\n", "websocket\r\n"),
        ] {
            assert_eq!(code(&bad), ErrorCode::BadMessage, "{bad}");
        }
    }

    /// A connection must not outlive the right to it.
    #[test]
    fn every_request_is_checked_again() {
        let check = check();
        let old = token("u-1", now() - 1);
        let claims = Claims { expires: now() - 1, ..check.verify(&token("u-1", now() + 60)).unwrap() };
        let authorization = Authorization { check, last: Mutex::new((old.clone(), claims)) };
        assert_eq!(authorization.check(Some(&old)).unwrap_err().message, TokenError::Expired.to_string());
        authorization.check(Some(&token("u-1", now() + 60))).unwrap();
        assert_eq!(authorization.check(Some(&old)).unwrap_err().code, ErrorCode::Unauthorized);
        for wrong in [None, Some(""), Some("v1.e30.AA")] {
            assert_eq!(authorization.check(wrong).unwrap_err().code, ErrorCode::Unauthorized);
        }
    }

    #[test]
    fn keys_in_a_file_can_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let keys = Keys::File(path.clone());
        assert!(keys.read().unwrap_err().contains("keys"));
        for seed in [1, 2] {
            let public = PrivateKey::from_seed([seed; 32]).public();
            std::fs::write(&path, format!("{public}\n")).unwrap();
            assert_eq!(keys.read().unwrap(), [public]);
        }
        std::fs::write(&path, PrivateKey::from_seed([1; 32]).secret_text()).unwrap();
        assert!(keys.read().unwrap_err().contains("private key"));
    }

    #[test]
    fn a_port_or_an_address_says_where_to_listen() {
        assert_eq!(Listening::addresses("7777").unwrap().len(), 2);
        assert_eq!(Listening::addresses("[::1]:80").unwrap(), ["[::1]:80".parse().unwrap()]);
        for bad in ["", "70000", "localhost:80", "1.2.3.4"] {
            assert!(Listening::addresses(bad).is_err(), "{bad}");
        }
    }
}
