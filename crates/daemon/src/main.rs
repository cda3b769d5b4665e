//! `podbayd`: the daemon in every sandbox. `podbayd --help` lists its commands.
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where output can't be written")]

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use podbay_jail::CommandFilter;
use podbay_proto::exchange::ExchangeRequest;
use podbay_proto::layout::listen_env;
use podbayd::command_restrictions::CommandRestrictions;
use podbayd::stderr_log::log_error;
use podbayd::{connect, exchange, sealed, self_install, serve, supervise, sys, zygote};

const HELP: &str = "\
podbayd does the work in a Podbay sandbox. The `podbay` command starts it; you rarely run it yourself.

  podbayd serve --state DIR [--workdir DIR] [--listen ADDRESS:PORT]… [--socket-fd N] [--ready-fd N]
      Serves requests on the unix socket DIR/podbayd.sock and, with --listen or PODBAYD_LISTEN, on TCP. TCP
      clients must present a token for this very container, signed with the private key of one of the public keys in
      PODBAYD_PUBLIC_KEYS (or in the file PODBAYD_PUBLIC_KEYS_FILE). podbayd learns which container it is from
      PODBAYD_NAMESPACE, PODBAYD_POD_UID and PODBAYD_CONTAINER.
      podbayd exits --ttl SECONDS after its start, or after --idle-ttl SECONDS without use. With --ends-container it
      then also terminates the container's first process; restarting the container doesn't reset the clock.
      Commands run under a seccomp filter unless --no-command-filter is given.
      With --runtime-api ADDRESS:PORT or PODBAYD_RUNTIME_API (8888, say), podbayd also serves the HTTP API of agent-sandbox's
      Python runtime there, for files below SANDBOX_BASE_DIR (by default the working directory). That API has no
      authentication: whoever can reach the port can run commands in the sandbox.
  podbayd supervise --dir DIR
      Creates and supervises the local sandbox that DIR/spec.json describes.
  podbayd connect --state DIR [--workdir DIR] [--ttl SECONDS] [--idle-ttl SECONDS] [--ends-container]
                  [--no-command-filter] [--exchange SESSION]
      Connects standard input and output to the running daemon; starts one if there is none. With --exchange it opens a
      stream for `podbayd exchange` instead, and prints where that finds it.
  podbayd exchange --state DIR --session SESSION --number N --offset BYTES --acknowledged BYTES --most BYTES --wait MS
                   [--data BASE64 | --from FILE] [--close]
      Hands some of a stream's bytes to the running daemon, waits for some of the daemon's, and prints them: for clients
      that can only run single commands in the container. FILE is removed.
  podbayd --version
";

fn main() -> ExitCode {
    match Arguments::read(std::env::args_os().skip(1)).and_then(run) {
        Ok(code) => code,
        Err(message) => {
            log_error(message);
            ExitCode::from(2)
        }
    }
}

