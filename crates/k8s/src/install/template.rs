//! A SandboxTemplate whose pods are as well protected as raw mode's, and a warm pool of it.

use podbay_proto::layout::{PROGRAM, STATE_DIR, listen_env};
use serde_json::{Value, json};

use crate::channel::stock_runtime::RUNTIME_PORT;
use crate::error::{Error, Result};
use crate::keys::PublicKey;
use crate::names::{self, MANAGED_BY, Metadata, PODBAY};
use crate::raw::{self, egress, manifest, network};

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
    /// Whose tokens podbayd accepts at pods' own addresses. Without any it doesn't listen there.
    pub public_keys: Vec<PublicKey>,
    /// Whether upstream's router may reach podbayd too, for clients that can't reach pods.
    pub admit_router: bool,
    /// The namespace of that router.
    pub router_namespace: String,
    /// Whether the image contains podbayd, which then is the container's first process and needn't be sent.
    pub podbayd_in_image: bool,
    /// Whether that podbayd also serves the stock runtime's API, for upstream's own SDKs. It has no authentication: whoever may
    /// use the router may use every sandbox.
    pub runtime_api: bool,
}

impl Template {
    /// The manifests, as YAML.
    ///
    /// # Errors
    /// When a name or the pod isn't valid.
    pub(super) fn manifests(&self, namespace: &str) -> Result<Vec<String>> {
        names::check_label("template", &self.name)?;
        self.pod.check()?;
        if self.admit_router && self.public_keys.is_empty() {
            return Err(Error::Config(
                "the router can't reach podbayd without a key: name one with --public-key, or set cluster.private_key_file ('podbay keys' makes one)"
                    .into(),
            ));
        }
        if self.runtime_api && !self.podbayd_in_image {
            return Err(Error::Config(
                "the runtime's API needs podbayd from the pod's start on: add --podbayd-in-image, and an image with podbayd"
                    .into(),
            ));
        }
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
        let mut spec = serde_json::to_value(pod.spec).map_err(Error::manifest("the template"))?;
        if let Some(fields) = spec.as_object_mut() {
            // The controller keeps the pod running and ends it; podbayd doesn't.
            fields.remove("restartPolicy");
        }
        self.add_podbayd(&mut spec["containers"][0]);
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let mut template = json!({"podTemplate": {"metadata": {"annotations": annotations}, "spec": spec}});
        match self.pod.block_network {
            true => {
                let egress =
                    serde_json::to_value(egress::rules(&self.pod)?).map_err(Error::manifest("the template"))?;
                let mut ingress = self.pod.ingress.clone();
                if !self.public_keys.is_empty() {
                    ingress.push(network::clients(self.pod.port)?);
                }
                if self.admit_router {
                    ingress.push(network::router(&self.router_namespace, self.pod.port)?);
                }
                if self.runtime_api {
                    ingress.push(network::router(&self.router_namespace, RUNTIME_PORT)?);
                }
                template["networkPolicy"] = json!({"ingress": ingress, "egress": egress});
            }
            false => template["networkPolicyManagement"] = "Unmanaged".into(),
        }
        if self.allow_env {
            template["envVarsInjectionPolicy"] = "Allowed".into();
        }
        Ok(template)
    }

    /// What podbayd needs to listen, and the container's command where the image has podbayd.
    fn add_podbayd(&self, container: &mut Value) {
        let port = self.pod.port;
        if self.podbayd_in_image {
            let mut command = vec![PROGRAM, "serve", "--state", STATE_DIR, "--workdir", &self.pod.workdir];
            if !self.pod.command_filter {
                command.push("--no-command-filter");
            }
            container["command"] = json!(command);
        }
        let mut env = container["env"].as_array().cloned().unwrap_or_default();
        let mut ports = Vec::new();
        if !self.public_keys.is_empty() {
            env.extend(self.listen_env());
            ports.push(json!({"name": PROGRAM, "containerPort": port}));
        }
        if self.runtime_api {
            env.push(json!({"name": listen_env::RUNTIME_API, "value": RUNTIME_PORT.to_string()}));
            ports.push(json!({"name": "runtime", "containerPort": RUNTIME_PORT}));
        }
        if ports.is_empty() {
            return;
        }
        if self.podbayd_in_image {
            // A claim gets a pod only once podbayd can be reached. There is no liveness probe: podbayd is the first process, and
            // a sandbox whose commands use up the CPU mustn't be killed for it.
            let probed = &ports[0]["containerPort"];
            container["readinessProbe"] = json!({"tcpSocket": {"port": probed}, "periodSeconds": 5});
        }
        container["env"] = env.into();
        container["ports"] = ports.into();
    }

    /// What podbayd has to know to accept tokens.
    fn listen_env(&self) -> Vec<Value> {
        let keys: Vec<String> = self.public_keys.iter().map(ToString::to_string).collect();
        let values = [
            (listen_env::LISTEN, self.pod.port.to_string()),
            (listen_env::PUBLIC_KEYS, keys.join(",")),
            (listen_env::CONTAINER, manifest::CONTAINER.to_owned()),
        ];
        let fields = [
            (listen_env::NAMESPACE, "metadata.namespace"),
            (listen_env::POD, "metadata.name"),
            (listen_env::POD_UID, "metadata.uid"),
        ];
        // Clients without rights know the Sandbox, whose name its pod has, and no UID. They can only come through the router.
        let object = self.admit_router.then_some((listen_env::SANDBOX_OBJECT, "metadata.name"));
        let values = values.into_iter().map(|(name, value)| json!({"name": name, "value": value}));
        let fields = fields
            .into_iter()
            .chain(object)
            .map(|(name, field)| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}));
        values.chain(fields).collect()
    }
}

