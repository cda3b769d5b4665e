//! Which setting holds, and that every command keeps to the rules and the record.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::home::{Home, text};

fn shown(home: &Home, dir: &std::path::Path, words: &[&str], variable: Option<&str>) -> serde_json::Value {
    let mut command = home.podbay(&["--json", "config"]);
    command.args(words).current_dir(dir);
    if let Some(value) = variable {
        command.env("PODBAY_IDLE_TTL", value);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = all.as_array().unwrap().iter().find(|entry| entry["key"] == "idle_ttl").cloned();
    found.unwrap_or(serde_json::Value::Null)
}

#[test]
fn flags_beat_the_environment_which_beats_the_file() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    assert!(shown(&home, dir.path(), &[], None).is_null());
    std::fs::write(dir.path().join("podbay.toml"), "idle_ttl = \"90s\"\n").unwrap();
    std::fs::write(dir.path().join("other.toml"), "idle_ttl = 7\n").unwrap();
    let file = shown(&home, dir.path(), &[], None);
    assert_eq!((&file["value"], &file["from"]), (&"90s".into(), &"podbay.toml".into()));
    assert_eq!((&file["power"], &file["in_project"]), (&"may only narrow".into(), &"lower".into()));
    let other = shown(&home, dir.path(), &["--config", "other.toml"], None);
    assert_eq!((&other["value"], &other["from"]), (&"7s".into(), &"other.toml".into()));
    let environment = shown(&home, dir.path(), &["--config", "other.toml"], Some("2h"));
    assert_eq!((&environment["value"], &environment["from"]), (&"2h".into(), &"environment".into()));
    let flag = shown(&home, dir.path(), &["--set", "idle_ttl=1d"], Some("2h"));
    assert_eq!((&flag["value"], &flag["from"], &flag["power"]), (&"1d".into(), &"--set".into(), &"full".into()));
}

#[test]
fn the_users_own_file_may_set_everything() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    home.settings("idle_ttl = \"90s\"\nenv = { WHO = \"me\" }\n");
    let own = shown(&home, dir.path(), &[], None);
    assert_eq!((&own["value"], &own["power"]), (&"90s".into(), &"full".into()));
    std::fs::write(dir.path().join("podbay.toml"), "idle_ttl = \"30s\"\n").unwrap();
    assert_eq!(shown(&home, dir.path(), &[], None)["value"], "30s");
    std::fs::write(dir.path().join("podbay.toml"), "idle_ttl = \"2h\"\n").unwrap();
    let raised = home.podbay(&["config"]).current_dir(dir.path()).output().unwrap();
    assert_eq!(raised.status.code(), Some(125));
    assert!(text(&raised.stderr).contains("2h is more than 90s"), "{}", text(&raised.stderr));
    let output = home.output(&["run", "--", "sh", "-c", "echo $WHO"]);
    assert_eq!(text(&output.stdout), "me\n", "{}", text(&output.stderr));
}

/// A sandbox with `--workspace .` wrote a podbay.toml with mounts and the host's network; the next run wrote the host's files.
#[test]
fn a_sandbox_cannot_give_the_next_one_more_of_the_host() {
    let (home, dir) = (Home::new(), tempfile::tempdir().unwrap());
    let (work, secret) = (dir.path().join("work"), dir.path().join("secret"));
    std::fs::create_dir(&work).unwrap();
    std::fs::write(&secret, "untouched").unwrap();
    for setting in [
        format!("mounts = [\"{}:/host:rw\"]", dir.path().display()),
        "network = \"host\"".into(),
        "isolation = \"landlock\"".into(),
        format!("workspace = \"{}\"", dir.path().display()),
        "memory = \"none\"".into(),
    ] {
        let script = "printf '[local]\\n%s\\n' \"$1\" > podbay.toml";
        let words = ["run", "--workspace", ".", "--", "sh", "-c", script, "sh", &setting];
        let first = home.podbay(&words).current_dir(&work).output().unwrap();
        assert!(first.status.success(), "{}", text(&first.stderr));
        let words = ["run", "--workspace", ".", "--", "sh", "-c", "echo gone > /host/secret"];
        let second = home.podbay(&words).current_dir(&work).output().unwrap();
        assert_eq!(second.status.code(), Some(125), "{setting}");
        let said = text(&second.stderr);
        assert!(said.contains("podbay.toml: local.") && said.contains("project"), "{said}");
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "untouched");
        std::fs::remove_file(work.join("podbay.toml")).unwrap();
    }
}

