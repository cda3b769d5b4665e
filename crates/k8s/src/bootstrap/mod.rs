//! Puts podbayd into a container that may have nothing but a shell, and starts it.
//!
//! One shell does everything: it runs a short script, which becomes `podbayd connect`. The script asks for podbayd's bytes
//! only when the container doesn't have them. Nothing may be sent after them until podbayd has greeted: BusyBox's `head -c`
//! would swallow it. How the shell is reached doesn't matter: any byte stream to its input and output will do.

use std::io;
use std::time::Duration;

use podbay_proto::layout::listen_env;
use podbay_proto::session::GREETING;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::lifetime::LifetimeLimits;
use crate::pod::container::Container;

/// The script that the container runs.
const SCRIPT: &str = include_str!("script.sh");

/// What the script puts before each line that is meant for the client.
const MARK: &str = "podbay: ";

/// The longest line that the script prints, with room to spare. The container may print anything.
const LONGEST_LINE: usize = 4 << 10;

/// The most lines that a container may print of its own accord.
const MOST_LINES: usize = 64;

/// How long the container may be silent: the script may wait for another client's upload.
const SILENCE: Duration = Duration::from_secs(60);

/// podbayd is sent in pieces, each within a time: a slow line is no error, but one that hangs is.
const PIECE: usize = 64 << 10;
const PIECE_TIME: Duration = Duration::from_secs(20);

/// How podbayd is started where it isn't running yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LaunchOptions {
    /// The directory that commands start in. If it is empty, `/workspace` where the container has it or lets it be created,
    /// else the container's own working directory, else `/tmp`.
    pub(crate) workdir: String,
    /// Has podbayd end the container by a TERM to its first process when the sandbox's time is up. Only for pods whose first
    /// process is known to end on TERM and isn't restarted then: raw mode's are. Where something else ends sandboxes, as
    /// the agent-sandbox controller does, podbayd must not.
    pub(crate) ends_container: Option<LifetimeLimits>,
    /// Whether commands have every system call that the container has.
    pub(crate) without_command_filter: bool,
    /// Has podbayd listen on TCP too.
    pub(crate) listen: Option<Listen>,
    /// Opens a stream of this name for `podbayd exchange`, instead of connecting the shell's input and output.
    pub(crate) exchange: Option<String>,
}

/// What podbayd needs to listen on TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) port: u16,
    /// The public keys of those who may connect, separated by commas.
    pub(crate) public_keys: String,
    /// The container that it is in.
    pub(crate) container: Container,
}

impl Listen {
    /// Puts it into the environment that the script passes on. A podbayd that is older ignores that, while it refuses flags
    /// that it doesn't know. What the pod's template says about keys and port wins.
    fn exports(&self) -> String {
        let Container { namespace, pod, uid, name } = &self.container;
        let default = |variable: &str, value: &str| format!("{variable}=${{{variable}:-{value}}}\n");
        let set = |variable: &str, value: &str| format!("{variable}='{}'\n", value.replace('\'', ""));
        let lines = [
            default(listen_env::LISTEN, &self.port.to_string()),
            default(listen_env::PUBLIC_KEYS, &self.public_keys),
            set(listen_env::NAMESPACE, namespace),
            set(listen_env::POD, pod),
            set(listen_env::POD_UID, uid),
            set(listen_env::CONTAINER, name),
        ];
        let names = [
            listen_env::LISTEN,
            listen_env::PUBLIC_KEYS,
            listen_env::NAMESPACE,
            listen_env::POD,
            listen_env::POD_UID,
            listen_env::CONTAINER,
        ];
        format!("{}export {}\n", lines.concat(), names.join(" "))
    }
}

/// Why podbayd couldn't be started.
#[derive(Debug)]
pub(crate) enum BootstrapFailure {
    /// The script said why, or this client can't serve it.
    Refused(Error),
    /// Something else went wrong. What the shell printed on standard error may tell more.
    Failed(String),
    /// The shell ended before podbayd greeted.
    Ended,
}

