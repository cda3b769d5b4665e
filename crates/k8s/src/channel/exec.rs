//! pods/exec: needs no router, and works with every container runtime.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use kube::core::Request;
use podbay_client::{Channel, Opening};

use super::exec_stream::ExecStream;
use super::{Dial, DialedChannel, kube_upgrade};
use crate::bootstrap::{self, BootstrapFailure, LaunchOptions, Listen};
use crate::error::{Error, Result};
use crate::lifetime::LifetimeLimits;
use crate::pod::container::{Container, address};
use crate::pod::health;

/// How long the API server may take to answer. Without a limit a connection that hangs would never be given up.
const ANSWER: Duration = Duration::from_secs(20);

/// How long a caller's own check of the pod counts. A sandbox may be opened long after it was found, and another pod may have the
/// name by then.
const CHECK_LASTS: Duration = Duration::from_secs(1);

/// Reaches the podbayd in a container through pods/exec, and puts it there if it isn't.
#[derive(Debug, Clone)]
pub struct ExecChannel(DialedChannel<Exec>);

impl ExecChannel {
    /// A channel to a container, in which commands start in `workdir`: a directory that the container has, if it is empty.
    pub fn new(client: kube::Client, container: Container, workdir: impl Into<String>) -> Self {
        let launch = LaunchOptions { workdir: workdir.into(), ..LaunchOptions::default() };
        Self(DialedChannel::new(Exec { client, container, launch, checked: Arc::default() }))
    }

    /// The caller has just checked that the pod is the one that is meant, and what its address is: a stream that is opened at
    /// once needn't.
    #[must_use]
    pub(crate) fn checked_just_now(self, pod: &Pod) -> Self {
        self.0.dial.note(pod);
        self
    }

    /// The container that it leads to.
    pub(crate) fn container(&self) -> &Container {
        &self.0.dial.container
    }

    /// How podbayd is started there.
    pub(crate) fn launch(&self) -> &LaunchOptions {
        &self.0.dial.launch
    }

    /// Has podbayd listen on TCP, if it isn't running yet.
    #[must_use]
    pub(crate) fn listening(mut self, listen: Listen) -> Self {
        self.0.dial.launch.listen = Some(listen);
        self
    }

    /// Checks the pod unless that was just done, and says what its address is.
    ///
    /// # Errors
    /// When it isn't the pod that is meant, or can't be asked for.
    pub(crate) async fn check_address(&self) -> Result<Option<IpAddr>> {
        let dial = &self.0.dial;
        if let Some(checked) = dial.checked().as_ref().filter(|checked| checked.still_counts()) {
            return Ok(checked.address);
        }
        let pod = dial.look().await?;
        dial.note(&pod);
        Ok(address(&pod))
    }

    /// Opens a stream to podbayd, starting it if it isn't running.
    pub(crate) async fn dial(&self) -> Result<ExecStream> {
        self.0.dial.dial().await
    }

    /// The same container through another client.
    #[must_use]
    pub fn with_client(mut self, client: kube::Client) -> Self {
        self.0.dial.client = client;
        self
    }

    /// Lets commands have every system call that the container has, if podbayd isn't running yet.
    #[must_use]
    pub fn without_command_filter(mut self) -> Self {
        self.0.dial.launch.without_command_filter = true;
        self
    }

    /// Has podbayd end the container when the sandbox's time is up, if it isn't running yet. See
    /// [`LaunchOptions::ends_container`].
    #[must_use]
    pub(crate) fn ending_container_after(mut self, limits: LifetimeLimits) -> Self {
        self.0.dial.launch.ends_container = Some(limits);
        self
    }

    /// Starts a process in the container.
    ///
    /// # Errors
    /// When the API server refuses, or the pod isn't the one that is meant.
    pub async fn start(&self, command: &[&str]) -> Result<ExecStream> {
        self.0.dial.start(command).await
    }
}

impl Channel for ExecChannel {
    fn open(&self) -> Opening<'_> {
        self.0.open()
    }
}

/// Dials a container through pods/exec.
#[derive(Clone)]
struct Exec {
    client: kube::Client,
    container: Container,
    launch: LaunchOptions,
    /// The last check of the pod, if no exec has followed it.
    checked: Arc<Mutex<Option<Checked>>>,
}

/// A pod that was found to be the one that is meant.
#[derive(Debug)]
struct Checked {
    when: Instant,
    address: Option<IpAddr>,
}

impl Checked {
    fn still_counts(&self) -> bool {
        self.when.elapsed() < CHECK_LASTS
    }
}

