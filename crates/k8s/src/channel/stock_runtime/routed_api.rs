//! The stock runtime's API through the router.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::api::{ApiFailure, Executed, RuntimeApi};
use crate::channel::exec::ExecChannel;
use crate::channel::router::Router;
use crate::channel::router::runtime_http::HttpConnection;
use crate::error::Result;

/// The port of sandboxd, upstream's other runtime.
const SANDBOXD: u16 = 8080;

/// What the Python runtime says of itself.
const ACTIVE: &str = "Sandbox Runtime is active.";

/// How long an answer may take. The Go router waits half a minute for it to begin, and nothing here is asked to take longer.
const ANSWER: Duration = Duration::from_secs(40);

/// How long the upload of a file may take: podbayd itself has a few megabytes.
const UPLOAD: Duration = Duration::from_secs(120);

/// The largest answer to a command: a mebibyte in base64, and room for what is around it.
const LARGEST_ANSWER: usize = 2 << 20;

/// How many idle connections to the router are kept for one sandbox.
const KEPT: usize = 4;

/// What runs in a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runtime {
    Python,
    Sandboxd,
    Unknown,
}

/// The runtime in one pod.
pub(crate) struct RoutedApi {
    router: Arc<Router>,
    /// Knows the pod, and whether it is still the one that is meant.
    exec: ExecChannel,
    idle: Mutex<Vec<HttpConnection>>,
}

impl std::fmt::Debug for RoutedApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoutedApi").field("container", self.exec.container()).finish_non_exhaustive()
    }
}

impl RoutedApi {
    /// The runtime in the pod that `exec` leads to; nothing goes through exec.
    pub(crate) fn new(router: Arc<Router>, exec: ExecChannel) -> Self {
        Self { router, exec, idle: Mutex::default() }
    }

    /// Checks that the pod is the one that is meant.
    pub(super) async fn check(&self) -> Result<()> {
        self.exec.check_address().await.map(drop)
    }

    /// The pod, for messages.
    pub(super) fn pod(&self) -> &str {
        &self.exec.container().pod
    }

    /// The router and the pod, for messages.
    pub(super) fn place(&self) -> String {
        format!("port {} of the pod {} through {}", self.router.runtime_port, self.pod(), self.router.place())
    }

    /// What answers in the pod.
    pub(super) async fn runtime(&self) -> Runtime {
        if self.says(self.router.runtime_port, "/").await["message"] == ACTIVE {
            return Runtime::Python;
        }
        match self.says(SANDBOXD, "/v1/health").await["uptime_seconds"].is_number() {
            true => Runtime::Sandboxd,
            false => Runtime::Unknown,
        }
    }

    /// What a port of the pod says of itself.
    async fn says(&self, port: u16, path: &str) -> Value {
        let Ok(request) = Request::get(path).body(Full::default()) else { return Value::Null };
        let body = self.ask(port, request, ANSWER).await.unwrap_or_default();
        serde_json::from_slice(&body).unwrap_or_default()
    }

