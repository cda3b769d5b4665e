//! Error numbers of the kernel as errors of the protocol.

use std::io;

use podbay_proto::{Error, ErrorCode, RawPath};
use rustix::io::Errno;

/// The error for a failed system call on `path`.
pub(crate) fn error_at(path: &RawPath, error: impl Into<io::Error>) -> Error {
    let error = error.into();
    let (code, message) = describe(&error);
    match message {
        Some(message) => Error::at(code, path, message),
        None => Error::at(code, path, error),
    }
}

/// The code for an I/O error.
pub(crate) fn error_code(error: &io::Error) -> ErrorCode {
    describe(error).0
}

fn describe(error: &io::Error) -> (ErrorCode, Option<&'static str>) {
    use ErrorCode as Code;
    let Some(errno) = Errno::from_io_error(error) else {
        // cap-std reports an attempt to leave the root without an error number.
        return match error.kind() {
            io::ErrorKind::PermissionDenied => (Code::EscapesRoot, Some("is outside the root directory")),
            io::ErrorKind::InvalidInput => (Code::InvalidPath, None),
            _ => (Code::Io, None),
        };
    };
    match errno {
        Errno::NOENT => (Code::NotFound, Some("no such file or directory")),
        Errno::ACCESS | Errno::PERM => (Code::PermissionDenied, Some("permission denied for the sandbox's user")),
        Errno::ISDIR => (Code::IsDirectory, Some("is a directory, not a file")),
        Errno::NOTDIR => (Code::NotADirectory, Some("a part of the path isn't a directory")),
        Errno::EXIST => (Code::AlreadyExists, Some("already exists")),
        Errno::NOTEMPTY => (Code::NotEmpty, Some("the directory isn't empty")),
        Errno::NAMETOOLONG => (Code::InvalidPath, Some("the path, or a name in it, is too long")),
        Errno::LOOP => (Code::LinkLoop, Some("too many symbolic links: they form a loop, or change meanwhile")),
        Errno::NOSPC | Errno::DQUOT => (Code::NoSpace, Some("no space left, or a quota is exceeded")),
        Errno::FBIG => {
            (Code::TooLarge, Some("the file would exceed a size limit, or the largest file of this file system"))
        }
        Errno::ROFS => (Code::ReadOnly, Some("the file system is read-only")),
        Errno::NXIO | Errno::NODEV => (Code::NotAFile, Some("is a device, pipe or socket, not a regular file")),
        _ => (Code::Io, None),
    }
}
