//! From a request to the operation that serves it.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use podbay_proto::body::{Incoming, MessageBody};
use podbay_proto::message::{MAX_REQUEST, decode_head};
use podbay_proto::session::{Hello, Lifetime, Protections, REQUEST_ID, TOKEN, Welcome};
use podbay_proto::{Error, ErrorCode, Operation, Result, VERSION, exec};

use super::Daemon;
use super::execs;
use super::files;
use super::reply::Reply;
use crate::shim_protocol::MAX_INPUT;

/// Serves one request.
pub async fn serve<B>(
    daemon: Arc<Daemon>,
    request: Request<B>,
    trusted: bool,
) -> Result<Response<MessageBody>, Infallible>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    // Whoever only looks, to list sandboxes, describe one or look for idle ones, doesn't use it.
    let asks = ["/hello", "/protections"].iter().any(|name| request.uri().path().ends_with(name));
    let _activity = (!asks).then(|| daemon.activity.begin());
    Ok(Reply::from(answer(&daemon, request, trusted).await).into_response())
}

async fn answer<B>(daemon: &Arc<Daemon>, request: Request<B>, trusted: bool) -> Result<Reply>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    if !trusted {
        daemon.token.check(header(TOKEN))?;
    }
    let id = header(REQUEST_ID).map(str::to_owned);
    let name = operation_name(request.method(), request.uri().path())?.to_owned();
    let body = Incoming::read(request.into_body(), MAX_REQUEST).await?;
    dispatch(daemon, &name, id, body).await
}

fn operation_name<'a>(method: &Method, path: &'a str) -> Result<&'a str> {
    let (major, name) = path.strip_prefix("/v").and_then(|rest| rest.split_once('/')).ok_or_else(|| unknown(path))?;
    if major != VERSION.major.to_string() {
        let theirs: u32 = major.parse().map_err(|_| unknown(path))?;
        let update = if theirs < VERSION.major { "the client" } else { "podbayd in the sandbox" };
        let message = format!("the client speaks protocol {theirs} and this podbayd speaks {VERSION}: update {update}");
        return Err(Error::new(ErrorCode::VersionMismatch, message));
    }
    if method != Method::POST { Err(unknown(path)) } else { Ok(name) }
}

fn unknown(what: &str) -> Error {
    let shown: String = what.chars().take(100).collect();
    Error::new(
        ErrorCode::UnknownOperation,
        format!("podbayd {VERSION} has no operation {shown:?}; a newer podbayd may have it"),
    )
}

async fn dispatch<B>(daemon: &Arc<Daemon>, name: &str, id: Option<String>, mut body: Incoming<B>) -> Result<Reply>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    let head = body.head.clone();
    match name {
        Hello::NAME => {
            let _: Hello = decode_head(&head)?;
            Reply::new(&daemon.welcome().await)
        }
        Protections::NAME => {
            let _: Protections = decode_head(&head)?;
            Reply::new(&daemon.protection().await)
        }
        Lifetime::NAME => {
            let lifetime: Lifetime = decode_head(&head)?;
            daemon.lifetime.set(lifetime).map_err(|error| {
                Error::new(ErrorCode::Io, format!("how long the sandbox may go on can't be written down: {error}"))
            })?;
            Reply::new(&lifetime)
        }
        exec::Start::NAME => execs::start(&daemon.execs, decode_head(&head)?).await,
        exec::Run::NAME => execs::run(&daemon.execs, decode_head(&head)?).await,
        exec::Attach::NAME => execs::attach(daemon.execs.clone(), decode_head(&head)?).await,
        exec::Status::NAME => execs::status(&daemon.execs, decode_head(&head)?).await,
        exec::List::NAME => {
            let request: exec::List = decode_head(&head)?;
            Reply::new(&daemon.execs.list(request.running).await?)
        }
        exec::Input::NAME => {
            let data = body.collect(MAX_INPUT).await?;
            execs::input(&daemon.execs, decode_head(&head)?, &data).await
        }
        exec::Signal::NAME => {
            let request: exec::Signal = decode_head(&head)?;
            let execs = daemon.execs.clone();
            Ok(once(daemon, name, id, async move { execs::signal(&execs, request).await }).await)
        }
        _ => files::serve(daemon, name, id, body).await.unwrap_or_else(|| Err(unknown(name))),
    }
}

/// Serves a request that changes something once, when it has an id to be known by.
pub async fn once(
    daemon: &Arc<Daemon>,
    name: &str,
    id: Option<String>,
    serve: impl Future<Output = Result<Reply>> + Send + 'static,
) -> Reply {
    match id {
        Some(id) => daemon.replay_cache.once(format!("{name} {id}"), serve, was_served).await,
        None => serve.await.into(),
    }
}

/// A request whose body was cut has changed nothing.
fn was_served(result: &Result<Reply>) -> bool {
    !matches!(result, Err(error) if error.code == ErrorCode::BadMessage)
}

impl Daemon {
    async fn welcome(&self) -> Welcome {
        let running = self.execs.running();
        if running > 0 {
            self.activity.touch();
        }
        Welcome {
            idle_ms: u64::try_from(self.activity.idle().as_millis()).unwrap_or(u64::MAX),
            running,
            version: VERSION,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            instance: self.instance.clone(),
            workdir: self.workdir.clone(),
            state: self.state.clone(),
        }
    }
}
