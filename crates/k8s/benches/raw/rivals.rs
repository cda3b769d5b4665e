//! How the same is done without Podbay.

use std::path::Path;
use std::process::Stdio;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, ListParams};
use podbay_k8s::Container;
use podbay_k8s::channel::exec::ExecChannel;
use podbay_k8s::raw::CONTAINER;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Bench;

/// The pod of one sandbox, used directly.
pub struct Rivals<'a> {
    bench: &'a Bench,
    pub pods: Api<Pod>,
    pub pod: String,
    channel: ExecChannel,
}

impl<'a> Rivals<'a> {
    pub async fn of(bench: &'a Bench, id: &str) -> Self {
        let client = bench.namespace.client();
        let pods: Api<Pod> = Api::namespaced(client.clone(), bench.namespace.name());
        let about = ListParams::default().labels(&format!("podbay.dev/sandbox={id}"));
        let pod = pods.list(&about).await.unwrap().items.remove(0);
        let (name, uid) = (pod.metadata.name.unwrap(), pod.metadata.uid.unwrap());
        let namespace = bench.namespace.name().to_owned();
        let container = Container { namespace, pod: name.clone(), uid, name: CONTAINER.into() };
        Self { bench, pods, pod: name, channel: ExecChannel::new(client, container, "/workspace") }
    }

    /// The way to another pod.
    pub async fn channel_to(&self, pod: &str) -> ExecChannel {
        let uid = self.pods.get(pod).await.unwrap().metadata.uid.unwrap();
        let namespace = self.bench.namespace.name().to_owned();
        let container = Container { namespace, pod: pod.to_owned(), uid, name: CONTAINER.into() };
        ExecChannel::new(self.bench.namespace.client(), container, "/workspace")
    }

    /// One exec by the API, as the packages do it for every operation.
    pub async fn api_exec(&self, command: &[&str]) -> Vec<u8> {
        let parameters = AttachParams::default().stderr(false);
        let mut process = self.pods.exec(&self.pod, command.iter().copied(), &parameters).await.unwrap();
        let status = process.take_status().unwrap();
        let mut output = Vec::new();
        process.stdout().unwrap().read_to_end(&mut output).await.unwrap();
        assert_eq!(status.await.unwrap().status.as_deref(), Some("Success"));
        output
    }

    pub fn kubectl(&self, arguments: &[&str]) {
        let mut kubectl = self.bench.cluster.kubectl();
        kubectl.args(["--namespace", self.bench.namespace.name()]).args(arguments);
        assert!(kubectl.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    }

    pub fn kubectl_exec(&self, command: &[&str]) {
        self.kubectl(&[&["exec", &self.pod, "--"], command].concat());
    }

    /// Sends a file into `cat`.
    pub async fn cat_up(&self, local: &Path) {
        let mut stream = self.channel.start(&["sh", "-c", "cat > /workspace/bare; echo done"]).await.unwrap();
        let mut file = tokio::fs::File::open(local).await.unwrap();
        let mut buffer = vec![0; 256 << 10];
        loop {
            match file.read(&mut buffer).await.unwrap() {
                0 => break,
                count => stream.write_all(&buffer[..count]).await.unwrap(),
            }
        }
        stream.shutdown().await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "done\n");
    }

    /// Takes a file from `cat`.
    pub async fn cat_down(&self, local: &Path, size: u64) {
        let mut stream = self.channel.start(&["cat", "/workspace/bare"]).await.unwrap();
        let mut file = tokio::fs::File::create(local).await.unwrap();
        let mut buffer = vec![0; 256 << 10];
        let mut total = 0;
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => break,
                count => {
                    file.write_all(&buffer[..count]).await.unwrap();
                    total += count as u64;
                }
            }
        }
        file.flush().await.unwrap();
        assert_eq!(total, size);
    }

    /// A way to send a line through an open exec and get it back: what the way itself costs.
    pub async fn echo(&self) -> Echo {
        Echo(self.channel.start(&["cat"]).await.unwrap())
    }
}

pub struct Echo(podbay_k8s::channel::exec_stream::ExecStream);

impl Echo {
    pub async fn there_and_back(&mut self) {
        let line = [b'x'; 192];
        self.0.write_all(&line).await.unwrap();
        self.0.flush().await.unwrap();
        self.0.read_exact(&mut [0; 192]).await.unwrap();
    }
}
