//! `podbay mcp`: sandboxes for agents that speak the Model Context Protocol.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use podbay::config::Config;
use podbay::provider::Wanted;
use podbay::quantity::parse_size;
use podbay_mcp::Options;
use podbay_mcp::http::{self, HttpOptions, Tokens};
use tokio::net::TcpListener;

use crate::failure::Failure;
use crate::output::Output;
use crate::quantity;
use crate::sandbox_options::SandboxOptions;
use crate::session::signals;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  claude mcp add podbay -- podbay mcp          for Claude Code, with a sandbox for each session
  podbay mcp --workspace .                     work on this directory
  podbay mcp --sandbox box                     one sandbox for all sessions, which stays
  podbay mcp --mode raw --image python:3.12    in pods on a cluster
  podbay mcp --listen 127.0.0.1:8931           over HTTP, at http://127.0.0.1:8931/mcp
  podbay mcp --listen 0.0.0.0:8931 --token-file token

Over standard input and output there is one session, until the client closes them. Over HTTP there are many.";

/// Serve sandboxes to agents over the Model Context Protocol
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("name", |name| name.long("sandbox").help(
    "Use this sandbox for all sessions and keep it when they end; it is created if it doesn't exist [default: a new one for \
     each session]"
)))]
pub struct Arguments {
    #[command(flatten)]
    sandbox: SandboxOptions,

    /// Maximum time per command; tools can request less
    #[arg(long, value_name = "TIME", value_parser = quantity::positive_span, default_value = "5m")]
    timeout: Duration,

    /// Maximum output per tool result, such as 64KiB; the rest is a resource
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64KiB")]
    max_output: u64,

    /// Listen on this address and port, and serve streamable HTTP
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = HTTP)]
    listen: Option<String>,

    /// Require a bearer token from this file (one per line); mandatory unless the address is loopback
    #[arg(long, value_name = "FILE", help_heading = HTTP, requires = "listen")]
    token_file: Option<PathBuf>,

    /// Also accept requests for this host name, such as that of a proxy; repeatable
    #[arg(long, value_name = "HOST", help_heading = HTTP, requires = "listen")]
    allow_host: Vec<String>,

    /// Accept requests from web pages of this origin, such as https://example.com:443; repeatable
    #[arg(long, value_name = "ORIGIN", help_heading = HTTP, requires = "listen")]
    allow_origin: Vec<String>,

    /// Maximum number of concurrent sessions
    #[arg(long, value_name = "NUMBER", help_heading = HTTP, requires = "listen", default_value_t = HttpOptions::SESSIONS)]
    max_sessions: usize,
}

const HTTP: &str = "HTTP";

/// The least that leaves room for a page of text.
fn size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        size if size < Options::MIN_OUTPUT => Err(format!("at least {} bytes are needed", Options::MIN_OUTPUT)),
        size => Ok(size),
    }
}

/// Serves until the client or a signal ends it.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let mut config = settings.config()?;
    arguments.sandbox.apply(&mut config)?;
    let http = match &arguments.listen {
        Some(address) => Some((listener(address).await?, http_options(&arguments)?)),
        None => None,
    };
    let leashed = config.mode_row().leashes;
    let idle = idle(&mut config, arguments.sandbox.name.is_none(), leashed)?;
    let podbay = super::with(config)?;
    let options = Options {
        sandbox: arguments.sandbox.name.clone(),
        // A cluster doesn't see the end of this process. There the sandbox is deleted, and ends by its lifetime where that fails.
        wanted: Wanted { id: None, ..arguments.sandbox.wanted(leashed) },
        timeout: arguments.timeout,
        max_output: arguments.max_output,
    };
    let (signalled, mut signal) = tokio::sync::oneshot::channel();
    let end = async {
        if let Ok(number) = signals::end().await {
            // Whoever waits for it is this function.
            let _ = signalled.send(number);
        }
    };
    match http {
        None => podbay_mcp::serve_stdio(&podbay, options, end).await?,
        Some((listener, http)) => {
            let http = HttpOptions { idle, ..http };
            let address = listener.local_addr().map_err(|error| Failure::new(format!("can't listen: {error}")))?;
            http.check(&address).map_err(|error| Failure::new(error.to_string()).coded("usage"))?;
            output.note(&format!("listening on http://{address}/mcp"));
            http::serve(&podbay, options, http, listener, end)
                .await
                .map_err(|error| Failure::new(error.to_string()))?;
        }
    }
    Ok(signal.try_recv().map_or(0, |number| 128_u8.saturating_add(number)))
}

/// How long a session over HTTP may be idle. A sandbox that nobody may be there to delete gets the same limit.
fn idle(config: &mut Config, own: bool, leashed: bool) -> Result<Duration, Failure> {
    const FLAG: &str = "podbay mcp";
    if config.is_set("idle_ttl") {
        return Ok(config.idle_ttl().unwrap_or(Duration::MAX));
    }
    if own && !leashed {
        config.set_by(FLAG, "idle_ttl", &format!("{}s", HttpOptions::IDLE.as_secs()))?;
    }
    Ok(HttpOptions::IDLE)
}

async fn listener(address: &str) -> Result<TcpListener, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("can't listen on {address}: {error}; use ADDRESS:PORT, such as 127.0.0.1:8931"))
            .coded("usage")
    };
    let found: Vec<SocketAddr> = tokio::net::lookup_host(address).await.map_err(failed)?.collect();
    TcpListener::bind(&found[..]).await.map_err(failed)
}

fn http_options(arguments: &Arguments) -> Result<HttpOptions, Failure> {
    let tokens = match &arguments.token_file {
        None => Tokens::default(),
        Some(file) => tokens(file)?,
    };
    Ok(HttpOptions {
        tokens,
        hosts: arguments.allow_host.clone(),
        origins: arguments.allow_origin.clone(),
        sessions: arguments.max_sessions,
        ..HttpOptions::default()
    })
}

fn tokens(file: &Path) -> Result<Tokens, Failure> {
    let unreadable = |error| Failure::local(file, "can't be read", &error);
    let mut opened = File::open(file).map_err(unreadable)?;
    private(file, &opened)?;
    let mut text = String::new();
    opened.read_to_string(&mut text).map_err(unreadable)?;
    Tokens::parse(&text).map_err(|error| Failure::new(format!("{}: {error}", file.display())).coded("usage"))
}

/// Whether a token file is its owner's alone: whoever can read it can use the server, and whoever can write to it can let others in.
fn private(file: &Path, opened: &File) -> Result<(), Failure> {
    let meta = opened.metadata().map_err(|error| Failure::local(file, "can't be read", &error))?;
    match meta.mode() & 0o066 {
        0 => Ok(()),
        _ => {
            let (file, mode) = (file.display(), meta.mode() & 0o777);
            let message = format!(
                "the token file {file} is open to other users of this machine (mode {mode:03o}): run 'chmod 600 {file}', and replace \
                 the tokens if others may have read them"
            );
            Err(Failure::new(message).coded("usage"))
        }
    }
}