impl Exec {
    async fn start(&self, command: &[&str]) -> Result<ExecStream> {
        let late = |_| Error::Upgrade { what: "exec", reason: format!("no answer in {} s", ANSWER.as_secs()) };
        tokio::time::timeout(ANSWER, self.open_stream(command)).await.map_err(late)?
    }

    async fn open_stream(&self, command: &[&str]) -> Result<ExecStream> {
        self.check().await?;
        let Container { namespace, pod, name, .. } = &self.container;
        let parameters = AttachParams::default().stdin(true).stdout(true).stderr(true).container(name);
        let request = Request::new(format!("/api/v1/namespaces/{namespace}/pods"))
            .exec(pod, command.iter().copied(), &parameters)
            .map_err(|error| Error::Upgrade { what: "exec", reason: error.to_string() })?;
        let (socket, subprotocol) = kube_upgrade::upgrade(&self.client, "exec in the pod", request).await?;
        Ok(ExecStream::new(socket, subprotocol))
    }

    /// An exec can't ask for a UID, so the pod is checked first. That also tells a pod that is gone from one that is slow.
    async fn check(&self) -> Result<()> {
        let checked = self.checked().take();
        if checked.is_some_and(|checked| checked.still_counts()) {
            return Ok(());
        }
        self.look().await.map(drop)
    }

    fn checked(&self) -> MutexGuard<'_, Option<Checked>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, pod: &Pod) {
        *self.checked() = Some(Checked { when: Instant::now(), address: address(pod) });
    }

    async fn look(&self) -> Result<Pod> {
        let Container { namespace, pod: name, uid, .. } = &self.container;
        let gone = |how: &str| Error::PodGone { pod: format!("{namespace}/{name}"), how: how.to_owned() };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = pods.get_opt(name).await.map_err(Error::api("get the pod"))?.ok_or_else(|| gone("it was deleted"))?;
        if pod.metadata.uid.as_deref() != Some(uid) {
            return Err(gone("another pod has its name now"));
        }
        if let Some(how) = health::ending(&pod, &self.container.name) {
            return Err(gone(&how));
        }
        match health::lost_node(&pod, &self.container.name) {
            Some(node) => Err(Error::NodeLost { pod: format!("{namespace}/{name}"), node }),
            None => Ok(pod),
        }
    }
}

impl std::fmt::Debug for Exec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exec").field("container", &self.container).finish_non_exhaustive()
    }
}

impl Dial for Exec {
    type Stream = ExecStream;

    async fn dial(&self) -> Result<ExecStream> {
        let command = bootstrap::command(&self.launch);
        let mut stream = self.start(&command.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        match bootstrap::run(&mut stream).await {
            Ok(()) => Ok(stream),
            Err(BootstrapFailure::Refused(error)) => Err(error),
            Err(BootstrapFailure::Failed(why)) => Err(Error::Bootstrap(format!("{why}{}", printed(&stream)))),
            Err(BootstrapFailure::Ended) => Err(ended(&stream)),
        }
    }
}

/// Why the shell ended, by what the API server reports.
fn ended(stream: &ExecStream) -> Error {
    let why = stream.ended().map(|ended| ended.message.clone()).unwrap_or_default();
    match says_no_shell(&why) {
        true => Error::MissingTools("sh".into()),
        false => {
            Error::Bootstrap(format!("the container's shell ended before podbayd started: {why}{}", printed(stream)))
        }
    }
}

/// Whether an API server's message says that the container has no `sh`, in the words of runc and crun.
fn says_no_shell(message: &str) -> bool {
    ["executable file not found", "executable file `sh` not found", "\"sh\": stat", "no such file or directory"]
        .iter()
        .any(|words| message.contains(words))
}

/// What the shell printed on standard error, as part of a message.
fn printed(stream: &ExecStream) -> String {
    match stream.stderr() {
        text if text.is_empty() => String::new(),
        text => format!("; it printed: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// crun's words weren't known, and users read "Internal error occurred: Internal error occurred: …".
    #[test]
    fn an_image_without_a_shell_is_recognized_on_runc_and_crun() {
        for said in [
            "exec failed: unable to start container process: exec: \"sh\": executable file not found in $PATH",
            "exec failed: unable to start container process: exec: \"sh\": stat sh: no such file or directory",
            "OCI runtime exec failed: executable file `sh` not found in $PATH: No such file or directory: unknown",
        ] {
            assert!(says_no_shell(&format!("failed to start exec \"a1\": {said}")), "{said}");
        }
        assert!(!says_no_shell("container not running (a1)"));
    }
}
