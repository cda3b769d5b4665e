//! What `podbay install agent-sandbox` grants for the way to the router, by settings and by flags.

use crate::home::{Home, text};

/// The roles outside of the sandboxes' namespace: each namespace, and the resources.
fn elsewhere(words: &[&str]) -> Vec<(String, String)> {
    let words = [&["install", "agent-sandbox", "--no-template"], words].concat();
    let output = Home::new().output(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let manifests = text(&output.stdout);
    let roles = manifests.split("---\n").filter(|part| part.contains("\nkind: Role\n"));
    let found = roles.map(|role| {
        let after =
            |start: &str| role.lines().filter_map(|line| line.strip_prefix(start)).collect::<Vec<_>>().join(" ");
        (after("  namespace: "), after("    resources: "))
    });
    found.filter(|(namespace, _)| namespace != "podbay-sandboxes").collect()
}

#[test]
fn rights_on_the_way_to_the_router_follow_settings_and_flags() {
    assert_eq!(elsewhere(&[]), []);
    let tunnel = |namespace: &str| (namespace.to_owned(), r#"["services"] ["pods"] ["pods/portforward"]"#.to_owned());
    let gateway = |namespace: &str| (namespace.to_owned(), r#"["gateways"]"#.to_owned());
    assert_eq!(elsewhere(&["--tunnel"]), [tunnel("agent-sandbox-system")]);
    assert_eq!(elsewhere(&["--set", "cluster.connection=tunnel"]), [tunnel("agent-sandbox-system")]);
    // The rights were granted in `agent-sandbox-system`, wherever the router was.
    assert_eq!(elsewhere(&["--tunnel", "--set", "agent_sandbox.router_namespace=edge"]), [tunnel("edge")]);
    // No flag and no setting granted this one.
    assert_eq!(elsewhere(&["--gateway"]), [gateway("default")]);
    let settings = ["--set", "cluster.connection=gateway", "--set", "agent_sandbox.gateway_namespace=edge"];
    assert_eq!(elsewhere(&settings), [gateway("edge")]);
    assert_eq!(elsewhere(&["--tunnel", "--gateway"]), [tunnel("agent-sandbox-system"), gateway("default")]);
}

/// A tunnel leads nowhere if the template's network policy doesn't admit the router. With settings that choose one, nothing was
/// printed at all: the template's pods are raw mode's, which has no tunnel.
#[test]
fn the_router_is_admitted_where_sandboxes_are_reached_through_it() {
    let home = Home::new();
    let key = home.path().join("key");
    assert!(home.output(&["keys", key.to_str().unwrap()]).status.success());
    let key_file = format!("cluster.private_key_file={}", key.display());
    let admits = |words: &[&str]| {
        let words = [&["install", "agent-sandbox", "--set", &key_file], words].concat();
        let output = home.output(&words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).contains("app: sandbox-router")
    };
    assert!(!admits(&[]));
    for words in [["--set", "cluster.connection=tunnel"], ["--set", "agent_sandbox.gateway_name=front"]] {
        assert!(admits(&words), "{words:?}");
    }
    for flag in ["--router", "--tunnel", "--gateway"] {
        assert!(admits(&[flag]), "{flag}");
    }
    // Without a key such a template would lead nowhere.
    let keyless = Home::new().output(&["install", "agent-sandbox", "--set", "cluster.connection=tunnel"]);
    assert!(!keyless.status.success());
    assert!(text(&keyless.stderr).contains("--public-key"), "{}", text(&keyless.stderr));
    let edge = ["--tunnel", "--set", "agent_sandbox.router_namespace=edge"];
    let printed = home.output(&[&["install", "agent-sandbox", "--set", &key_file], &edge[..]].concat());
    assert!(text(&printed.stdout).contains("kubernetes.io/metadata.name: edge"), "{}", text(&printed.stdout));
    // The stock runtime's API takes no key, so there is no port of podbayd's to admit the router to.
    let stock = ["install", "agent-sandbox", "--set", "agent_sandbox.runtime=stock"];
    assert!(home.output(&stock).status.success());
}