/// The same with a kubeconfig: its exec plugin was run on the host by the next `podbay list`.
#[test]
fn a_sandbox_cannot_run_a_program_on_the_host_by_a_kubeconfig() {
    let (home, work) = (Home::new(), tempfile::tempdir().unwrap());
    let planted = work.path().join("ran-on-the-host");
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
         clusters: [{{name: x, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         contexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n\
         users: [{{name: x, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: touch, \
         args: ['{}'], interactiveMode: Never}}}}}}]\n",
        planted.display()
    );
    let script =
        "printf %s \"$1\" > kube; printf 'mode = \"raw\"\\n[cluster]\\nkubeconfig = \"kube\"\\n' > podbay.toml";
    let words = ["run", "--workspace", ".", "--", "sh", "-c", script, "sh", &kubeconfig];
    let first = home.podbay(&words).current_dir(work.path()).output().unwrap();
    assert!(first.status.success(), "{}", text(&first.stderr));
    let refused = home.podbay(&["list"]).current_dir(work.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("project"), "{}", text(&refused.stderr));
    assert!(!planted.exists(), "the plugin ran");
    // The control: named by the user, the same file is obeyed.
    let named = home.podbay(&["--config", "podbay.toml", "list"]).current_dir(work.path()).output().unwrap();
    assert_eq!(named.status.code(), Some(125));
    assert!(planted.exists(), "the plugin didn't run: {}", text(&named.stderr));
}

/// A FIFO under this name kept every command waiting forever.
#[test]
fn what_is_no_file_does_not_hang_a_command() {
    let (home, work) = (Home::new(), tempfile::tempdir().unwrap());
    let script = "mkfifo podbay.toml";
    let words = ["run", "--workspace", ".", "--", "sh", "-c", script];
    assert!(home.podbay(&words).current_dir(work.path()).output().unwrap().status.success());
    let output = home.podbay(&["list"]).current_dir(work.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("regular file"), "{}", text(&output.stderr));
}

