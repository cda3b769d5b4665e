//! `podbay describe` of sandboxes on this machine.

use crate::home::{Home, text};

/// What JSON says about a sandbox.
fn described(home: &Home, name: &str) -> serde_json::Value {
    let output = home.output(&["--json", "describe", name]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn both_isolations_say_what_holds() {
    let home = Home::new();
    for isolation in ["namespaces", "landlock"] {
        let words = ["create", "--name", isolation, "--isolation", isolation, "--processes", "77", "--ttl", "2h"];
        let made =
            home.podbay(&words).args(["--idle-ttl", "30m", "--label", "a=b", "--cpus", "none"]).output().unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        assert!(home.output(&["exec", isolation, "--detach", "--", "sleep", "60"]).status.success());

        let json = described(&home, isolation);
        for (key, value) in [("id", isolation), ("mode", "local"), ("phase", "running"), ("isolation", isolation)] {
            assert_eq!(json[key], value, "{json}");
        }
        assert_eq!((&json["ttl_ms"], &json["idle_ttl_ms"]), (&7_200_000.into(), &1_800_000.into()), "{json}");
        assert_eq!((&json["labels"]["a"], &json["running_commands"]), (&"b".into(), &1.into()), "{json}");
        assert_eq!((&json["events"], &json["unknown"]), (&serde_json::json!([]), &serde_json::json!([])), "{json}");
        let limit =
            |name: &str| json["limits"].as_array().unwrap().iter().find(|limit| limit["limit"] == name).unwrap();
        assert_eq!(limit("processes")["most"], "77", "{json}");
        assert!(limit("processes")["by"].is_string() && limit("cpu")["most"].is_null(), "{json}");

        let protections = json["protection"]["protections"].as_array().unwrap();
        assert!(protections.len() > 3 && json["protection"]["landlock_abi"].is_u64(), "{json}");
        let in_force = |what: &str| {
            protections.iter().any(|protection| protection["what"] == what && protection["in_force"] == true)
        };
        assert!(in_force("system_calls") && in_force("program"), "{json}");

        let shown = text(&home.output(&["describe", isolation]).stdout);
        let row = |name: &str| shown.lines().find(|line| line.split("  ").next() == Some(name)).unwrap_or_default();
        assert!(row("system calls").contains("yes") && row("podbayd's socket").contains("  "), "{shown}");
        assert!(row("isolation").ends_with(isolation) && row("ttl").ends_with("2h"), "{shown}");
        assert!(row("idle ttl").ends_with("30m") && row("network").ends_with("none"), "{shown}");
        assert!(row("cpu").contains("unlimited") && row("processes").contains("77"), "{shown}");
    }
}

/// To look at a sandbox isn't to use it: one that is described again and again still ends when nobody uses it.
#[test]
fn describing_is_not_using() {
    let home = Home::new();
    assert!(home.output(&["create", "--name", "box"]).status.success());
    let used = || described(&home, "box")["active_ms"].as_u64().unwrap();
    let first = used();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    used();
    // It says for how long it was idle, and the two clocks are read at different moments.
    assert!(used().abs_diff(first) < 700, "{first} {}", used());
}

#[test]
fn values_are_escaped_and_unknown_names_are_errors() {
    let home = Home::new();
    let made = home.output(&["create", "--name", "box", "--label", "evil=\x1b[2J\u{202e}"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let shown = text(&home.output(&["describe", "box"]).stdout);
    assert!(shown.contains(r"evil=\u{1b}[2J\u{202e}") && !shown.contains(['\x1b', '\u{202e}']), "{shown:?}");
    assert_eq!(described(&home, "box")["labels"]["evil"], "\x1b[2J\u{202e}");
    for name in ["nobody", "../box", "No\x1bName"] {
        let output = home.output(&["describe", name]);
        let said = text(&output.stderr);
        assert!(said.contains("there is no sandbox") && said.contains("podbay list"), "{said}");
        assert!(output.status.code() == Some(125) && !said.contains('\x1b'), "{said:?}");
        let output = home.output(&["--json", "describe", name]);
        let json: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(json["error"]["code"], "sandbox_not_found", "{json}");
    }
}
