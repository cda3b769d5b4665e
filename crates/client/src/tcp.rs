//! The beginning of a TCP connection to podbayd: the client shows its token, and podbayd accepts or refuses it.

use std::io;

use podbay_proto::session::{TCP_PATH, TOKEN, UPGRADE};
use podbay_proto::{Error, ErrorCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The most bytes of an answer that are read. Anybody may be at the other end.
const LARGEST_ANSWER: u64 = 8 << 10;

/// Why a connection can't be used.
#[derive(Debug)]
pub enum UpgradeFailure {
    /// It broke, or whoever answers isn't podbayd.
    Broken(io::Error),
    /// podbayd refuses the token.
    Refused(Error),
}

impl From<io::Error> for UpgradeFailure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Shows the token on a connection that was just opened. After that, the stream is the same as over any other channel.
///
/// # Errors
/// When podbayd refuses the token, or the other end doesn't answer as podbayd does. There is no time limit.
pub async fn upgrade(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), token: &str) -> Result<(), UpgradeFailure> {
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(UpgradeFailure::Refused(Error::new(
            ErrorCode::Unauthorized,
            "the token can't be sent in a header",
        )));
    }
    let request = format!(
        "GET {TCP_PATH} HTTP/1.1\r\nHost: podbayd\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE}\r\n{TOKEN}: {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::with_capacity(256);
    let mut limited = (&mut *stream).take(LARGEST_ANSWER);
    let head = loop {
        if let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if limited.read_buf(&mut answer).await? == 0 {
            return Err(not_podbayd());
        }
    };
    if answer.starts_with(b"HTTP/1.1 101 ") {
        // podbayd waits for this side to speak first.
        return if head == answer.len() { Ok(()) } else { Err(not_podbayd()) };
    }
    if !answer.starts_with(b"HTTP/1.1 4") {
        return Err(not_podbayd());
    }
    // podbayd closes the connection after it.
    limited.read_to_end(&mut answer).await?;
    match serde_json::from_slice::<Error>(&answer[head..]) {
        Ok(error) if error.code == ErrorCode::Unauthorized => Err(UpgradeFailure::Refused(error)),
        _ => Err(not_podbayd()),
    }
}

fn not_podbayd() -> UpgradeFailure {
    let message = "the server at that address isn't podbayd, or is an incompatible version of it";
    UpgradeFailure::Broken(io::Error::new(io::ErrorKind::InvalidData, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn against(answer: &[u8]) -> Result<(), UpgradeFailure> {
        let (mut near, mut far) = tokio::io::duplex(64 << 10);
        far.write_all(answer).await.unwrap();
        far.shutdown().await.unwrap();
        upgrade(&mut near, "token").await
    }

    #[tokio::test]
    async fn podbayd_accepts_or_refuses() {
        against(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: podbay\r\n\r\n").await.unwrap();
        let refusal =
            b"HTTP/1.1 401 Unauthorized\r\n\r\n{\"code\":\"unauthorized\",\"message\":\"the token has expired\"}";
        match against(refusal).await {
            Err(UpgradeFailure::Refused(error)) => assert_eq!(error.message, "the token has expired"),
            other => panic!("{other:?}"),
        }
    }

    /// Anything may listen at the address of a pod.
    #[tokio::test]
    async fn nobody_else_is_taken_for_podbayd() {
        let endless = vec![b'x'; 32 << 10];
        for answer in [
            &b""[..],
            b"\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\nhello",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\nmore",
            b"HTTP/1.1 401 Unauthorized\r\n\r\nnot json",
            b"HTTP/1.1 401 Unauthorized\r\n\r\n{\"code\":\"internal\",\"message\":\"\"}",
            b"SSH-2.0-OpenSSH_9.9\r\n",
            &endless,
        ] {
            assert!(matches!(against(answer).await, Err(UpgradeFailure::Broken(_))));
        }
        // Nor can a token smuggle in a header of its own.
        let (mut near, _far) = tokio::io::duplex(64);
        assert!(matches!(upgrade(&mut near, "a\r\nb: c").await, Err(UpgradeFailure::Refused(_))));
    }
}
