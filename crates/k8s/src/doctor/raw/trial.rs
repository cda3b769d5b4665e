//! Starts three short-lived sandboxes, to see whether they start and whether network rules are enforced.
//!
//! Two have no rules, and one has rules that let nothing through. A connection between the first two must succeed, or else a
//! failed one proves nothing; connections from and to the third must fail.

use std::time::{Duration, Instant};

use futures_util::future::join3;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use podbay_client::provider::{Provider, Wanted};
use podbay_client::{Command, Sandbox};
use podbay_proto::layout::{PROGRAM, STATE_DIR};

use super::{RawExamination, labels, pod_view};
use crate::doctor::address::{RunningPod, address as try_address};
use crate::doctor::protection::protection;
use crate::doctor::report::{CheckState, Finding};
use crate::error::{Error, Result};
use crate::keys;
use crate::names::SANDBOX;
use crate::pod::container::{Container, address as address_of};
use crate::raw::manifest::CONTAINER;
use crate::raw::{Config, Raw};

/// The sandboxes of a trial: two without rules, and one with.
pub(super) const NAMES: [&str; 3] = ["open", "other", "closed"];

/// How long they live if nobody deletes them.
const BACKSTOP: Duration = Duration::from_secs(600);

/// The port that one listens on.
const PORT: u16 = 8971;

/// How long rules may take until they are enforced, and a listener until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tries to connect with whatever tool the image has. Exits with 0, 1 or, without a tool, 99.
const CONNECT: &str = r#"
if command -v python3 >/dev/null; then
  exec python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)' "$0" "$1" 2>/dev/null
elif command -v bash >/dev/null; then exec bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$0" "$1" 2>/dev/null
elif command -v nc >/dev/null; then exec nc -w 2 "$0" "$1" </dev/null >/dev/null 2>&1
elif command -v curl >/dev/null; then
  curl -sm 2 -o /dev/null "telnet://$0:$1" </dev/null; case $? in 6|7|28) exit 1;; esac; exit 0
fi
exit 99"#;

/// Listens with podbayd, which every sandbox has. Nobody knows its token.
fn listen_script() -> String {
    format!(
        r#"
podbayd={STATE_DIR}/{PROGRAM}; [ -x "$podbayd" ] || podbayd={PROGRAM}
mkdir -p .doctor && exec "$podbayd" serve --state .doctor --listen "$0""#
    )
}

pub(super) struct Started {
    pub(super) sandbox: Sandbox,
    pub(super) address: String,
    /// Those of the pod and its node.
    pub(super) addresses: Vec<String>,
    /// What became of the attempt to reach podbayd at the pod's own address.
    own: Finding,
}

enum Tried {
    Connected,
    Refused,
    NoTool,
}

impl RawExamination {
    /// Starts the sandboxes, tries them, and removes them.
    pub(super) async fn try_sandboxes(&self) -> Vec<Finding> {
        let mut findings = self.tried().await;
        if let Err(error) = self.remove_trial().await {
            let detail = format!("can't remove those of this trial: {error}");
            let fix = format!(
                "they end by themselves after {} minutes; then: podbay reap --mode raw",
                BACKSTOP.as_secs() / 60
            );
            findings.push(Finding::new("leftovers", "expired sandboxes", CheckState::Warning, detail).fix(fix));
        }
        findings
    }

    async fn tried(&self) -> Vec<Finding> {
        let begun = Instant::now();
        let [open, other, closed] = NAMES;
        let rules = self.config.block_network;
        let started = match rules {
            true => {
                let all = join3(self.start(open, false), self.start(other, false), self.start(closed, true)).await;
                all.0.and_then(|open| Ok((open, Some((all.1?, all.2?)))))
            }
            false => self.start(open, false).await.map(|open| (open, None)),
        };
        let what = format!("starting a sandbox from {}", self.config.image);
        match started {
            Err(error) => {
                let fix = remedy(&error, &self.config);
                let why = "skipped: no sandbox starts";
                vec![
                    Finding::new("start", what, CheckState::Failed, error.to_string()).fix(fix),
                    Finding::new("protection", "commands and podbayd", CheckState::Skipped, why),
                    Finding::new("network", "network rules", CheckState::Skipped, why),
                ]
            }
            Ok((open, more)) => {
                let detail = format!("runs commands after {:.1} s, image pull included", begun.elapsed().as_secs_f64());
                let protection = protection(&open.sandbox).await;
                let network = match &more {
                    Some((other, closed)) => self.network(&open, other, closed).await,
                    None => open_network(),
                };
                let mut findings =
                    vec![Finding::new("start", what, CheckState::Ok, detail), protection, open.own.clone(), network];
                findings.push(self.ranges(&open).await);
                findings.push(self.user_namespace(&open).await);
                findings
            }
        }
    }