#[derive(Default)]
struct Arguments {
    command: String,
    state: Option<PathBuf>,
    workdir: Option<PathBuf>,
    listen: Vec<std::net::SocketAddr>,
    runtime_api: Vec<std::net::SocketAddr>,
    socket: Option<i32>,
    ready: Option<i32>,
    ttl: Option<Duration>,
    idle_ttl: Option<Duration>,
    dir: Option<PathBuf>,
    restrictions: Option<String>,
    ends_container: bool,
    sealed: bool,
    without_command_filter: bool,
    from: Option<PathBuf>,
    to: Option<PathBuf>,
    lock: Option<PathBuf>,
    bytes: Option<u64>,
    digest: Option<String>,
    data: Option<String>,
    exchange: Option<String>,
    request: ExchangeRequest,
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let text = |word: OsString| word.into_string().map_err(|word| format!("{word:?} isn't UTF-8"));
        let mut arguments = Self { command: text(words.next().ok_or(HELP)?)?, ..Self::default() };
        while let Some(word) = words.next() {
            let flag = text(word)?;
            if flag == "--ends-container" {
                arguments.ends_container = true;
                continue;
            }
            if flag == "--no-command-filter" {
                arguments.without_command_filter = true;
                continue;
            }
            if flag == "--close" {
                arguments.request.close = true;
                continue;
            }
            // Internal: this is a sealed copy already, or there can be none.
            if flag == "--sealed" {
                arguments.sealed = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            let number = |value: OsString| -> Result<i32, String> {
                text(value)?.parse().map_err(|_| format!("{flag} needs the number of a descriptor"))
            };
            match flag.as_str() {
                "--state" => arguments.state = Some(value.into()),
                "--workdir" => arguments.workdir = Some(value.into()),
                "--from" => arguments.from = Some(value.into()),
                "--to" => arguments.to = Some(value.into()),
                "--lock" => arguments.lock = Some(value.into()),
                "--digest" => arguments.digest = Some(text(value)?),
                "--exchange" => arguments.exchange = Some(text(value)?),
                "--session" => arguments.request.session = text(value)?,
                "--data" => arguments.data = Some(text(value)?),
                "--number" => arguments.request.number = count(&flag, text(value)?)?,
                "--offset" => arguments.request.offset = count(&flag, text(value)?)?,
                "--acknowledged" => arguments.request.acknowledged = count(&flag, text(value)?)?,
                "--most" => arguments.request.most = count(&flag, text(value)?)? as usize,
                "--wait" => arguments.request.wait_ms = count(&flag, text(value)?)?,
                "--bytes" => arguments.bytes = text(value)?.parse().ok(),
                "--dir" => arguments.dir = Some(value.into()),
                "--restrictions" => arguments.restrictions = Some(text(value)?),
                "--ttl" => arguments.ttl = Some(Duration::from_secs(seconds(&flag, text(value)?)?)),
                "--idle-ttl" => arguments.idle_ttl = Some(Duration::from_secs(seconds(&flag, text(value)?)?)),
                "--socket-fd" => arguments.socket = Some(number(value)?),
                "--ready-fd" => arguments.ready = Some(number(value)?),
                "--listen" => arguments.listen.push(address(text(value)?)?),
                "--runtime-api" => arguments.runtime_api.push(address(text(value)?)?),
                _ => return Err(format!("unknown flag {flag}; see `podbayd --help`")),
            }
        }
        Ok(arguments)
    }

    fn state(&self) -> Result<PathBuf, String> {
        self.state
            .clone()
            .ok_or_else(|| "--state DIR is required: the directory where podbayd keeps its files".to_owned())
    }
}

fn run(arguments: Arguments) -> Result<ExitCode, String> {
    match arguments.command.as_str() {
        "serve" => {
            if !arguments.sealed {
                sealed::exec_copy(std::env::args_os().skip(1).chain(["--sealed".into()]));
            }
            let options = serve_options(&arguments)?;
            serve::run(options).map(|_| ExitCode::SUCCESS).map_err(|error| error.to_string())
        }
        "connect" => {
            let state = arguments.state()?;
            let start = connect::DaemonOptions {
                workdir: arguments.workdir,
                ttl: arguments.ttl,
                idle_ttl: arguments.idle_ttl,
                ends_container: arguments.ends_container,
                without_command_filter: arguments.without_command_filter,
            };
            connect::run(&state, &start, arguments.exchange)
                .map(|()| ExitCode::SUCCESS)
                .map_err(|error| error.to_string())
        }
        "exchange" => {
            let state = arguments.state()?;
            let input = match (arguments.data, arguments.from) {
                (Some(data), _) => exchange::ExchangeInput::Word(data),
                (None, Some(file)) => exchange::ExchangeInput::File(file),
                (None, None) => exchange::ExchangeInput::Nothing,
            };
            let exchanged = exchange::run(&state, arguments.request, input);
            exchanged.map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string())
        }
        "supervise" => {
            let dir = arguments.dir.ok_or("--dir DIR is required: the sandbox's directory")?;
            supervise::run(&dir).map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string())
        }
        // Internal: the bootstrap runs it once in a container and reads what it prints.
        "self-install" => match (&arguments.from, arguments.bytes, &arguments.digest, &arguments.to, &arguments.lock) {
            (Some(from), Some(bytes), Some(digest), Some(to), Some(lock)) => {
                Ok(self_install::run(&self_install::Arrival { from, bytes, digest, to, lock }).map_or_else(
                    |why| {
                        say(format_args!("podbay: fail {why}\n"));
                        ExitCode::from(3)
                    },
                    |()| ExitCode::SUCCESS,
                ))
            }
            _ => Err("self-install needs --from, --bytes, --digest, --to and --lock".to_owned()),
        },
        // Internal: a daemon whose zygote was killed starts another, with the socket as standard input.
        "zygote" => {
            let socket = inherited(0)?;
            let restrictions = arguments.restrictions.ok_or("zygote needs --restrictions")?;
            let restrictions: CommandRestrictions =
                serde_json::from_str(&restrictions).map_err(|error| error.to_string())?;
            let confinement = restrictions.prepare_confinement().map_err(|error| error.to_string())?;
            Ok(ExitCode::from(zygote::main(socket, &restrictions, confinement) as u8))
        }
        "--version" => {
            Ok(say(format_args!("podbayd {} (protocol {})\n", env!("CARGO_PKG_VERSION"), podbay_proto::VERSION)))
        }
        "--help" | "-h" | "help" => Ok(say(format_args!("{HELP}"))),
        other => Err(format!("unknown command '{other}'; see `podbayd --help`")),
    }
}

