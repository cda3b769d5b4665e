//! A SandboxTemplate whose pods are as well protected as raw mode's, and a warm pool of it.

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::names::{self, MANAGED_BY, Metadata, PODBAY};
use crate::raw::{self, egress, manifest};

/// A SandboxTemplate and its SandboxWarmPool, both with the same name.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Their name.
    pub name: String,
    /// How many sandboxes the pool keeps ready.
    pub replicas: u32,
    /// The pod: image, limits, network rules and all else that raw mode's pods have.
    pub pod: raw::Config,
    /// Whether claims may add environment variables.
    pub allow_env: bool,
}

impl Template {
    /// The manifests, as YAML.
    ///
    /// # Errors
    /// When a name or the pod isn't valid.
    pub(super) fn manifests(&self, namespace: &str) -> Result<Vec<String>> {
        names::check_label("template", &self.name)?;
        self.pod.check()?;
        let metadata = json!({"name": self.name, "namespace": namespace, "labels": {MANAGED_BY: PODBAY}});
        let api_version = "extensions.agents.x-k8s.io/v1beta1";
        let template = json!({
            "apiVersion": api_version, "kind": "SandboxTemplate", "metadata": metadata, "spec": self.spec()?,
        });
        let pool = json!({
            "apiVersion": api_version, "kind": "SandboxWarmPool", "metadata": metadata,
            "spec": {"replicas": self.replicas, "sandboxTemplateRef": {"name": self.name}},
        });
        Ok(vec![
            yaml("What sandboxes are created from. It meets the Pod Security level \"restricted\".", &template)?,
            yaml(
                "Sandboxes that are ready before they are needed. Claims name the pool, so one is needed even with none.",
                &pool,
            )?,
        ])
    }

    fn spec(&self) -> Result<Value> {
        let pod = manifest::pod(&self.pod, &self.name, &Metadata::default(), Default::default(), None, None)?;
        let mut spec = serde_json::to_value(pod.spec).map_err(unwritable)?;
        if let Some(fields) = spec.as_object_mut() {
            // The controller keeps the pod running and ends it; podbayd doesn't.
            fields.remove("restartPolicy");
        }
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let mut template = json!({"podTemplate": {"metadata": {"annotations": annotations}, "spec": spec}});
        match self.pod.block_network {
            true => {
                let egress = serde_json::to_value(egress::rules(&self.pod)?).map_err(unwritable)?;
                template["networkPolicy"] = json!({"ingress": self.pod.ingress, "egress": egress});
            }
            false => template["networkPolicyManagement"] = "Unmanaged".into(),
        }
        if self.allow_env {
            template["envVarsInjectionPolicy"] = "Allowed".into();
        }
        Ok(template)
    }
}

fn yaml(why: &str, object: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(object).map_err(unwritable)?;
    Ok(format!("# {why}\n{}\n", text.trim_end()))
}

fn unwritable(error: impl std::fmt::Display) -> Error {
    Error::Config(format!("the template can't be written: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(pod: raw::Config) -> Template {
        Template { name: "python".into(), replicas: 2, pod, allow_env: false }
    }

    #[test]
    fn a_template_is_as_strict_as_a_raw_pod() {
        let spec = template(raw::Config::default()).spec().unwrap();
        let pod = &spec["podTemplate"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
        assert_eq!(
            (&pod["securityContext"]["runAsNonRoot"], &pod["automountServiceAccountToken"]),
            (&true.into(), &false.into())
        );
        assert!(pod["restartPolicy"].is_null() && pod["activeDeadlineSeconds"].is_null());
        assert_eq!(spec["networkPolicy"], json!({"ingress": [], "egress": []}));
    }

    #[test]
    fn what_is_opened_is_opened_there_too() {
        let open = template(raw::Config { block_network: false, ..raw::Config::default() }).spec().unwrap();
        assert_eq!(open["networkPolicyManagement"], "Unmanaged");
        assert!(open["networkPolicy"].is_null());
        let bad = Template { name: "a\nkind: Secret".into(), ..template(raw::Config::default()) };
        assert!(bad.manifests("boxes").is_err());
        let texts = template(raw::Config::default()).manifests("boxes").unwrap();
        assert!(texts[0].contains("kind: SandboxTemplate") && texts[1].contains("replicas: 2"), "{texts:?}");
    }
}
