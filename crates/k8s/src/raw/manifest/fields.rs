//! Where each field of the configuration is in a sandbox's pod.

use podbay_client::provider::Wanted;

use super::*;
use crate::field_examples::{Example, check};
use crate::raw::creation::spec_for;
use crate::raw::network;

/// The pod of a sandbox, as a creator describes it.
fn described(config: &Config) -> Value {
    let spec = spec_for(config, "agents", &Wanted::from("pb-1")).unwrap();
    let network = network::label(config).unwrap();
    let owner = Default::default();
    let pod = pod(config, "pb-1-00", &spec.metadata, owner, network.as_deref(), spec.limits.ttl).unwrap();
    serde_json::to_value(pod).unwrap()
}

/// Options for which no test looked: each of them reaches the pod, where Kubernetes expects it.
#[test]
fn every_field_is_in_the_pod_or_has_a_test_of_its_own() {
    let of_the_pod: Vec<Example> = vec![
        ("image_pull_secrets", json!(["s"]), "/spec/imagePullSecrets/0/name", json!("s")),
        ("image_arch", json!("arm64"), "/spec/nodeSelector/kubernetes.io~1arch", json!("arm64")),
        ("service_account", json!("a"), "/spec/serviceAccountName", json!("a")),
        ("node_selector", json!({"disk": "ssd"}), "/spec/nodeSelector/disk", json!("ssd")),
        ("tolerations", json!([{"key": "gpu"}]), "/spec/tolerations/0/key", json!("gpu")),
        ("node_loss_tolerance", json!(7), "/spec/tolerations/0/tolerationSeconds", json!(7)),
        ("affinity", json!({"podAffinity": affinity()}), "/spec/affinity/podAffinity", affinity()),
        ("runtime_class", json!("gvisor"), "/spec/runtimeClassName", json!("gvisor")),
        ("user_namespace", json!(true), "/spec/hostUsers", json!(false)),
        ("volumes", json!([{"name": "v", "emptyDir": {}}]), "/spec/volumes/5/name", json!("v")),
        ("init_containers", json!([{"name": "i"}]), "/spec/initContainers/0/name", json!("i")),
        ("pod_template_overrides", json!({"spec": {"hostname": "box"}}), "/spec/hostname", json!("box")),
        ("run_as_user", json!(7), "/spec/securityContext/runAsUser", json!(7)),
        ("run_as_group", json!(7), "/spec/securityContext/runAsGroup", json!(7)),
        ("fs_group", json!(7), "/spec/securityContext/fsGroup", json!(7)),
        ("run_as_non_root", json!(false), "/spec/securityContext/runAsNonRoot", json!(false)),
        ("seccomp_profile", json!("p"), "/spec/securityContext/seccompProfile/localhostProfile", json!("p")),
        ("ttl", json!(7), "/spec/activeDeadlineSeconds", json!(7)),
        ("idle_ttl", json!(7), "/metadata/annotations/podbay.dev~1idle-ttl-seconds", json!("7")),
        ("extra_annotations", json!({"a": "b"}), "/metadata/annotations/a", json!("b")),
        ("default_labels", json!({"team": "blue"}), "/metadata/labels/user.podbay.dev~1team", json!("blue")),
        ("label_prefix", json!("acme.example/"), "/metadata/labels/acme.example~1team", json!("red")),
        // Without the label, the pod is under no NetworkPolicy of Podbay's.
        ("block_network", json!(false), "/metadata/labels/podbay.dev~1net", Value::Null),
    ];
    let of_the_container: Vec<Example> = vec![
        ("image", json!("busybox"), "/spec/containers/0/image", json!("busybox")),
        ("image_pull_policy", json!("Never"), "/spec/containers/0/imagePullPolicy", json!("Never")),
        ("workdir", json!("/w"), "/spec/containers/0/workingDir", json!("/w")),
        ("command", json!(["run"]), "/spec/containers/0/command/0", json!("run")),
        ("env", json!({"A": "1"}), "/spec/containers/0/env/0/value", json!("1")),
        ("env_from", json!({"A": {"secretKeyRef": key()}}), "/spec/containers/0/env/0/valueFrom/secretKeyRef", key()),
        ("cpu_request", json!("7m"), "/spec/containers/0/resources/requests/cpu", json!("7m")),
        ("cpu_limit", json!("7"), "/spec/containers/0/resources/limits/cpu", json!("7")),
        ("memory_request", json!("7Mi"), "/spec/containers/0/resources/requests/memory", json!("7Mi")),
        ("memory_limit", json!("7Gi"), "/spec/containers/0/resources/limits/memory", json!("7Gi")),
        (
            "ephemeral_storage_request",
            json!("7Mi"),
            "/spec/containers/0/resources/requests/ephemeral-storage",
            json!("7Mi"),
        ),
        (
            "ephemeral_storage_limit",
            json!("7Gi"),
            "/spec/containers/0/resources/limits/ephemeral-storage",
            json!("7Gi"),
        ),
        (
            "volume_mounts",
            json!([{"name": "podbay-run", "mountPath": "/more"}]),
            "/spec/containers/0/volumeMounts/5/mountPath",
            json!("/more"),
        ),
        ("read_only_root", json!(true), "/spec/containers/0/securityContext/readOnlyRootFilesystem", json!(true)),
    ];
    // A prefix shows only where there is a label.
    let config = Config { default_labels: [("team".into(), "red".into())].into(), ..Config::default() };
    check("raw", &config, &[of_the_pod, of_the_container].concat(), described);
}

fn affinity() -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "t"}]})
}

fn key() -> Value {
    json!({"name": "s", "key": "k"})
}