    async fn start(&self, name: &str, rules: bool) -> Result<Started> {
        let config = Config {
            block_network: rules,
            egress: Vec::new(),
            ingress: Vec::new(),
            ttl: None,
            idle_ttl: None,
            // The three are created side by side in this namespace, not taken from a pool.
            warm_pool_size: 0,
            namespace_per_sandbox: false,
            ..self.config.clone()
        };
        let raw = Raw::new(self.cluster.clone(), config)?;
        let id = self.sandbox_id(name);
        let wanted = Wanted { id: Some(id.clone()), labels: labels(), ttl: Some(BACKSTOP), ..Wanted::default() };
        let made = raw.get_or_create(&wanted).await.map_err(Error::Unusable)?;
        made.sandbox.run("true").await.map_err(Error::Unusable)?;
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let ours = pods.list(&ListParams::default().labels(&format!("{SANDBOX}={id}"))).await;
        let ours = ours.map_err(Error::api("list the pods"))?;
        let pod = ours.items.into_iter().find(|pod| address_of(pod).is_some());
        let pod = pod.ok_or_else(|| Error::NoAddress(id))?;
        let status = pod.status.clone().unwrap_or_default();
        let address = status.pod_ip.clone().unwrap_or_default();
        let addresses = pod_view::addresses(&status);
        let listen = format!("{}:{PORT}", bracketed(&address));
        let mut command = Command::argv(["sh", "-c", &listen_script(), listen.as_str()]);
        command.env.extend(keys::listen_for_nobody().map(|(name, value)| (name.to_owned(), value.into())));
        made.sandbox.start(command).await.map_err(Error::Unusable)?;
        let container = Container {
            namespace: self.cluster.namespace.clone(),
            pod: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            name: CONTAINER.to_owned(),
        };
        let own = try_address(raw.addresses(), &RunningPod { container, ip: address_of(&pod) }).await;
        Ok(Started { sandbox: made.sandbox, address, addresses, own })
    }

    async fn network(&self, open: &Started, other: &Started, closed: &Started) -> Finding {
        match self.network_tried(open, other, closed).await {
            Ok(finding) => finding,
            Err(error) => {
                Finding::new("network", "network rules", CheckState::Warning, format!("can't be tested: {error}"))
                    .fix("try again; if it still fails, use an image with python3, bash, nc or curl")
            }
        }
    }

    async fn network_tried(&self, open: &Started, other: &Started, closed: &Started) -> Result<Finding> {
        let finding = |state, detail: String| Ok(Finding::new("network", "network rules", state, detail));
        // The listener has to come up first.
        match until(true, || connect(other, &open.address)).await? {
            Some(_) => {}
            None if no_tool(connect(other, &open.address).await?) => {
                return finding(
                    CheckState::Skipped,
                    "can't be tested: the image has none of python3, bash, nc and curl".into(),
                );
            }
            None => {
                return finding(
                    CheckState::Warning,
                    "two sandboxes without rules can't reach each other, so the test proves nothing: another policy \
                     in the namespace forbids it, or pods can't reach each other at all"
                        .into(),
                )
                .map(|finding| finding.fix(format!("kubectl get networkpolicy -n {}", self.cluster.namespace)));
            }
        }
        let out = until(false, || connect(closed, &open.address)).await?;
        let into = until(false, || connect(other, &closed.address)).await?;
        match (out, into) {
            (Some(out), Some(into)) if out.max(into) < Duration::from_secs(1) => {
                finding(CheckState::Ok, "enforced in both directions".into())
            }
            (Some(out), Some(into)) => finding(
                CheckState::Warning,
                format!(
                    "enforced, but only {:.0} s after a sandbox starts: its first connections aren't blocked",
                    out.max(into).as_secs_f64()
                ),
            )
            .map(|finding| {
                finding.fix(
                    "ask the cluster's administrator for a network plug-in that enforces policies before a pod starts",
                )
            }),
            (out, into) => {
                let ways: Vec<&str> = [("out of a sandbox", out), ("into a sandbox", into)]
                    .iter()
                    .filter_map(|(way, held)| held.is_none().then_some(*way))
                    .collect();
                finding(
                    CheckState::Failed,
                    format!("aren't enforced: a connection {} got through, though rules forbid it", ways.join(" and one ")),
                )
                .map(|finding| {
                    finding.fix(format!(
                        "see whether another policy allows it: kubectl get networkpolicy -n {}; if none does, the cluster's \
                         network plug-in ignores NetworkPolicy: use one that enforces it (Calico, Cilium, \
                         kube-router), or allow sandboxes to use the network: --set raw.block_network=false",
                        self.cluster.namespace
                    ))
                })
            }
        }
    }
}