/// Prints, and fails where nobody reads it. `println!` would panic, and podbayd would dump core.
fn say(text: std::fmt::Arguments<'_>) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn seconds(flag: &str, value: String) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{flag} needs a number of seconds, not {value:?}"))
}

fn count(flag: &str, value: String) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{flag} needs a number, not {value:?}"))
}

fn address(text: String) -> Result<std::net::SocketAddr, String> {
    text.parse().map_err(|_| format!("{text} isn't an address and port such as 0.0.0.0:7777"))
}

fn inherited(fd: i32) -> Result<OwnedFd, String> {
    sys::inherited(fd).map_err(|error| format!("descriptor {fd} can't be used: {error}"))
}

fn serve_options(arguments: &Arguments) -> Result<serve::Options, String> {
    Ok(serve::Options {
        state: arguments.state()?,
        workdir: arguments.workdir.clone(),
        socket: arguments.socket.map(inherited).transpose()?,
        listen: listening(arguments)?,
        runtime_api: runtime_api(arguments),
        ttl: arguments.ttl,
        idle_ttl: arguments.idle_ttl,
        ends_container: arguments.ends_container,
        ready: arguments.ready.map(inherited).transpose()?,
        in_container: true,
        restrictions: CommandRestrictions {
            filter: Some(match arguments.without_command_filter {
                true => CommandFilter::Mark,
                false => CommandFilter::Container,
            }),
            ..CommandRestrictions::default()
        },
        ..serve::Options::default()
    })
}

/// Where and for whom to listen on TCP. What was asked for by a flag has to work. The environment is another matter: a sandbox
/// that can't be reached over TCP can still be reached through exec, and one whose podbayd doesn't start can't.
fn listening(arguments: &Arguments) -> Result<Option<serve::Listening>, String> {
    if !arguments.listen.is_empty() {
        return serve::Listening::from_environment(arguments.listen.clone(), true).map(Some);
    }
    let Some(text) = std::env::var(listen_env::LISTEN).ok().filter(|text| !text.is_empty()) else { return Ok(None) };
    let listening =
        serve::Listening::addresses(&text).and_then(|addresses| serve::Listening::from_environment(addresses, false));
    Ok(listening.map_err(|error| log_error(format!("not listening on TCP: {error}"))).ok())
}

/// Where to serve the stock runtime's API, if anywhere.
fn runtime_api(arguments: &Arguments) -> Option<serve::RuntimeOptions> {
    if !arguments.runtime_api.is_empty() {
        return Some(serve::RuntimeOptions::from_environment(arguments.runtime_api.clone(), true));
    }
    let text = std::env::var(listen_env::RUNTIME_API).ok().filter(|text| !text.is_empty())?;
    let addresses = serve::Listening::addresses(&text);
    let addresses = addresses.map_err(|error| log_error(format!("{}: {error}", listen_env::RUNTIME_API))).ok()?;
    Some(serve::RuntimeOptions::from_environment(addresses, false))
}