impl From<Error> for BootstrapFailure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// The command to run in the container.
pub(crate) fn command(options: &LaunchOptions) -> Vec<String> {
    let script = options.listen.as_ref().map(Listen::exports).unwrap_or_default() + SCRIPT;
    let mut words = vec!["sh".into(), "-c".into(), script, "podbay".into(), options.workdir.clone()];
    if let Some(limits) = options.ends_container {
        words.push("--ends-container".into());
        for (flag, seconds) in [("--ttl", limits.ttl), ("--idle-ttl", limits.idle_ttl)] {
            if let Some(seconds) = seconds {
                words.extend([flag.into(), seconds.to_string()]);
            }
        }
    }
    if options.without_command_filter {
        words.push("--no-command-filter".into());
    }
    if let Some(session) = &options.exchange {
        words.extend(["--exchange".into(), session.clone()]);
    }
    words
}

/// The architecture of a container that needs podbayd, by what a script printed that got nothing to read.
pub(crate) fn needs(printed: &str) -> Option<&str> {
    let mut lines = printed.lines().take(MOST_LINES);
    lines.find_map(|line| line.strip_prefix(MARK)?.strip_prefix("need "))
}

/// Talks to the script until podbayd greets. After that the stream is podbayd's.
pub(crate) async fn run(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(), BootstrapFailure> {
    let mut sent = false;
    for _ in 0..MOST_LINES {
        let line = match timeout(SILENCE, line(stream)).await.unwrap_or_else(|_| Err(late(SILENCE))) {
            Ok(Some(line)) => line,
            Ok(None) => return Err(BootstrapFailure::Ended),
            Err(error) => return Err(BootstrapFailure::Failed(error.to_string())),
        };
        if line == GREETING {
            return Ok(());
        }
        match line.strip_prefix(MARK).and_then(|line| line.split_once(' ')) {
            Some(("need", arch)) if !sent => {
                sent = true;
                send(stream, arch).await?;
            }
            Some(("fail", why)) => return Err(failed(why)),
            _ => tracing::debug!(line, "unexpected line of output from the container"),
        }
    }
    Err(Error::Bootstrap("the container keeps printing unexpected output and doesn't start podbayd".into()).into())
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), arch: &str) -> Result<()> {
    let (bytes, digest) = daemon(arch)?;
    let work = async {
        stream.write_all(format!("{} {digest}\n", bytes.len()).as_bytes()).await?;
        for piece in bytes.chunks(PIECE) {
            timeout(PIECE_TIME, stream.write_all(piece)).await.unwrap_or_else(|_| Err(late(PIECE_TIME)))?;
        }
        timeout(PIECE_TIME, stream.flush()).await.unwrap_or_else(|_| Err(late(PIECE_TIME)))
    };
    if let Err(error) = work.await {
        // The script may have stopped reading and said why; the next line shows it.
        tracing::debug!(%error, "can't send podbayd");
    }
    Ok(())
}

fn late(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("nothing moved for {} s", limit.as_secs()))
}

/// podbayd for an architecture as `uname -m` prints it, and its digest.
pub(crate) fn daemon(arch: &str) -> Result<(&'static [u8], &'static str)> {
    let name = match arch {
        "arm64" => "aarch64",
        "amd64" => "x86_64",
        // No `uname` in the image: most clusters have one architecture, and podbayd is tried before it is used.
        "unknown" => std::env::consts::ARCH,
        other => other,
    };
    podbay_embed::daemon(name)
        .zip(podbay_embed::digest(name))
        .ok_or_else(|| Error::Architecture { arch: arch.chars().take(40).collect() })
}

/// One line, without its line end; nothing when the output has ended.
async fn line(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        // Byte by byte: what follows the line belongs to whoever reads next.
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            return Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()));
        }
        match byte[0] {
            b'\n' => return Ok(Some(String::from_utf8_lossy(&line).into_owned())),
            byte if line.len() < LONGEST_LINE => line.push(byte),
            _ => return Err(io::Error::other("the container's output has a line that is too long")),
        }
    }
}

