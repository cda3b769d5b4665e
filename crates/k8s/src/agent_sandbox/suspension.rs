//! Suspends and resumes sandboxes.
//!
//! A suspended sandbox has no pod: its memory and its container's file system are lost, and only what is on
//! PersistentVolumeClaims of its template stays. Its name, its labels and its claim stay too.

use std::time::Duration;

use serde_json::json;

use super::AgentSandbox;
use super::claims::{end_from, end_while_suspended};
use super::readiness::{ClaimReadiness, Waited};
use super::resources::{Sandbox, SandboxClaim};
use crate::api::follow::{Judge, Outcome, Verdict, follow};
use crate::api::patch::{is_test_failure, json_patch};
use crate::error::{Error, Result};
use crate::names;
use crate::sandbox_object::SandboxObjects;

/// How long a pod may take to end.
const ENDING: Duration = Duration::from_secs(60);

impl AgentSandbox {
    /// Deletes a sandbox's pod and keeps the rest. Returns when the pod is gone.
    pub(super) async fn suspend(&self, id: &str) -> Result<()> {
        let name = names::of_id(id, self.claims.cluster.namespace())?;
        let claim = self.claims.find(name).await?;
        let sandbox = self.bound_sandbox(&claim).await?;
        // Nobody can use it, so nobody moves its end any more. First: a sandbox mustn't end because it was suspended late.
        self.claims.set_shutdown_time(&claim, end_while_suspended(&claim)).await?;
        let sandbox = self.set_mode(sandbox, "Suspended").await?;
        let mut state = String::new();
        let until_suspended = async {
            let sandbox = follow(self.sandboxes(), sandbox, &Suspended, &mut state).await;
            let sandbox = sandbox.map_err(Error::api("watch the Sandbox"))?;
            // Lists show what the claim says.
            let told = follow(self.claims.api.clone(), self.claims.find(name).await?, &Suspended, &mut state).await;
            let told = told.map_err(Error::api("watch the sandbox's claim"))?;
            let (Outcome::Ready(_), Outcome::Ready(told)) = (sandbox, told) else {
                return Err(Error::SandboxNotFound(name.to_owned()));
            };
            // A client that still had it open may have moved its end meanwhile.
            let end = end_while_suspended(&told);
            if told.shutdown_time().map(|time| time.0) != end {
                self.claims.set_shutdown_time(&told, end).await?;
            }
            Ok(())
        };
        match tokio::time::timeout(ENDING, until_suspended).await {
            Ok(suspended) => suspended,
            Err(_) => Err(Error::ClaimTimeout {
                claim: format!("{}/{name}", self.claims.cluster.namespace),
                seconds: ENDING.as_secs(),
                state: format!("being suspended: {state}"),
            }),
        }
    }

    /// Gives a suspended sandbox a new pod. Returns when it is ready.
    pub(super) async fn resume(&self, id: &str) -> Result<()> {
        let name = names::of_id(id, self.claims.cluster.namespace())?;
        let claim = self.claims.find(name).await?;
        let claim = self.set_running(&claim).await?;
        match self
            .until_ready(claim, ClaimReadiness { resuming: true, replacing: true, ..ClaimReadiness::default() })
            .await?
        {
            Waited::Ready(..) => Ok(()),
            Waited::Suspended | Waited::Deleted => Err(Error::SandboxNotFound(name.to_owned())),
        }
    }

    /// Makes the controller create a pod for a suspended sandbox. Returns its claim.
    pub(super) async fn set_running(&self, claim: &SandboxClaim) -> Result<SandboxClaim> {
        let sandbox = self.bound_sandbox(claim).await?;
        let end = end_from(claim, self.claims.cluster.now().await?);
        let claim = self.claims.set_shutdown_time(claim, end).await?;
        if sandbox.is_suspended() {
            self.set_mode(sandbox, "Running").await?;
        }
        Ok(claim)
    }

    async fn set_mode(&self, sandbox: Sandbox, mode: &str) -> Result<Sandbox> {
        let name = sandbox.metadata.name.as_deref().unwrap_or_default();
        let patch = [
            // The Sandbox that was checked, and no other of its name.
            json!({"op": "test", "path": "/metadata/uid", "value": sandbox.metadata.uid}),
            json!({"op": "add", "path": "/spec/operatingMode", "value": mode}),
        ];
        match json_patch::<Sandbox>(&self.claims.cluster, name, &patch).await {
            Ok(sandbox) => Ok(sandbox),
            Err(error) if is_test_failure(&error) => Err(Error::SandboxNotFound(name.to_owned())),
            Err(error) => Err(Error::api("suspend or resume the Sandbox")(error)),
        }
    }
}

/// Waits until a Sandbox's pod is gone, and until its claim says so.
struct Suspended;

impl Judge<SandboxClaim> for Suspended {
    type Failure = std::convert::Infallible;

    fn judge(&self, claim: &SandboxClaim) -> Verdict<Self::Failure> {
        match claim.condition("Ready") {
            Some(ready) if ready.reason == "SandboxSuspended" => Verdict::Ready,
            _ => Verdict::Waiting("the claim's status doesn't show it yet".into()),
        }
    }
}

impl Judge<Sandbox> for Suspended {
    type Failure = std::convert::Infallible;

    fn judge(&self, sandbox: &Sandbox) -> Verdict<Self::Failure> {
        match sandbox.condition("Suspended") {
            Some(suspended) if suspended.status == "True" => Verdict::Ready,
            Some(suspended) => Verdict::Waiting(suspended.reason.clone()),
            None => Verdict::Waiting("the controller hasn't processed it yet".into()),
        }
    }
}
