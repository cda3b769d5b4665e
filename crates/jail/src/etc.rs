//! `/etc` inside: the host's files that the loader, TLS and locales need, and users and names of the jail's own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{FailedStep, Step};
use crate::host_mounts::HostMounts;
use crate::jail::{INSIDE_GID, INSIDE_UID, INSIDE_USER, Jail, Network, WORKSPACE};

/// What is taken from the host's /etc. Only the public parts of `ssl` and `pki`: the others hold keys.
pub(crate) const TAKEN: [&str; 25] = [
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "mime.types",
    "os-release",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// Files up to this size are copied, which is cheaper than a mount.
const COPIED: u64 = 256 * 1024;

/// Adds all of /etc.
pub(crate) fn add(sources: &mut HostMounts, jail: &Jail) -> Result<(), FailedStep> {
    for name in TAKEN {
        let path = Path::new("/etc").join(name);
        taken(sources, &path)
            .map_err(|error| FailedStep::new(format!("take {} from the host", path.display()), error))??;
    }
    for (name, contents) in own(jail)? {
        sources.files.push((Path::new("/etc").join(name), contents));
    }
    sources.links.push((PathBuf::from("/etc/mtab"), PathBuf::from("/proc/self/mounts")));
    Ok(())
}

/// The outer result is about reading the host's file, the inner one about mounting it.
fn taken(sources: &mut HostMounts, path: &Path) -> io::Result<Result<(), FailedStep>> {
    let missing = |error: &io::Error| {
        // What doesn't exist or isn't readable by this user isn't in the jail either.
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
    };
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if missing(&error) => return Ok(Ok(())),
        Err(error) => return Err(error),
    };
    if real != path && real.starts_with("/usr") {
        sources.links.push((path.to_owned(), real));
        return Ok(Ok(()));
    }
    let meta = fs::metadata(&real)?;
    if meta.is_file() && meta.len() <= COPIED {
        match fs::read(&real) {
            Ok(contents) => sources.files.push((path.to_owned(), contents)),
            Err(error) if missing(&error) => {}
            Err(error) => return Err(error),
        }
        return Ok(Ok(()));
    }
    Ok(sources.read_only(&real, path))
}

/// The jail's own files.
fn own(jail: &Jail) -> Result<Vec<(&'static str, Vec<u8>)>, FailedStep> {
    let passwd = format!(
        "root:x:0:0:root:/:/usr/sbin/nologin\n\
         {INSIDE_USER}:x:{INSIDE_UID}:{INSIDE_GID}::{WORKSPACE}:/bin/sh\n\
         nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
    );
    let group = format!("root:x:0:\n{INSIDE_USER}:x:{INSIDE_GID}:\nnogroup:x:65534:\n");
    let hosts = format!("127.0.0.1 localhost {0}\n::1 localhost {0}\n", jail.hostname);
    let nsswitch = "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n";
    let resolv = match jail.network {
        Network::None => Vec::new(),
        Network::Host | Network::HostUnfenced => match fs::read("/etc/resolv.conf") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.step(|| "read /etc/resolv.conf".into())?,
        },
    };
    Ok(vec![
        ("passwd", passwd.into_bytes()),
        ("group", group.into_bytes()),
        ("hosts", hosts.into_bytes()),
        ("nsswitch.conf", nsswitch.into()),
        ("resolv.conf", resolv),
        ("hostname", format!("{}\n", jail.hostname).into_bytes()),
    ])
}
