//! What there is to steal or break outside the sandboxes.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

/// The variable that holds a secret of this process.
pub(crate) const CANARY: &str = "PODBAY_CANARY";

/// Things of this machine that everybody who isn't in a sandbox can reach. They are there as long as this is.
pub(crate) struct Bait {
    pub(crate) secret: PathBuf,
    stream: (PathBuf, UnixListener),
    datagram: (PathBuf, UnixDatagram),
    hidden: (String, UnixListener),
    tcp: TcpListener,
}

/// What the secret file has in it.
const SECRET: &str = "the host's secret";

impl Bait {
    pub(crate) fn lay(scratch: &Path) -> std::io::Result<Self> {
        let secret = scratch.join("secret");
        fs::write(&secret, SECRET)?;
        let (stream, datagram) = (scratch.join("stream"), scratch.join("datagram"));
        let name = format!("podbay-bait{}", scratch.display());
        let bait = Self {
            stream: (stream.clone(), UnixListener::bind(&stream)?),
            datagram: (datagram.clone(), UnixDatagram::bind(&datagram)?),
            hidden: (name.clone(), UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?),
            tcp: TcpListener::bind("127.0.0.1:0")?,
            secret,
        };
        for path in [&bait.secret, &stream, &datagram] {
            fs::set_permissions(path, Permissions::from_mode(0o777))?;
        }
        Ok(bait)
    }

    /// What an attacker may know about it, for the programs.
    pub(crate) fn described(&self) -> String {
        serde_json::json!({
            "secret": self.secret,
            "scratch": self.secret.parent(),
            "stream": self.stream.0,
            "datagram": self.datagram.0,
            "abstract": self.hidden.0,
            "port": self.tcp.local_addr().map(|address| address.port()).unwrap_or_default(),
            "pid": std::process::id(),
            "canary": std::env::var(CANARY).unwrap_or_default(),
            "sys_resource": has_sys_resource(),
        })
        .to_string()
    }

    /// Whether everything is as it was laid.
    pub(crate) fn untouched(&self) -> Result<(), String> {
        let content = fs::read_to_string(&self.secret).unwrap_or_default();
        let mode = fs::metadata(&self.secret).map(|file| file.permissions().mode() & 0o7777).unwrap_or_default();
        match (content.as_str(), mode) {
            (SECRET, 0o777) => Ok(()),
            _ => Err(format!("the host's file was changed: mode {mode:o}, {content:?}")),
        }
    }

    /// Puts back what a control changed.
    pub(crate) fn restore(&self) -> std::io::Result<()> {
        fs::write(&self.secret, SECRET)?;
        fs::set_permissions(&self.secret, Permissions::from_mode(0o777))
    }
}

/// Whether this process has CAP_SYS_RESOURCE, and with it the supervisors of its sandboxes.
fn has_sys_resource() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim);
    held.and_then(|hex| u64::from_str_radix(hex, 16).ok()).is_some_and(|held| held >> 24 & 1 == 1)
}
