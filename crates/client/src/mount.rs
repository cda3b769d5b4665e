//! Mounts as people write them: `HOST[:INSIDE][:ro|rw]`.

use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

/// A file or directory of this machine that a sandbox sees, as `--mount` and `local.mounts` name it: `HOST`, `HOST:INSIDE` or
/// either with `:ro` or `:rw` after it. It is read-only unless it says `rw`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountSpec {
    /// What is mounted. It may be relative where the caller says what to.
    pub host: PathBuf,
    /// Where the sandbox sees it: an absolute path.
    pub inside: PathBuf,
    /// Whether the sandbox can change it.
    pub writable: bool,
}

impl FromStr for MountSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |why: &str| Err(format!("mount {text:?}: {why}; use HOST[:INSIDE][:ro|rw]"));
        let parts: Vec<&str> = text.split(':').collect();
        let (host, inside, access) = match parts[..] {
            [host] => (host, host, "ro"),
            [host, access @ ("ro" | "rw")] => (host, host, access),
            [host, inside] => (host, inside, "ro"),
            [host, inside, access] => (host, inside, access),
            _ => return bad("it has too many parts"),
        };
        if host.is_empty() {
            return bad("it doesn't say what to mount");
        }
        if !inside.starts_with('/') {
            return bad("the path inside the sandbox has to be absolute");
        }
        match access {
            "ro" | "rw" => Ok(Self { host: host.into(), inside: inside.into(), writable: access == "rw" }),
            other => bad(&format!("{other:?} is neither ro nor rw")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_only_unless_they_say_otherwise() {
        let spec =
            |host: &str, inside: &str, writable| MountSpec { host: host.into(), inside: inside.into(), writable };
        for (text, wanted) in [
            ("/a", spec("/a", "/a", false)),
            ("/a:rw", spec("/a", "/a", true)),
            ("/a:/b", spec("/a", "/b", false)),
            ("/a:/b:ro", spec("/a", "/b", false)),
            ("/a:/b:rw", spec("/a", "/b", true)),
            ("a/b:/c", spec("a/b", "/c", false)),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
        for bad in ["", "a", ":/c", "a:", "/a:b", "/a:/b:x", "/a:/b:rw:ro"] {
            let error = bad.parse::<MountSpec>().unwrap_err();
            assert!(error.contains("HOST[:INSIDE]"), "{bad}: {error}");
        }
    }
}
