use super::*;

fn toml(text: &str) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    config.read_toml(text, "podbay.toml")?;
    Ok(config)
}

fn variables(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_stronger_place_wins_in_whichever_order_they_are_read() {
    let file = "ttl = 10\nidle_ttl = \"5m\"\n[local]\nmemory = \"64MiB\"\n";
    let environment = variables(&[("PODBAY_TTL", "20"), ("PODBAY_LOCAL_MEMORY", "128MiB"), ("HOME", "/x")]);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut config = Config::default();
        for step in order {
            match step {
                0 => config.read_toml(file, "podbay.toml").unwrap(),
                1 => config.read_environment(environment.clone()).unwrap(),
                _ => config.set("ttl", "30").unwrap(),
            }
        }
        assert_eq!(config.ttl(), Some(Duration::from_secs(30)), "code beats all");
        assert_eq!(config.get("local.memory"), Some(&Value::Number(128 << 20)), "the environment beats the file");
        assert_eq!(config.idle_ttl(), Some(Duration::from_secs(300)), "the file beats the default");
        assert_eq!(config.mode(), "local");
    }
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_one() {
    for (text, word) in [
        ("[local]\nmemroy = 1", "local.memory"),
        ("memory = \"1MiB\"", "local.memory"),
        ("tll = 3", "ttl"),
        ("[locla]\nmemory = 1", "local.memory"),
        ("[policy]\ndeny_command = []", "policy.deny_commands"),
    ] {
        let error = toml(text).unwrap_err().to_string();
        assert!(error.contains("did you mean") && error.contains(&format!("{word:?}")), "{text}: {error}");
    }
    let error = toml("something_else_entirely = 1").unwrap_err().to_string();
    assert!(error.contains("podbay config --all"), "{error}");
    for (name, word) in [("PODBAY_LOCAL_MEMROY", "PODBAY_LOCAL_MEMORY"), ("PODBAY_MEMORY", "PODBAY_LOCAL_MEMORY")] {
        let error = Config::default().read_environment(variables(&[(name, "1")])).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(Config::default().set("modee", "local").unwrap_err().to_string().contains("\"mode\""));
}

#[test]
fn bad_values_say_what_would_be_right() {
    for (text, word) in [
        ("ttl = \"soon\"", "90s"),
        ("ttl = -3", "-3"),
        ("[local]\nmemory = \"lots\"", "512MiB"),
        ("[local]\nnetwork = \"some\"", "none, host"),
        ("[local]\nmounts = \"x\"", "list"),
        ("[audit]\nstrict = \"very\"", "expected true or false, found a string"),
        ("[local]\nmemory = \"99999999999999999999GiB\"", "size"),
        ("ttl = ", "podbay.toml"),
    ] {
        let error = toml(text).unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn limits_hold_unless_they_are_lifted() {
    let limits = |text: &str| toml(text).unwrap().local().unwrap().limits;
    let default = podbay_local::default_limits();
    assert_eq!(limits(""), default);
    assert!(default.processes.is_some() && default.descriptors.is_some() && default.memory.is_some());
    for word in ["none", "unlimited"] {
        let text =
            format!("[local]\nmemory = {word:?}\nprocesses = {word:?}\ndescriptors = {word:?}\ncpu = {word:?}\n");
        assert_eq!(limits(&text), podbay_local::JailLimits::default());
    }
    let mut config = toml("ttl = \"1h\"").unwrap();
    config.set("ttl", "none").unwrap();
    assert_eq!(config.ttl(), None);
    assert!(config.set("local.processes", "many").unwrap_err().to_string().contains("or none"));
}

#[cfg(target_os = "linux")]
#[test]
fn every_local_option_can_be_set() {
    let config = toml(
        r#"
        ttl = "1h"
        idle_ttl = 1.5
        env = { A = "1" }
        labels = { team = "red" }
        [local]
        workspace = "/w/{id}"
        mounts = ["/data", "/out:/out:rw"]
        network = "host"
        isolation = "landlock"
        memory = "1GiB"
        cpu = 1.5
        processes = 100
        disk = "10 MB"
        descriptors = 256
        "#,
    )
    .unwrap();
    let options = config.local().unwrap();
    assert_eq!(options.workspace, Some("/w/{id}".into()));
    assert_eq!((options.mounts.len(), options.mounts[0].writable, options.mounts[1].writable), (2, false, true));
    assert_eq!(options.network, podbay_local::Network::Host);
    assert_eq!(options.isolation, podbay_local::Isolation::Landlock);
    let limits = options.limits;
    assert_eq!((limits.memory, limits.cpu, limits.processes), (Some(1 << 30), Some(1.5), Some(100)));
    assert_eq!((limits.disk, limits.descriptors), (Some(10_000_000), Some(256)));
    assert_eq!((options.ttl, options.idle_ttl), (Some(Duration::from_secs(3600)), Some(Duration::from_millis(1500))));
    assert_eq!((options.env["A"].as_str(), options.labels["team"].as_str()), ("1", "red"));
    let error = toml("[local]\nmounts = [\"relative\"]").unwrap_err().to_string();
    assert!(error.contains("relative") && error.contains("podbay.toml"), "{error}");
}

#[test]
fn what_is_shown_hides_what_may_be_secret() {
    let mut config = Config::default();
    config.set("env", "TOKEN=hunter2,B=x").unwrap();
    let entry = config.entries().next().unwrap();
    assert_eq!((entry.key, entry.from.as_str(), entry.value.as_str()), ("env", "settings", "B=…,TOKEN=…"));
}

#[test]
fn the_policy_is_what_was_set() {
    let policy = toml("[policy]\ndeny_commands = [\"rm -rf\"]\ndeny_prefixes = [\"/etc\"]\n").unwrap().policy();
    assert!(policy.check(&"rm -fr x".into()).is_err());
    assert_eq!(policy.paths.deny_prefixes, ["/etc".into()]);
}

/// Every file operation once failed instead, without naming the setting.
#[test]
fn prefixes_that_the_sandbox_would_refuse_are_refused_with_their_setting() {
    for key in ["policy.allow_prefixes", "policy.deny_prefixes"] {
        for prefix in ["..", "/a/../b", "../a", ""] {
            let error = toml(&format!("{key} = [\"/ok\", {prefix:?}]")).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(&format!("{prefix:?}")), "{error}");
            let error = Config::default().set_value(key, &serde_json::json!([prefix])).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        toml(&format!("{key} = [\"/a..b\", \"...\", \".\"]")).unwrap();
    }
    let error = Config::default().read_project_toml("policy.deny_prefixes = [\"..\"]", "podbay.toml").unwrap_err();
    assert!(error.to_string().contains("policy.deny_prefixes"), "{error}");
}

/// A release once refused PODBAY_RIG as an unknown setting.
#[test]
fn variables_of_the_tests_set_nothing() {
    let mut config = Config::default();
    config.read_environment(variables(&OF_TESTS.map(|name| (name, "1")))).unwrap();
    assert_eq!(config.entries().count(), 0);
}

/// Without a root of its own, virtual mode once confined Python and TypeScript only: it did nothing in Rust, `podbay` and
/// `podbay mcp`.
#[test]
fn virtual_mode_confines_to_the_working_directory_unless_a_root_is_set() {
    for (root, expected) in [("", "/workspace"), ("root = \"/data\"\n", "/data")] {
        let policy = toml(&format!("[policy]\nvirtual_mode = true\n{root}")).unwrap().policy();
        assert_eq!((policy.paths.root, policy.paths.virtual_paths), (Some(expected.into()), true));
    }
    assert_eq!(toml("[policy]\nvirtual_mode = false\n").unwrap().policy().paths.root, None);
}
