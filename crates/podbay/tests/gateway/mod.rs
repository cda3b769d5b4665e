//! A Gateway for the tests that go through one.

/// A Gateway that leads to the router. No implementation runs here, so its status is written by hand.
pub fn add(cluster: &rig::Cluster, namespace: &str, address: &str) {
    cluster
        .apply(&format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: podbay, namespace: {namespace}}}\nspec:\n  \
             gatewayClassName: none\n  listeners: [{{name: web, protocol: HTTP, port: 8080}}]\n"
        ))
        .unwrap();
    let status = format!(r#"{{"status": {{"addresses": [{{"type": "IPAddress", "value": "{address}"}}]}}}}"#);
    let mut patch = cluster.kubectl();
    patch.args([
        "patch",
        "gateway",
        "podbay",
        "--namespace",
        namespace,
        "--subresource=status",
        "--type=merge",
        "--patch",
    ]);
    assert!(patch.arg(status).status().unwrap().success());
}
