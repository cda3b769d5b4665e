//! pods/exec: needs no router, and works with every container runtime.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use kube::core::Request;
use podbay_client::{ByteStream, Channel, Opening};

use super::exec_stream::ExecStream;
use super::websocket;
use crate::bootstrap;
use crate::error::{Error, Result};
use crate::pod::health;

/// How long the API server may take to answer. Without an end a connection that hangs would never be given up.
const ANSWER: Duration = Duration::from_secs(20);

/// A container of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID: another pod of that name isn't this one.
    pub uid: String,
    /// The container's name.
    pub name: String,
}

/// Reaches the podbayd in a container, and puts it there when there is none.
#[derive(Clone)]
pub struct ExecChannel {
    client: kube::Client,
    container: Container,
    start: bootstrap::Start,
    /// Whether it was ever opened.
    opened: Arc<AtomicBool>,
}

impl ExecChannel {
    /// A channel to a container, in which commands start in `workdir`.
    pub fn new(client: kube::Client, container: Container, workdir: impl Into<String>) -> Self {
        let start = bootstrap::Start { workdir: workdir.into(), ..bootstrap::Start::default() };
        Self { client, container, start, opened: Arc::default() }
    }

    /// The same container by another way to the cluster.
    #[must_use]
    pub fn with_client(mut self, client: kube::Client) -> Self {
        self.client = client;
        self
    }

    /// Lets commands have all system calls that the container has, if podbayd isn't running yet.
    #[must_use]
    pub fn without_command_filter(mut self) -> Self {
        self.start.without_command_filter = true;
        self
    }

    /// Has podbayd end the container when its time is up, if it isn't running yet.
    #[must_use]
    pub(crate) fn ending_after(mut self, limits: bootstrap::Limits) -> Self {
        self.start.limits = Some(limits);
        self
    }

    /// Starts a process in the container.
    ///
    /// # Errors
    /// When the API server refuses, or the pod isn't the one that is meant.
    pub async fn start(&self, command: &[&str]) -> Result<ExecStream> {
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
        let (socket, subprotocol) = websocket::upgrade(&self.client, "exec in the pod", request).await?;
        Ok(ExecStream::new(socket, subprotocol))
    }

    /// An exec can't ask for a UID, so that is looked at first. It also tells a pod that is gone from one that is slow.
    async fn check(&self) -> Result<()> {
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
            None => Ok(()),
        }
    }

    async fn connect(&self) -> Result<ExecStream> {
        let command = bootstrap::command(&self.start);
        let mut stream = self.start(&command.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        bootstrap::run(&mut stream).await?;
        Ok(stream)
    }
}

impl std::fmt::Debug for ExecChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecChannel").field("container", &self.container).finish_non_exhaustive()
    }
}

impl Channel for ExecChannel {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            match self.connect().await {
                Ok(stream) => {
                    self.opened.store(true, Ordering::Relaxed);
                    Ok(Box::new(stream) as Box<dyn ByteStream>)
                }
                // An API server that has just been started doesn't know its roles yet, and refuses what it allowed before.
                Err(error @ Error::PermissionDenied { .. }) if self.opened.load(Ordering::Relaxed) => {
                    Err(io::Error::other(error))
                }
                // As a client's error it is final: the session doesn't try again.
                Err(error) if error.is_final() => Err(io::Error::other(podbay_client::Error::from(error))),
                Err(error) => Err(io::Error::other(error)),
            }
        })
    }
}
