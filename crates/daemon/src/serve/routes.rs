//! The table of routes: which code serves which operation.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use podbay_fsops::{Cancel, Files};
use podbay_proto::body::{Incoming, MessageBody};
use podbay_proto::files::{Delete, Download, Edit, Glob, Grep, Ls, Mkdir, Move, Read, Stat, Tree, Write};
use podbay_proto::message::{MAX_REQUEST, decode_head};
use podbay_proto::session::{Hello, Lifetime, Protections, REQUEST_ID, TOKEN};
use podbay_proto::{Error, ErrorCode, Operation, Result, VERSION, exec};

use super::reply::Reply;
use super::tcp::Authorization;
use super::{Daemon, execs, files, session};
use crate::shim_protocol::MAX_INPUT;

/// The most that `edit` takes: it keeps the file and both texts in memory.
const MAX_EDIT: usize = 256 << 20;

/// A request whose head has been read.
struct Call<B> {
    daemon: Arc<Daemon>,
    name: String,
    /// By what a repeated request is recognised.
    id: Option<String>,
    body: Incoming<B>,
}

/// Makes the table of routes from lines `Operation => method(function)`: the method of [`Call`] that answers the request, and the
/// function that does the work. A function that takes another operation's request doesn't compile.
macro_rules! routes {
    ($($operation:ty => $answer:ident($($argument:expr),+),)+) => {
        /// The names of all operations that are served.
        #[cfg(test)]
        const ROUTES: &[&str] = &[$(<$operation as Operation>::NAME),+];

        async fn dispatch<B>(call: Call<B>) -> Result<Reply>
        where
            B: Body<Data = Bytes> + Unpin + Send + 'static,
            B::Error: std::fmt::Display,
        {
            match call.name.as_str() {
                $(<$operation as Operation>::NAME => call.$answer::<$operation, _>($($argument),+).await,)+
                name => Err(unknown(name)),
            }
        }
    };
}

// A new operation is one line here.
routes! {
    Hello => answer(session::hello),
    Protections => answer(session::protections),
    Lifetime => answer(session::lifetime),
    exec::Start => answer(execs::start),
    exec::Run => answer(execs::run),
    exec::Attach => answer(execs::attach),
    exec::Status => answer(execs::status),
    exec::List => answer(execs::list),
    exec::Input => answer_with_payload(MAX_INPUT, execs::input),
    exec::Signal => answer_once(execs::signal),
    Read => answer(files::read),
    Download => answer(files::download),
    Ls => answer(|daemon, request| files::search(daemon, request, Files::ls)),
    Glob => answer(|daemon, request| files::search(daemon, request, Files::glob)),
    Grep => answer(|daemon, request| files::search(daemon, request, Files::grep)),
    Tree => answer(|daemon, request| files::search(daemon, request, Files::tree)),
    Stat => answer(|daemon, request| files::quick(daemon, request, Files::stat)),
    Mkdir => answer_once(|daemon, request| files::quick(daemon, request, Files::mkdir)),
    Move => answer_once(|daemon, request| files::slow(daemon, request, Files::mv)),
    Delete => answer_once(|daemon, request| files::slow(daemon, request, delete)),
    Write => answer_stream_once(files::write),
    Edit => answer_once_with_payload(MAX_EDIT, files::edit),
}

fn delete(files: &Files, request: &Delete) -> Result<<Delete as Operation>::Output> {
    // What was begun is finished: a directory that is half deleted serves nobody.
    files.delete(request, &Cancel::new())
}

/// Operations that only look at the sandbox, to list or describe it or to find idle ones: they don't count as activity.
const NO_ACTIVITY: [&str; 2] = [Hello::NAME, Protections::NAME];

