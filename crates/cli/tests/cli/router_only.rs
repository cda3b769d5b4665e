//! A client that has a router's URL and a key, and nothing that leads to a cluster's API.

use std::process::{Command, Output};

use crate::home::{Home, text};

/// No kubeconfig, and nothing where kubectl would look for one.
fn without_cluster(home: &Home, words: &[&str]) -> Output {
    let mut command: Command = home.podbay(&["--mode", "agent-sandbox"]);
    command.args(words).env("HOME", home.path()).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    command.env_remove("KUBERNETES_SERVICE_PORT").output().unwrap()
}

#[test]
fn without_a_kubeconfig_the_routers_url_will_do() {
    let home = Home::new();
    let key = home.path().join("key");
    assert!(home.output(&["keys", key.to_str().unwrap()]).status.success());
    let key = format!("cluster.private_key_file={}", key.display());
    // Nobody listens there.
    let url = "agent_sandbox.router_url=http://127.0.0.1:1/base";
    let failed = |words: &[&str]| {
        let output = without_cluster(&home, words);
        assert_eq!(output.status.code(), Some(125), "{words:?} {}", text(&output.stdout));
        text(&output.stderr)
    };
    let direct = ["--set", &key, "--set", url];
    // The router is asked, not a cluster.
    let error = failed(&[&direct[..], &["exec", "box", "--", "true"]].concat());
    for words in ["http://127.0.0.1:1/base", "connection direct", "default/box", "podbay doctor"] {
        assert!(error.contains(words), "{error}");
    }
    assert!(!error.contains("kubeconfig"), "{error}");
    // What only a cluster can do says what is missing.
    for (words, right) in [
        (&["list"][..], "list sandboxclaims"),
        (&["create", "--template", "python"], "create sandboxclaims"),
        (&["suspend", "box"], "patch sandboxes"),
    ] {
        let error = failed(&[&direct[..], words].concat());
        assert!(error.contains(right) && error.contains("cluster.kubeconfig"), "{error}");
    }
    // Without a router's URL, or by another connection, the cluster is needed.
    let error = failed(&["list"]);
    assert!(error.contains("kubeconfig") && !error.contains("router"), "{error}");
    let error = failed(&[&direct[..], &["--set", "cluster.connection=exec", "list"]].concat());
    assert!(error.contains("kubeconfig") && !error.contains("router alone"), "{error}");
    // A kubeconfig that is named has to be there.
    let error = failed(&[&direct[..], &["--kubeconfig", "/nowhere", "list"]].concat());
    assert!(error.contains("/nowhere"), "{error}");

    let report = without_cluster(&home, &[&direct[..], &["doctor"]].concat());
    let (code, shown) = (report.status.code(), text(&report.stdout));
    assert!(code == Some(1) && shown.contains("http://127.0.0.1:1/base") && shown.contains("router_only"), "{shown}");
    let wrong = home.output(&["doctor", "--hold", "60"]);
    assert!(text(&wrong.stderr).contains("for mode agent-sandbox"), "{}", text(&wrong.stderr));
    let long = without_cluster(&home, &["doctor", "--hold", "1h"]);
    assert!(text(&long.stderr).contains("longer than 10m"), "{}", text(&long.stderr));
}