    /// Sends a request. Every request here may be sent twice, so a connection that was closed meanwhile is no failure.
    async fn send(
        &self,
        port: u16,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, HttpConnection), ApiFailure> {
        let unavailable = |why: String| ApiFailure::Unavailable(why);
        // Another pod may have the address by now.
        let ip = self.exec.check_address().await.map_err(|error| match error.is_final() {
            true => ApiFailure::Refused(error.to_string()),
            false => unavailable(error.to_string()),
        })?;
        let ip = ip.ok_or_else(|| unavailable("the pod has no address".into()))?;
        let mut kept = self.take_idle();
        let tries = usize::from(kept.is_some()) + 1;
        for left in (0..tries).rev() {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.router.connect_http().await.map_err(unavailable)?,
            };
            let container = self.exec.container();
            match self.router.send_http(&mut connection, container, ip, port, request.clone()).await {
                Ok(response) => return Ok((response, connection)),
                Err(why) if left == 0 => return Err(unavailable(why)),
                Err(why) => tracing::debug!(why, "sending a request to the router again"),
            }
        }
        Err(unavailable("no connection".into()))
    }

    fn take_idle(&self) -> Option<HttpConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if connection.is_open() {
                return Some(connection);
            }
        }
        None
    }

    fn keep(&self, connection: HttpConnection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(connection);
        }
    }

    /// Sends a request to a port of the pod, and reads the answer.
    async fn ask(&self, port: u16, request: Request<Full<Bytes>>, limit: Duration) -> Result<Bytes, ApiFailure> {
        let work = async {
            let (response, connection) = self.send(port, request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
            let body = body.map_err(|error| ApiFailure::Unavailable(format!("the answer can't be read: {error}")))?;
            self.keep(connection);
            match status {
                StatusCode::OK => Ok(body.to_bytes()),
                status => Err(refusal(status, &body.to_bytes())),
            }
        };
        let late = |_| Err(ApiFailure::Unavailable(format!("no answer in {} s", limit.as_secs())));
        timeout(limit, work).await.unwrap_or_else(late)
    }

    async fn post(&self, path: &str, kind: &str, body: impl Into<Bytes>, limit: Duration) -> Result<Bytes, ApiFailure> {
        let request = Request::post(path).header(header::CONTENT_TYPE, kind).body(Full::new(body.into()));
        let request = request.map_err(|error| ApiFailure::Refused(error.to_string()))?;
        self.ask(self.router.runtime_port, request, limit).await
    }
}

/// What a status means that isn't 200.
fn refusal(status: StatusCode, body: &[u8]) -> ApiFailure {
    let said: String = String::from_utf8_lossy(body).chars().take(300).collect();
    let message = format!("status {status}: {}", said.trim());
    match status.as_u16() {
        // The router couldn't reach the pod, or is about to go.
        408 | 429 | 500..=599 => ApiFailure::Unavailable(message),
        401 | 403 => ApiFailure::Refused(format!(
            "{message}; check agent_sandbox.router_token_file or agent_sandbox.router_scoped_key_file"
        )),
        _ => ApiFailure::Refused(message),
    }
}

impl RuntimeApi for RoutedApi {
    async fn execute(&self, words: &[String]) -> Result<Executed, ApiFailure> {
        let body = json!({"command": command_line(words)}).to_string();
        let answer = self.post("/execute", "application/json", body, ANSWER).await?;
        serde_json::from_slice(&answer).map_err(|error| ApiFailure::Refused(format!("the runtime's answer: {error}")))
    }

    async fn upload(&self, path: &str, content: Bytes) -> Result<(), ApiFailure> {
        // Nothing in the content can look like it.
        let boundary = format!("podbay{:032x}", rand::random::<u128>());
        let head =
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{path}\"\r\n\r\n");
        let body = [head.as_bytes(), &content, format!("\r\n--{boundary}--\r\n").as_bytes()].concat();
        let kind = format!("multipart/form-data; boundary={boundary}");
        self.post("/upload", &kind, body, UPLOAD).await.map(drop)
    }
}

/// One line that the runtime splits into these words again.
fn command_line(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for (status, again) in
            [(502, true), (504, true), (500, true), (403, false), (401, false), (404, false), (422, false)]
        {
            let failure = refusal(StatusCode::from_u16(status).unwrap(), b"why");
            assert_eq!(matches!(failure, ApiFailure::Unavailable(_)), again, "{status}");
            assert!(failure.to_string().contains("why"));
        }
    }

    #[test]
    fn a_command_line_is_split_into_its_words_again() {
        let words = ["sh", "-c", "echo 'a' \"$0\" \\\n$1", "", "x y"].map(str::to_owned);
        let line = command_line(&words);
        assert_eq!(line, "'sh' '-c' 'echo '\\''a'\\'' \"$0\" \\\n$1' '' 'x y'");
        // A shell understands it the same way.
        let printed = std::process::Command::new("sh").args(["-c", &format!("printf '[%s]' {line}")]).output().unwrap();
        let expected: String = words.iter().map(|word| format!("[{word}]")).collect();
        assert_eq!(String::from_utf8(printed.stdout).unwrap(), expected);
    }
}
