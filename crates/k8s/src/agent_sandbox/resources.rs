//! The custom resources of kubernetes-sigs/agent-sandbox, version v1beta1, as far as Podbay reads and writes them.
//!
//! See <https://github.com/kubernetes-sigs/agent-sandbox/tree/main/api> and `extensions/api` beside it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use kube::Resource;
use kube::api::{ObjectMeta, TypeMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The group of Sandbox.
pub(crate) const SANDBOXES_GROUP: &str = "agents.x-k8s.io";
/// The group of SandboxClaim, SandboxTemplate and SandboxWarmPool.
pub(crate) const EXTENSIONS_GROUP: &str = "extensions.agents.x-k8s.io";
/// The version of both groups.
pub(crate) const VERSION: &str = "v1beta1";

/// Label of a Sandbox: whether it came from a warm pool, `cold` or `warm`.
pub(crate) const LAUNCH_TYPE: &str = "agents.x-k8s.io/launch-type";
/// Label of a claim: the kind of program that created it.
pub(crate) const CREATED_BY: &str = "agents.x-k8s.io/created-by";
/// Annotation of a claim: when its user asked for it. The controller's latency metrics begin there.
pub(crate) const REQUESTED_AT: &str = "agents.x-k8s.io/client-first-requested-at";
/// Annotation of a claim: the trace that it belongs to.
pub(crate) const TRACE_CONTEXT: &str = "opentelemetry.io/trace-context";
/// Annotation of a claim: the warm Sandbox that it is about to get.
const ASSIGNED: &str = "agents.x-k8s.io/sandbox-name";
/// Annotation of a Sandbox: the name of its pod.
const POD_NAME: &str = "agents.x-k8s.io/pod-name";

/// Gives a type its place in the Kubernetes API.
macro_rules! resource {
    ($type:ident, $group:expr, $plural:literal) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = kube::core::NamespaceResourceScope;

            fn kind(_: &()) -> Cow<'_, str> {
                stringify!($type).into()
            }

            fn group(_: &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version(_: &()) -> Cow<'_, str> {
                VERSION.into()
            }

            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(SandboxClaim, EXTENSIONS_GROUP, "sandboxclaims");
resource!(SandboxWarmPool, EXTENSIONS_GROUP, "sandboxwarmpools");
resource!(SandboxTemplate, EXTENSIONS_GROUP, "sandboxtemplates");
resource!(Sandbox, SANDBOXES_GROUP, "sandboxes");

/// A request for a sandbox. In this mode it *is* the sandbox: everything else belongs to it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SandboxClaim {
    #[serde(flatten)]
    pub(crate) types: Option<TypeMeta>,
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ClaimSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<ClaimStatus>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimSpec {
    pub(crate) warm_pool_ref: NameRef,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lifecycle: Option<Lifecycle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) additional_pod_metadata: Option<PodMetadata>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<EnvVar>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) volume_claim_templates: Vec<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NameRef {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Lifecycle {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shutdown_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_seconds_after_finished: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shutdown_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PodMetadata {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EnvVar {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimStatus {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) sandbox: Option<BoundSandbox>,
}

/// The Sandbox that a claim is bound to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BoundSandbox {
    pub(crate) name: String,
}

impl SandboxClaim {
    /// The condition of a type.
    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        condition(self.status.as_ref().map(|status| status.conditions.as_slice()), kind)
    }

    /// The name of the Sandbox that it is bound to.
    pub(crate) fn sandbox(&self) -> Option<&str> {
        let bound = self.status.as_ref()?.sandbox.as_ref()?;
        Some(bound.name.as_str()).filter(|name| !name.is_empty())
    }

    /// The name of the warm Sandbox that the controller has chosen for it. The two are bound a moment later.
    pub(crate) fn assigned(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(ASSIGNED).map(String::as_str)
    }

    /// When the controller deletes it.
    pub(crate) fn shutdown_time(&self) -> Option<&Time> {
        self.spec.lifecycle.as_ref()?.shutdown_time.as_ref()
    }
}

/// One pod, kept alive by the controller.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Sandbox {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SandboxSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<SandboxStatus>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SandboxSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operating_mode: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SandboxStatus {
    pub(crate) conditions: Vec<Condition>,
}

impl Sandbox {
    /// The condition of a type.
    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        condition(self.status.as_ref().map(|status| status.conditions.as_slice()), kind)
    }

    /// The name of its pod: its own, unless the controller says otherwise.
    pub(crate) fn pod(&self) -> &str {
        let annotations = self.metadata.annotations.as_ref();
        let noted = annotations.and_then(|all| all.get(POD_NAME)).filter(|name| !name.is_empty());
        noted.or(self.metadata.name.as_ref()).map_or("", String::as_str)
    }

    /// Whether it is meant to have no pod.
    pub(crate) fn is_suspended(&self) -> bool {
        self.spec.operating_mode.as_deref() == Some("Suspended")
    }
}

/// Sandboxes that wait for claims.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SandboxWarmPool {
    #[serde(flatten)]
    pub(crate) types: Option<TypeMeta>,
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: WarmPoolSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<WarmPoolStatus>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WarmPoolSpec {
    pub(crate) replicas: i32,
    pub(crate) sandbox_template_ref: NameRef,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WarmPoolStatus {
    pub(crate) replicas: i32,
    pub(crate) ready_replicas: i32,
}

/// How sandboxes are made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SandboxTemplate {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Value,
}

fn condition<'a>(conditions: Option<&'a [Condition]>, kind: &str) -> Option<&'a Condition> {
    conditions?.iter().find(|condition| condition.type_ == kind)
}

/// Whether an object is controlled by another, by UID: a later object of the same name isn't the same.
pub(crate) fn is_controlled_by(owners: Option<&Vec<OwnerReference>>, uid: Option<&String>) -> bool {
    let controls = |owner: &OwnerReference| owner.controller == Some(true) && Some(&owner.uid) == uid;
    uid.is_some() && owners.is_some_and(|owners| owners.iter().any(controls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_known_by_its_uid() {
        let owner = |uid: &str, controller: bool| OwnerReference {
            name: "same".into(),
            uid: uid.into(),
            controller: Some(controller),
            ..OwnerReference::default()
        };
        let (mine, other) = ("a".to_owned(), "b".to_owned());
        let owners = vec![owner("a", true), owner("b", false)];
        assert!(is_controlled_by(Some(&owners), Some(&mine)));
        // An owner that isn't the controller, one of the same name, nobody, and an object without a UID.
        assert!(!is_controlled_by(Some(&owners), Some(&other)));
        assert!(!is_controlled_by(Some(&vec![owner("c", true)]), Some(&mine)));
        assert!(!is_controlled_by(None, Some(&mine)) && !is_controlled_by(Some(&owners), None));
    }
}