fn yaml(why: &str, object: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(object).map_err(Error::manifest("the template"))?;
    Ok(format!("# {why}\n{}\n", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::router::ROUTER_NAMESPACE;

    fn template(pod: raw::Config) -> Template {
        Template {
            name: "python".into(),
            replicas: 2,
            pod,
            allow_env: false,
            public_keys: Vec::new(),
            admit_router: false,
            router_namespace: ROUTER_NAMESPACE.into(),
            podbayd_in_image: false,
            runtime_api: false,
        }
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

    #[test]
    fn a_template_with_a_key_lets_clients_in_and_tells_podbayd_who_it_is() {
        let key = crate::keys::generate().public();
        let pod = raw::Config { port: 7070, command_filter: false, ..raw::Config::default() };
        let with_key = Template { public_keys: vec![key.clone()], ..template(pod) };
        let spec = with_key.spec().unwrap();
        let container = &spec["podTemplate"]["spec"]["containers"][0];
        let env = |name: &str| {
            container["env"].as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
        };
        assert_eq!(env("PODBAYD_PUBLIC_KEYS")["value"], key.to_string());
        assert_eq!(env("PODBAYD_LISTEN")["value"], "7070");
        assert_eq!(env("PODBAYD_POD_UID")["valueFrom"]["fieldRef"]["fieldPath"], "metadata.uid");
        let ingress = &spec["networkPolicy"]["ingress"][0];
        assert_eq!(ingress["ports"][0]["port"], 7070);
        assert_eq!(ingress["from"][0]["podSelector"]["matchLabels"]["podbay.dev/client"], "true");
        assert!(spec["networkPolicy"]["ingress"][1].is_null());
        let routed = Template { admit_router: true, ..with_key.clone() }.spec().unwrap();
        let told = |spec: &Value| {
            let env = spec["podTemplate"]["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
            env.into_iter().find(|one| one["name"] == "PODBAYD_SANDBOX_OBJECT")
        };
        assert_eq!(told(&routed).unwrap()["valueFrom"]["fieldRef"]["fieldPath"], "metadata.name");
        assert!(told(&spec).is_none(), "only the router's clients have tokens without a pod");
        let without_key = Template { admit_router: true, public_keys: Vec::new(), ..with_key.clone() };
        assert!(without_key.manifests("boxes").unwrap_err().to_string().contains("--public-key"));
        let ingress = &routed["networkPolicy"]["ingress"][1];
        assert_eq!(ingress["from"][0]["podSelector"]["matchLabels"]["app"], "sandbox-router");
        // An image without podbayd waits for an exec to bring it.
        assert!(container["readinessProbe"].is_null() && container["command"][0] == "sh");
        let spec = Template { podbayd_in_image: true, ..with_key }.spec().unwrap();
        let container = &spec["podTemplate"]["spec"]["containers"][0];
        assert_eq!(container["readinessProbe"]["tcpSocket"]["port"], 7070);
        let command = ["podbayd", "serve", "--state", "/run/podbay", "--workdir", "/workspace", "--no-command-filter"];
        assert_eq!(container["command"], json!(command));
    }

    #[test]
    fn a_template_for_upstreams_sdks_opens_the_runtimes_port_to_the_router_alone() {
        let with_api = Template { runtime_api: true, podbayd_in_image: true, ..template(raw::Config::default()) };
        let spec = with_api.spec().unwrap();
        let container = &spec["podTemplate"]["spec"]["containers"][0];
        let env = container["env"].as_array().unwrap().iter().find(|one| one["name"] == "PODBAYD_RUNTIME_API");
        assert_eq!(env.unwrap()["value"], "8888");
        assert_eq!(container["readinessProbe"]["tcpSocket"]["port"], 8888);
        assert_eq!(container["ports"], json!([{"name": "runtime", "containerPort": 8888}]));
        let ingress = spec["networkPolicy"]["ingress"].as_array().unwrap();
        assert_eq!(ingress.len(), 1);
        assert_eq!(ingress[0]["ports"][0]["port"], 8888);
        assert_eq!(ingress[0]["from"][0]["podSelector"]["matchLabels"]["app"], "sandbox-router");
        // Beside podbayd's own port, that one is probed.
        let both = Template { public_keys: vec![crate::keys::generate().public()], ..with_api.clone() }.spec().unwrap();
        let container = &both["podTemplate"]["spec"]["containers"][0];
        assert_eq!(container["readinessProbe"]["tcpSocket"]["port"], 7777);
        assert_eq!(container["ports"].as_array().unwrap().len(), 2);
        let without = Template { podbayd_in_image: false, ..with_api };
        assert!(without.manifests("boxes").unwrap_err().to_string().contains("--podbayd-in-image"));
    }
}
