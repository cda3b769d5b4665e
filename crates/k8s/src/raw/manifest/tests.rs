use super::*;

fn described(config: &Config) -> Value {
    let pod = pod(config, "pb-1-00", &Metadata::default(), Default::default(), None, None).unwrap();
    serde_json::to_value(pod).unwrap()
}

#[test]
fn a_sandbox_sets_little_aside_and_keeps_meshes_out() {
    let pod = described(&Config::default());
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(resources["requests"]["ephemeral-storage"], "256Mi");
    assert_eq!(resources["limits"]["ephemeral-storage"], "5Gi");
    assert_eq!(pod["metadata"]["annotations"]["sidecar.istio.io/inject"], "false");
    assert_eq!(pod["metadata"]["annotations"]["linkerd.io/inject"], "disabled");
    // Kuma reads only labels, which weren't set.
    assert_eq!(pod["metadata"]["labels"]["sidecar.istio.io/inject"], "false");
    assert_eq!(pod["metadata"]["labels"]["kuma.io/sidecar-injection"], "disabled");
    let extra_annotations = [("kuma.io/sidecar-injection".to_owned(), "enabled".to_owned())].into();
    let pod = described(&Config { extra_annotations, ..Config::default() });
    assert_eq!(pod["metadata"]["annotations"]["kuma.io/sidecar-injection"], "enabled");
    assert_eq!(pod["metadata"]["labels"]["kuma.io/sidecar-injection"], "enabled");
}

#[test]
fn a_lost_node_is_put_up_with_for_as_long_as_set() {
    let seconds = |config: &Config| {
        let pod = described(config);
        LOST.map(|key| {
            let all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
            all.iter().find(|one| one["key"] == key).map(|one| one["tolerationSeconds"].clone())
        })
    };
    assert_eq!(seconds(&Config::default()), [Some(json!(300)), Some(json!(300))]);
    let theirs = json!({"key": LOST[0], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7});
    let tolerations = vec![serde_json::from_value(theirs).unwrap()];
    let config = Config { tolerations, node_loss_tolerance: 30, ..Config::default() };
    assert_eq!(seconds(&config), [Some(json!(7)), Some(json!(30))]);
    let all = vec![serde_json::from_value(json!({"operator": "Exists"})).unwrap()];
    assert_eq!(seconds(&Config { tolerations: all, ..Config::default() }), [None, None]);
}
