//! The operations on the sandbox as a whole.

use std::sync::Arc;

use podbay_proto::session::{Hello, Lifetime, Protections, Welcome};
use podbay_proto::{Error, ErrorCode, Result, VERSION};

use super::Daemon;
use super::reply::Reply;

/// Says who this podbayd is and how long it has been idle.
pub async fn hello(daemon: Arc<Daemon>, _: Hello) -> Result<Reply> {
    let running = daemon.execs.running();
    if running > 0 {
        daemon.activity.touch();
    }
    Reply::new(&Welcome {
        idle_ms: u64::try_from(daemon.activity.idle().as_millis()).unwrap_or(u64::MAX),
        running,
        version: VERSION,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        instance: daemon.instance.clone(),
        workdir: daemon.workdir.clone(),
        state: daemon.state.clone(),
    })
}

/// Says what keeps commands away from podbayd, and what is open.
pub async fn protections(daemon: Arc<Daemon>, _: Protections) -> Result<Reply> {
    Reply::new(&daemon.protection().await)
}

/// Sets the sandbox's time limits.
pub async fn lifetime(daemon: Arc<Daemon>, limits: Lifetime) -> Result<Reply> {
    daemon.lifetime.set(limits).map_err(|error| {
        Error::new(ErrorCode::Io, format!("can't save the sandbox's time limits in its state directory: {error}"))
    })?;
    Reply::new(&limits)
}