#[test]
fn limits_are_shown_and_lifted() {
    let home = Home::new();
    let shown = |words: &[&str]| -> serde_json::Value {
        let output = home.output(&[&["--json", "config"], words].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let value = |all: &serde_json::Value, key: &str| {
        let found = all.as_array().unwrap().iter().find(|entry| entry["key"] == key).unwrap().clone();
        (found["value"].as_str().unwrap().to_owned(), found["from"].as_str().unwrap().to_owned())
    };
    let all = shown(&[]);
    assert_eq!(value(&all, "local.processes"), ("4096".into(), "default".into()));
    assert_eq!(value(&all, "local.descriptors"), ("16384".into(), "default".into()));
    assert_eq!(value(&all, "local.memory").1, "default");
    let lifted = shown(&["--set", "local.processes=none", "--set", "local.memory=unlimited"]);
    assert_eq!(value(&lifted, "local.processes"), ("none".into(), "--set".into()));
    let output = home.output(&["run", "--processes", "none", "--memory", "none", "--", "sh", "-c", "ulimit -n"]);
    assert_eq!(text(&output.stdout), "16384\n", "{}", text(&output.stderr));
}

/// Memory is limited by control groups only, so without them `podbay config` must not promise a limit.
#[test]
fn without_control_groups_memory_is_shown_as_unlimited() {
    let home = Home::new();
    let root = rustix::process::geteuid().is_root();
    let mut hidden = std::process::Command::new("unshare");
    hidden.args(if root { &["--mount"][..] } else { &["--mount", "--map-root-user"] });
    let script = "mount -t tmpfs -o ro none /sys/fs/cgroup && exec \"$0\" --json config";
    hidden.args(["sh", "-c", script, env!("CARGO_BIN_EXE_podbay")]).env("PODBAY_HOME", home.path());
    let output = hidden.env("XDG_CONFIG_HOME", home.path().join("config")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let memory = all.as_array().unwrap().iter().find(|entry| entry["key"] == "local.memory").unwrap();
    assert_eq!((&memory["value"], &memory["from"]), (&"unlimited".into(), &"default".into()));
}

#[test]
fn an_unknown_variable_is_refused_by_every_command() {
    let home = Home::new();
    for words in [&["list"][..], &["run", "--", "true"], &["doctor"], &["config"]] {
        let output = home.podbay(words).env("PODBAY_IDLE_TTTL", "1h").output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        assert!(text(&output.stderr).contains("did you mean \"PODBAY_IDLE_TTL\"?"), "{}", text(&output.stderr));
    }
}

/// Operations without an entry of their own, and why.
const NOT_RECORDED: &[(&str, &str)] = &[
    ("hello", "touches nothing: every connection begins with it"),
    ("protections", "recorded as a part of `describe`"),
    ("exec.run", "recorded as `exec`, as is the request that `podbay exec` sends in its place"),
    ("exec.status", "`podbay ps` asks for all commands at once, by `exec.list`"),
];

/// The table of operations and the commands were compared by their names alone, and `ps` passed for `exec.status`.
#[test]
fn every_operation_has_a_command_and_is_recorded() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    std::fs::write(dir.path().join("tree/file"), "x").unwrap();
    let entries = || -> Vec<serde_json::Value> {
        let lines = std::fs::read_to_string(dir.path().join("audit")).unwrap_or_default();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let mut seen = BTreeSet::new();
    let mut run = |words: &[&str], expected: i32, ops: &[&str]| {
        let before = entries().len();
        let mut command = home.podbay(words);
        command.env("PODBAY_AUDIT_FILE", "audit").env("PODBAY_POLICY_DENY_COMMANDS", "curl");
        let output = command.current_dir(dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(expected), "{words:?}: {}", text(&output.stderr));
        let new: BTreeSet<String> =
            entries().iter().skip(before).map(|entry| entry["op"].as_str().unwrap().to_owned()).collect();
        for op in ops {
            assert!(new.contains(*op), "{words:?}: {op} isn't in {new:?}");
        }
        seen.extend(new);
        text(&output.stdout)
    };
    run(&["create", "--name", "box"], 0, &["create"]);
    run(&["describe", "box"], 0, &["describe"]);
    run(&["exec", "box", "--", "true"], 0, &["exec"]);
    run(&["exec", "box", "--interactive", "--", "cat"], 0, &["exec", "exec.input"]);
    run(&["exec", "box", "--", "curl", "x"], 125, &["exec"]);
    let id = run(&["exec", "box", "--detach", "--", "sleep", "60"], 0, &["exec.start"]);
    run(&["ps", "box"], 0, &["exec.list"]);
    run(&["kill", "box", id.trim()], 0, &["exec.signal"]);
    run(&["attach", "box", id.trim()], 137, &["exec.attach"]);
    run(&["write", "box", "a", "--text", "hello"], 0, &["write"]);
    run(&["read", "box", "a"], 0, &["read"]);
    run(&["edit", "box", "a", "--old", "hello", "--new", "bye"], 0, &["edit"]);
    run(&["ls", "box"], 0, &["ls"]);
    run(&["tree", "box"], 0, &["tree"]);
    run(&["stat", "box", "a"], 0, &["stat"]);
    run(&["glob", "box", "*"], 0, &["glob"]);
    run(&["grep", "box", "bye"], 0, &["grep"]);
    run(&["mkdir", "box", "d"], 0, &["mkdir"]);
    run(&["mv", "box", "a", "d/a"], 0, &["move"]);
    run(&["rm", "box", "d/a"], 0, &["delete"]);
    run(&["cp", "tree", "box:t"], 0, &["upload_tree", "upload"]);
    run(&["cp", "box:t", "back"], 0, &["download_tree", "download"]);
    run(&["cp", "tree/file", "box:f"], 0, &["upload"]);
    run(&["cp", "box:f", "g"], 0, &["download"]);
    run(&["run", "--", "true"], 0, &["create", "exec", "destroy"]);
    run(&["delete", "box"], 0, &["destroy"]);

    let recorded = |name: &str| seen.contains(name) != NOT_RECORDED.iter().any(|(other, _)| *other == name);
    let unrecorded = podbay::OPERATIONS.iter().filter(|operation| operation.for_users && !recorded(operation.name));
    assert_eq!(unrecorded.map(|operation| operation.name).collect::<Vec<_>>(), Vec::<&str>::new());
    let entries = entries();
    let curl = entries.iter().find(|entry| entry["target"] == "curl x" && entry["event"] == "ended").unwrap();
    assert_eq!((&curl["decision"], &curl["sandbox"]), (&"denied".into(), &"box".into()));
    // Each file of a tree has a line of its own.
    assert!(entries.iter().any(|entry| entry["op"] == "upload" && entry["target"] == "t/file" && entry["bytes"] == 1));
}

/// The answer of a tool of `podbay mcp` in a sandbox.
fn tool(home: &Home, sandbox: &str, name: &str, arguments: serde_json::Value) -> serde_json::Value {
    let mut server = home.podbay(&["mcp", "--sandbox", sandbox]);
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = server.stdin.take().unwrap();
    let version = serde_json::json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    });
    let call = serde_json::json!({ "name": name, "arguments": arguments });
    for message in [
        serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": version }),
        serde_json::json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        serde_json::json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
    ] {
        writeln!(input, "{message}").unwrap();
    }
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let answers = lines.map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    let answer = answers.into_iter().find(|answer| answer["id"] == 2).unwrap();
    drop(input);
    assert!(server.wait().unwrap().success());
    answer["result"].clone()
}

/// Without `policy.root`, virtual mode once confined Python and TypeScript only.
#[test]
fn virtual_mode_without_a_root_confines_commands_and_tools() {
    let home = Home::new();
    home.settings("[policy]\nvirtual_mode = true\n");
    let succeeds = |words: &[&str]| {
        let output = home.output(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    succeeds(&["create", "--name", "box"]);
    succeeds(&["write", "box", "/etc/command", "--text", "command"]);
    let written = tool(&home, "box", "write", serde_json::json!({ "path": "/etc/tool", "content": "tool" }));
    assert_eq!(written["isError"], false, "{written}");
    let both = ["exec", "box", "--", "cat", "/workspace/etc/command", "/workspace/etc/tool"];
    assert_eq!(succeeds(&both), "commandtool");
    assert!(!home.output(&["read", "box", "/etc/passwd"]).status.success());
    let read = tool(&home, "box", "read", serde_json::json!({ "path": "/etc/passwd" }));
    assert_eq!(read["isError"], true, "{read}");
}