fn open_network() -> Finding {
    Finding::new(
        "network",
        "network rules",
        CheckState::Warning,
        "not requested: raw.block_network is false, so sandboxes can reach everything that pods of this cluster can",
    )
    .fix("leave raw.block_network at true, and allow what is needed with raw.egress")
}

/// How long it took until a connection succeeded, or no longer did; nothing if that never happened.
async fn until<F: Future<Output = Result<Tried>>>(
    wanted: bool,
    mut attempt: impl FnMut() -> F,
) -> Result<Option<Duration>> {
    let begun = Instant::now();
    loop {
        let before = begun.elapsed();
        match attempt().await? {
            Tried::Connected if wanted => return Ok(Some(before)),
            Tried::Refused if !wanted => return Ok(Some(before)),
            Tried::NoTool => return Ok(None),
            _ => {}
        }
        if begun.elapsed() > PATIENCE {
            return Ok(None);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn no_tool(tried: Tried) -> bool {
    matches!(tried, Tried::NoTool)
}

async fn connect(from: &Started, to: &str) -> Result<Tried> {
    let port = PORT.to_string();
    let mut command = Command::argv(["sh", "-c", CONNECT, to, port.as_str()]);
    // Dropped packets are waited for.
    command.timeout_ms = 4_000;
    let output = from.sandbox.run(command).await.map_err(Error::Unusable)?;
    Ok(match output.code() {
        Some(0) => Tried::Connected,
        Some(99) => Tried::NoTool,
        _ => Tried::Refused,
    })
}

fn bracketed(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

fn remedy(error: &Error, config: &Config) -> String {
    if matches!(error, Error::NoAddress(_)) {
        return "try again; if it still has none, look at the pod's events and the network plug-in's log".into();
    }
    let text = error.to_string();
    let image = &config.image;
    if ["ImagePull", "ErrImage", "InvalidImageName", "ImageInspect", "RegistryUnavailable"]
        .iter()
        .any(|word| text.contains(word))
    {
        return format!(
            "the nodes can't get the image {image}: check its name, let them reach the registry, name a secret with \
             raw.image_pull_secrets, or choose another --image"
        );
    }
    if text.contains("it can't be scheduled on any node") {
        return "free or add a node, request less (raw.cpu_request, raw.memory_request), or correct raw.node_selector \
                and raw.tolerations; if nodes are added on demand, set raw.wait_for_node"
            .into();
    }
    if config.user_namespace
        && ["user namespace", "userns", "idmap", "hostUsers"].iter().any(|word| text.contains(word))
    {
        return "the nodes can't give pods a user namespace (they need Linux 6.3, and containerd 2 or CRI-O): unset \
                raw.user_namespace, or select nodes that support it with raw.node_selector"
            .into();
    }
    if text.contains("wasn't running after") {
        return "if the pod only needs longer (a large image, a new node), raise --startup-timeout".into();
    }
    if text.contains("the image has no") || text.contains("no directory where a program") {
        return format!("{image} is too bare for podbayd: use an image with a shell, or put podbayd into it");
    }
    format!("correct the setting that the message names: the image is {image}, and 'podbay config' shows the settings")
}
