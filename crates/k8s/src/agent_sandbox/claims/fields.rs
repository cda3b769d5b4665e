//! Where each field of the configuration is in a sandbox's claim.

use podbay_client::provider::Wanted;

use super::*;
use crate::agent_sandbox::creation::spec_for;
use crate::field_examples::{Example, check};

/// The claim of a sandbox, as a creator writes it.
fn described(config: &Config) -> Value {
    let spec = spec_for(config, "agents", &Wanted::from("pb-1")).unwrap();
    let claim = manifest(&spec, "pool", config, Timestamp::from_second(1_000_000).unwrap(), "creator");
    serde_json::to_value(claim).unwrap()
}

#[test]
fn every_field_is_in_the_claim_or_has_a_test_of_its_own() {
    let volume = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let examples: Vec<Example> = vec![
        ("claim_env", json!({"A": "1"}), "/spec/env", json!([{"name": "A", "value": "1"}])),
        ("volume_claim_templates", json!([volume]), "/spec/volumeClaimTemplates/0", volume.clone()),
        (
            "pod_labels",
            json!({"sandbox.users.io/team": "red"}),
            "/spec/additionalPodMetadata/labels/sandbox.users.io~1team",
            json!("red"),
        ),
        (
            "pod_annotations",
            json!({"a.example/b": "c"}),
            "/spec/additionalPodMetadata/annotations/a.example~1b",
            json!("c"),
        ),
        ("ttl_after_finished", json!(7), "/spec/lifecycle/ttlSecondsAfterFinished", json!(7)),
        // The controller ends it then; podbay's reaper goes by the annotation.
        ("ttl", json!(7), "/spec/lifecycle/shutdownTime", json!("1970-01-12T13:46:47Z")),
        ("ttl", json!(7), "/metadata/annotations/podbay.dev~1ttl-seconds", json!("7")),
        ("idle_ttl", json!(8), "/spec/lifecycle/shutdownTime", json!("1970-01-12T13:46:48Z")),
        ("idle_ttl", json!(8), "/metadata/annotations/podbay.dev~1idle-ttl-seconds", json!("8")),
        ("default_labels", json!({"team": "blue"}), "/metadata/labels/user.podbay.dev~1team", json!("blue")),
        ("label_prefix", json!(""), "/metadata/labels/team", json!("red")),
    ];
    // A prefix shows only where there is a label.
    let config = Config { default_labels: [("team".into(), "red".into())].into(), ..Config::default() };
    check("agent-sandbox", &config, &examples, described);
}
