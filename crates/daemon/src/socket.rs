//! The running daemon's socket, as other processes of podbayd's reach it.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use podbay_proto::layout::SOCKET;

/// Connects to the daemon of a state directory, which becomes this process's working directory: a socket's address has room for 107
/// bytes, so the path has to be relative.
pub(crate) fn connect(state: &Path) -> io::Result<UnixStream> {
    std::env::set_current_dir(state)?;
    UnixStream::connect(SOCKET)
}