fn failed(why: &str) -> BootstrapFailure {
    let (kind, rest) = why.split_once(' ').unwrap_or((why, ""));
    let refused = match kind {
        "tools" => Error::MissingTools(rest.to_owned()),
        "directory" => Error::NoDirectory,
        "run" => Error::Architecture { arch: rest.to_owned() },
        "count" => Error::Bootstrap(format!("podbayd arrived incomplete (bytes received and expected: {rest})")),
        "digest" => Error::Bootstrap(
            "podbayd was damaged on its way into the container (its SHA-256 differs): try again, and check the node's \
             disk if it happens again"
                .into(),
        ),
        "write" => return BootstrapFailure::Failed(format!("can't write podbayd below {rest}")),
        _ => return BootstrapFailure::Failed(format!("the script failed: {why}")),
    };
    refused.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    /// Runs the script here, with directories of its own and this as its input. Gives what it says, and what it leaves.
    fn run_with(input: &[u8], prepare: &str) -> (String, Vec<String>) {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let script =
            SCRIPT.replace("/run/podbay", &format!("{path}/run")).replace("/tmp/.podbay", &format!("{path}/tmp"));
        let mut child = Command::new("sh")
            .args(["-c", &format!("cd {path}; {prepare}\n{script}"), "podbay", &format!("{path}/work")])
            .env("HOME", format!("{path}/home"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Who fails early doesn't read it all.
        let _ = child.stdin.take().unwrap().write_all(input);
        let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let left = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        (said, left.collect())
    }

    /// The script can't use the constants, so they are compared.
    #[test]
    fn the_script_uses_the_names_of_the_layout() {
        use podbay_proto::layout::{PROGRAM, START_LOCK, STATE_DIR, STATE_DIR_IN_TMP, STATE_DIR_NAME};
        let dirs = format!(
            "dirs=\"{STATE_DIR}\n{STATE_DIR_IN_TMP}$user\n${{HOME:+$HOME/{STATE_DIR_NAME}}}\n$workdir/{STATE_DIR_NAME}\"\n"
        );
        for part in [dirs, format!("\"$1/{START_LOCK}\""), format!("--to \"$dir/{PROGRAM}\"")] {
            assert!(SCRIPT.contains(&part), "{part}");
        }
    }

    #[test]
    fn what_does_not_arrive_whole_is_told_apart_from_what_does_not_run() {
        let (bytes, digest) = daemon("unknown").unwrap();
        for part in [0, 30, bytes.len() / 2, bytes.len() - 1] {
            let input = [format!("{} {digest}\n", bytes.len()).as_bytes(), &bytes[..part]].concat();
            let (said, left) = run_with(&input, "");
            let last = said.lines().last().unwrap_or_default();
            assert_eq!(last, format!("podbay: fail count {part} {}", bytes.len()), "{said}");
            assert_eq!(left, ["run"], "other directories were tried");
        }
        // Damaged, but of the right length: where it runs all the same, and where it doesn't.
        for place in [bytes.len() - 1, 0] {
            let mut damaged = bytes.to_vec();
            damaged[place] ^= 1;
            let (said, _) = run_with(&[format!("{} {digest}\n", bytes.len()).as_bytes(), &damaged].concat(), "");
            assert_eq!(said.lines().last(), Some("podbay: fail digest"), "{said}");
        }
        let other = b"#!/nowhere/at/all\n";
        let digest = Sha256::digest(other).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (said, _) = run_with(&[format!("{} {digest}\n", other.len()).as_bytes(), other].concat(), "");
        assert!(said.lines().last().unwrap_or_default().starts_with("podbay: fail run "), "{said}");
    }

    #[test]
    fn a_directory_that_takes_nothing_is_passed_over() {
        // Files where directories should be are an obstacle for root too.
        let (said, left) = run_with(b"5\n12345", "echo >run");
        assert!(said.contains("podbay: need "), "{said}");
        assert!(left.iter().any(|name| name.starts_with("tmp")), "{left:?}");
        assert_eq!(
            run_with(b"", "echo >run; echo >home; echo >work; ln -s run tmp-$(id -u)").0,
            "podbay: fail directory\n"
        );
    }

    /// The flags that podbayd knows since protocol 1.0. A warm pod or an image may have one that is as old, and it refuses
    /// flags that it doesn't know.
    const FLAGS_1_0: [&str; 4] = ["--ends-container", "--ttl", "--idle-ttl", "--no-command-filter"];

    #[test]
    fn a_podbayd_of_protocol_1_0_understands_its_command_line() {
        let limits = LifetimeLimits { ttl: Some(9), idle_ttl: Some(8) };
        let options = LaunchOptions {
            workdir: "/work".into(),
            ends_container: Some(limits),
            without_command_filter: true,
            ..LaunchOptions::default()
        };
        let words = command(&options);
        let flags: Vec<&str> = words[5..].iter().map(String::as_str).filter(|word| word.starts_with("--")).collect();
        assert!(flags.iter().all(|flag| FLAGS_1_0.contains(flag)), "{flags:?}");
        assert_eq!(command(&LaunchOptions { workdir: "/work".into(), ..LaunchOptions::default() })[4..], ["/work"]);
        assert!(SCRIPT.contains(r#"connect --state "$state" --workdir "$workdir" "$@""#));
    }

    #[test]
    fn what_podbayd_needs_to_listen_is_in_its_environment() {
        let container =
            Container { namespace: "agents".into(), pod: "p".into(), uid: "u'; id #".into(), name: "c".into() };
        let listen = Listen { port: 7777, public_keys: "k1,k2".into(), container };
        let script = listen.exports() + "env";
        let run = |keys: Option<&str>| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &script]).envs(keys.map(|keys| (listen_env::PUBLIC_KEYS, keys)));
            String::from_utf8(shell.output().unwrap().stdout).unwrap()
        };
        let said = run(None);
        for line in ["PODBAYD_LISTEN=7777", "PODBAYD_PUBLIC_KEYS=k1,k2", "PODBAYD_NAMESPACE=agents", "PODBAYD_POD=p"] {
            assert!(said.lines().any(|one| one == line), "{line}: {said}");
        }
        assert!(said.contains("PODBAYD_POD_UID=u; id #\n") && said.contains("PODBAYD_CONTAINER=c\n"), "{said}");
        // The pod's template has the last word on who may connect.
        assert!(run(Some("theirs")).contains("PODBAYD_PUBLIC_KEYS=theirs\n"));
    }

    /// The shell's stream was a type of its own. Here it is a pipe.
    #[tokio::test]
    async fn any_byte_stream_will_do() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let talk = async {
            far.write_all(b"motd\npodbay: need unknown\n").await.unwrap();
            let (bytes, _) = daemon("unknown").unwrap();
            let head = line(&mut far).await.unwrap().unwrap();
            assert!(head.starts_with(&format!("{} ", bytes.len())), "{head}");
            let mut got = vec![0; bytes.len()];
            far.read_exact(&mut got).await.unwrap();
            assert!(got == bytes);
            far.write_all(format!("{GREETING}\nrest").as_bytes()).await.unwrap();
        };
        let (ran, ()) = tokio::join!(run(&mut near), talk);
        ran.unwrap();
        let mut rest = [0; 4];
        near.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"rest");
        drop(far);
        assert!(matches!(run(&mut near).await, Err(BootstrapFailure::Ended)));
        let (mut near, mut far) = tokio::io::duplex(64);
        far.write_all(b"podbay: fail tools mv\n").await.unwrap();
        let failure = run(&mut near).await;
        assert!(matches!(failure, Err(BootstrapFailure::Refused(Error::MissingTools(tool))) if tool == "mv"));
    }

    #[test]
    fn architectures_have_many_names_and_others_are_refused() {
        assert!(daemon("unknown").is_ok());
        assert!(matches!(daemon("s390x"), Err(Error::Architecture { arch }) if arch == "s390x"));
        // A container can print what it likes.
        assert!(matches!(daemon(&"x".repeat(4000)), Err(Error::Architecture { arch }) if arch.len() == 40));
    }
}