/// Serves one request.
pub async fn serve<B>(
    daemon: Arc<Daemon>,
    request: Request<B>,
    authorization: Option<Arc<Authorization>>,
) -> Result<Response<MessageBody>, Infallible>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    if let Some(authorization) = authorization {
        // Nothing that a stranger does counts as activity.
        let shown = request.headers().get(TOKEN).and_then(|value| value.to_str().ok());
        if let Err(error) = authorization.check(shown) {
            return Ok(Reply::from(Err(error)).into_response());
        }
    }
    let counts = !NO_ACTIVITY.iter().any(|name| request.uri().path().ends_with(name));
    let _activity = counts.then(|| daemon.activity.begin());
    Ok(Reply::from(answer(&daemon, request).await).into_response())
}

async fn answer<B>(daemon: &Arc<Daemon>, request: Request<B>) -> Result<Reply>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let id = header(REQUEST_ID).map(str::to_owned);
    let name = operation_name(request.method(), request.uri().path())?.to_owned();
    let body = Incoming::read(request.into_body(), MAX_REQUEST).await?;
    dispatch(Call { daemon: daemon.clone(), name, id, body }).await
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

/// How an operation is answered. Each takes the function that serves it.
impl<B> Call<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    /// Reads the request and answers it.
    async fn answer<O: Operation, F>(self, serve: impl FnOnce(Arc<Daemon>, O) -> F) -> Result<Reply>
    where
        F: Future<Output = Result<Reply>>,
    {
        serve(self.daemon, decode_head(&self.body.head)?).await
    }

    /// The same for a request with a payload of at most `most` bytes.
    async fn answer_with_payload<O: Operation, F>(
        mut self,
        most: usize,
        serve: impl FnOnce(Arc<Daemon>, O, Bytes) -> F,
    ) -> Result<Reply>
    where
        F: Future<Output = Result<Reply>>,
    {
        let request = decode_head(&self.body.head)?;
        serve(self.daemon, request, self.body.collect(most).await?).await
    }

    /// For a request that changes something: a repeat of it is answered from the replay cache.
    async fn answer_once<O: Operation, F>(self, serve: impl FnOnce(Arc<Daemon>, O) -> F) -> Result<Reply>
    where
        F: Future<Output = Result<Reply>> + Send + 'static,
    {
        self.answer_stream_once(|daemon, request, _| serve(daemon, request)).await
    }

    /// The same for a request with a payload of at most `most` bytes.
    async fn answer_once_with_payload<O, F>(
        self,
        most: usize,
        serve: impl FnOnce(Arc<Daemon>, O, Bytes) -> F + Send + 'static,
    ) -> Result<Reply>
    where
        O: Operation + Send + 'static,
        F: Future<Output = Result<Reply>> + Send + 'static,
    {
        self.answer_stream_once(async move |daemon, request, mut body: Incoming<B>| {
            serve(daemon, request, body.collect(most).await?).await
        })
        .await
    }

    /// The same for a request whose payload is still arriving.
    async fn answer_stream_once<O: Operation, F>(
        self,
        serve: impl FnOnce(Arc<Daemon>, O, Incoming<B>) -> F,
    ) -> Result<Reply>
    where
        F: Future<Output = Result<Reply>> + Send + 'static,
    {
        let Self { daemon, name, id, body } = self;
        let request = decode_head(&body.head)?;
        let answer = serve(daemon.clone(), request, body);
        match id {
            Some(id) => Ok(daemon.replay_cache.once(format!("{name} {id}"), answer, was_served).await),
            None => answer.await,
        }
    }
}

/// A request whose body was cut off has changed nothing.
fn was_served(result: &Result<Reply>) -> bool {
    !matches!(result, Err(error) if error.code == ErrorCode::BadMessage)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use podbay_proto::OPERATIONS;

    use super::*;

    #[test]
    fn every_operation_has_exactly_one_route() {
        let operations: BTreeSet<&str> = OPERATIONS.iter().map(|operation| operation.name).collect();
        let routes: BTreeSet<&str> = ROUTES.iter().copied().collect();
        assert_eq!(routes, operations, "left: served by podbayd; right: the protocol's table");
        assert_eq!(routes.len(), ROUTES.len(), "an operation has two routes");
    }
}
