//! `podbayd exchange`: hands some bytes of a client's to the running daemon and prints some of the daemon's, for clients that can
//! run single commands in a container and nothing else.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use podbay_proto::exchange::{ExchangeAnswer, ExchangeOpened, ExchangeRequest, ExchangeStatus, LARGEST_INPUT};

use crate::serve::exchange::EXCHANGE;
use crate::{socket, sys};

/// Where the client's bytes come from.
#[derive(Debug, Default)]
pub enum ExchangeInput {
    /// There are none.
    #[default]
    Nothing,
    /// From the command's own words, in base64.
    Word(String),
    /// From a file, which is removed. If it isn't there, an earlier try of the same exchange has taken it.
    File(PathBuf),
}

impl ExchangeInput {
    fn read(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Nothing => Ok(Vec::new()),
            Self::Word(text) => STANDARD.decode(text).map_err(|error| io::Error::other(error.to_string())),
            Self::File(path) => {
                let file = match std::fs::File::open(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                    file => file?,
                };
                let mut bytes = Vec::new();
                file.take(LARGEST_INPUT as u64).read_to_end(&mut bytes)?;
                // Bytes that podbayd doesn't get now are sent again, in another file.
                std::fs::remove_file(&path)?;
                Ok(bytes)
            }
        }
    }
}

/// Exchanges bytes with the running daemon, and prints its answer.
///
/// # Errors
/// When the daemon doesn't answer.
pub fn run(state: &Path, mut request: ExchangeRequest, input: ExchangeInput) -> io::Result<()> {
    // Commands run as the same user, and podbayd trusts this process.
    sys::set_undumpable();
    // Before the working directory changes.
    let data = input.read()?;
    request.length = data.len();
    let answer = match socket::connect(state) {
        Ok(socket) => ask(&socket, &request, &data)?,
        // Whatever was there has ended, and its streams with it.
        Err(_) => serde_json::to_vec(&ExchangeAnswer::only(ExchangeStatus::Gone))?,
    };
    print(&answer)
}

/// Opens a stream, and prints what later exchanges need to know.
///
/// # Errors
/// When the daemon doesn't answer.
pub fn open(socket: &UnixStream, state: &Path, session: String) -> io::Result<()> {
    let request = ExchangeRequest { session, open: true, ..ExchangeRequest::default() };
    let answer: ExchangeAnswer = serde_json::from_slice(&ask(socket, &request, &[])?)?;
    if answer.status != ExchangeStatus::Open {
        return Err(io::Error::other("podbayd doesn't open the stream"));
    }
    let text =
        |path: PathBuf| path.into_os_string().into_string().map_err(|path| io::Error::other(format!("{path:?}")));
    // The state directory is the working directory by now.
    let state = text(std::env::current_dir().or_else(|_| state.canonicalize())?)?;
    let opened = ExchangeOpened { program: text(std::env::current_exe()?)?, state };
    let mut line = serde_json::to_vec(&opened)?;
    line.push(b'\n');
    print(&line)
}

fn ask(mut socket: &UnixStream, request: &ExchangeRequest, data: &[u8]) -> io::Result<Vec<u8>> {
    let head = serde_json::to_vec(request)?;
    let length = u32::try_from(head.len()).map_err(io::Error::other)?.to_be_bytes();
    let message = [&[EXCHANGE][..], &length, &head, data].concat();
    let mut answer = Vec::new();
    let sent = socket.write_all(&message).and_then(|()| socket.read_to_end(&mut answer));
    match (sent, answer.is_empty()) {
        (Ok(_), false) => Ok(answer),
        (Err(error), _) => Err(io::Error::other(format!("podbayd closed the connection: {error}"))),
        (Ok(_), true) => Err(io::Error::other(
            "podbayd closed the connection: it refuses connections from commands in the sandbox; if this isn't one, \
             podbayd is too old for 'exchange'",
        )),
    }
}

fn print(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
