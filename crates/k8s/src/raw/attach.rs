//! Attaches to a sandbox's pod: waits until it runs, starts podbayd in it, and finishes what its creator has begun.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use podbay_client::Sandbox;
use podbay_client::provider::{Launch, Provided};
use tokio::time::Instant;

use super::config::Config;
use super::lease::{self, Holder};
use super::manifest::CONTAINER;
use super::namespace::SandboxNamespace;
use super::pod_state::holder_of;
use super::pool::claim;
use super::{Raw, setup};
use crate::channel::exec::ExecChannel;
use crate::channel::pod::PodChannel;
use crate::error::{Error, Result};
use crate::heartbeat;
use crate::lifetime::LifetimeLimits;
use crate::names::POOL;
use crate::pod::container::Container;
use crate::pod::health::lost_node;
use crate::pod::startup::{StartupPolicy, StartupWatch};

impl Raw {
    /// Waits for a pod and returns the sandbox in it. This caller has written to the Lease before. `created_within` is the
    /// time that is left to whoever has created the pod.
    pub(super) async fn attach(
        &self,
        namespace: &SandboxNamespace,
        lease: &Lease,
        pod: Pod,
        created_within: Option<Duration>,
    ) -> Result<Provided> {
        let created = created_within.is_some();
        let name = lease.metadata.name.clone().unwrap_or_default();
        let unfinished = lease::is_unfinished(lease);
        let timeout = Duration::from_secs(self.config.startup_timeout);
        let startup = StartupWatch {
            cluster: &namespace.cluster,
            timeout,
            deadline: Instant::now() + created_within.unwrap_or(timeout),
            policy: startup_policy(&self.config, unfinished, self.timing.pull_patience),
        };
        let pod = match startup.until_running(pod.clone()).await {
            // A creator removes its own sandbox, but this one may have been killed.
            Err(error @ (Error::Startup { .. } | Error::StartupTimeout { .. })) if unfinished && !created => {
                return Err(self.roll_back(lease, Some(&pod), error).await);
            }
            running => running?,
        };
        if let Some(node) = lost_node(&pod, CONTAINER) {
            return Err(Error::NodeLost { pod: namespace.label(&pod), node });
        }
        let sandbox = self.open(namespace, lease, &pod);
        if created {
            start_podbayd(&startup, &pod, &sandbox).await?;
        }
        let holder = holder_of(&pod);
        // The UID says that the sandbox is finished. Until then, whoever comes helps to finish it.
        if unfinished {
            if let Some(script) = &self.config.setup_script {
                match setup::run(&sandbox, script).await {
                    // A creator removes its own sandbox.
                    Err(error @ Error::Setup { .. }) if !created => {
                        return Err(self.roll_back(lease, Some(&pod), error).await);
                    }
                    done => done?,
                }
            }
            namespace.leases.set_uid(lease, &holder.pod, holder.uid.as_deref().unwrap_or_default()).await?;
        }
        let limits = lease::limits_left(lease, namespace.cluster.clock.now());
        let pooled = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(POOL));
        if pooled && limits != LifetimeLimits::default() {
            // Whoever claimed it may have been killed before it told podbayd. Nobody has to wait for this.
            let sandbox = sandbox.clone();
            tokio::spawn(async move {
                if let Err(error) = claim::set_limits(&sandbox, limits).await {
                    tracing::debug!(%error, "can't send podbayd its limits");
                }
            });
        }
        self.start_heartbeat(namespace, &name, &sandbox);
        let launch = Some(if pooled { Launch::Warm } else { Launch::Cold });
        Ok(Provided { id: name, sandbox, created, resumed: false, launch, leash: None })
    }

    /// The sandbox in a pod. Nothing is opened yet.
    pub(super) fn open(&self, namespace: &SandboxNamespace, lease: &Lease, pod: &Pod) -> Sandbox {
        let limits = lease::limits_left(lease, namespace.cluster.clock.now());
        let channel = channel(namespace, &holder_of(pod), &self.config)
            .with_addresses(self.addresses.as_ref(), lease.metadata.name.as_deref().unwrap_or_default());
        Sandbox::new(channel.ending_container_after(limits))
    }

    pub(super) fn start_heartbeat(&self, namespace: &SandboxNamespace, name: &str, sandbox: &Sandbox) {
        heartbeat::start(namespace.leases.clone(), name.to_owned(), sandbox.downgrade(), self.timing.heartbeat);
    }
}

/// The channel to a pod's container, through exec.
pub(super) fn channel(namespace: &SandboxNamespace, holder: &Holder, config: &Config) -> PodChannel {
    let container = Container {
        namespace: namespace.cluster.namespace.clone(),
        pod: holder.pod.clone(),
        uid: holder.uid.clone().unwrap_or_default(),
        name: CONTAINER.into(),
    };
    let channel = ExecChannel::new(namespace.cluster.client.clone(), container, &config.workdir);
    PodChannel::new(if config.command_filter { channel } else { channel.without_command_filter() })
}

/// What counts as a failure of a pod to start. `fresh` says that nobody has used the sandbox yet.
pub(super) fn startup_policy(config: &Config, fresh: bool, pull_patience: Duration) -> StartupPolicy<'static> {
    StartupPolicy { container: CONTAINER, wait_for_node: config.wait_for_node, fresh, pull_patience }
}

/// Starts podbayd in a new pod: now is the time to find out that it doesn't start there, or that the container ends by itself.
pub(super) async fn start_podbayd(startup: &StartupWatch<'_>, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
    tokio::select! {
        welcome = sandbox.hello() => match welcome {
            Ok(_) => Ok(()),
            Err(error) => Err(startup.failure(pod).await.unwrap_or(Error::Unusable(error))),
        },
        error = startup.until_failed(pod) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::follow::{Judge, Verdict};
    use serde_json::json;

    #[test]
    fn a_node_is_waited_for_where_the_cluster_may_add_one() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]}}))
        .unwrap();
        let verdict = |wait_for_node| {
            let config = Config { wait_for_node, ..Config::default() };
            startup_policy(&config, true, Duration::from_secs(40)).judge(&pod)
        };
        assert!(matches!(verdict(false), Verdict::Failed(_)));
        assert_eq!(verdict(true), Verdict::Waiting("no node yet: 0/1 nodes".into()));
    }
}
