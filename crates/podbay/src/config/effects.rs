//! Every setting arrives, and some test sees what it does.
//!
//! That it arrives is shown here: each is set to something other than its default, and has to change what providers, rules or the
//! audit are made of. What they then do with it is seen by other tests: `effects.txt` names one for every setting, except for those
//! that a pod or a claim shows.

#[path = "../../tests/named_tests/mod.rs"]
mod named_tests;

use super::providers::SHARED_WITH_CLUSTER;
use super::setting::{SETTINGS, Setting, SettingKind};
use super::*;

/// Lines of a setting, a mode or `any`, and the test that sees the setting take effect.
const EFFECTS: &str = include_str!("effects.txt");

/// Everything that settings decide, apart from `home` and `audit.*`, which touch files.
fn outcome(config: &Config) -> Vec<String> {
    let access = config.access();
    vec![
        config.mode().to_owned(),
        format!("{access:?} {:?}", access.token),
        serde_json::to_string(&config.raw().unwrap()).unwrap(),
        serde_json::to_string(&config.agent_sandbox().unwrap()).unwrap(),
        #[cfg(target_os = "linux")]
        serde_json::to_string(&config.local().unwrap()).unwrap(),
        format!("{:?}", config.policy()),
    ]
}

fn with(key: &str, text: &str) -> Config {
    let mut config = Config::default();
    config.set(key, text).unwrap_or_else(|error| panic!("{error}"));
    config
}

/// A value other than the default, as text.
fn example(setting: &Setting) -> &'static str {
    match (setting.key, setting.kind.of_limit()) {
        ("raw.affinity", _) => r#"{"nodeAffinity": {}}"#,
        ("raw.env_from", _) => r#"{"A": {"secretKeyRef": {"name": "s", "key": "k"}}}"#,
        (_, SettingKind::Choice(words)) => words.iter().find(|word| Some(**word) != setting.default).unwrap(),
        (_, SettingKind::Text | SettingKind::Secret | SettingKind::List) => "/x",
        (_, SettingKind::Flag) => {
            if setting.default == Some("true") {
                "false"
            } else {
                "true"
            }
        }
        (_, SettingKind::Count | SettingKind::Id | SettingKind::Quantity) => "77",
        (_, SettingKind::Real) => "1.5",
        (_, SettingKind::Size) => "77MiB",
        (_, SettingKind::Time) => "77s",
        (_, SettingKind::Mounts) => "/usr:/x",
        (_, SettingKind::Object) => r#"{"spec": {"hostname": "x"}}"#,
        (_, SettingKind::Objects) => r#"[{"name": "x", "mountPath": "/x", "ports": [{"port": 53}]}]"#,
        (_, SettingKind::Map) => "a=b",
        (_, SettingKind::Limit(_)) => unreachable!("limits have no limits"),
    }
}

#[test]
fn every_setting_arrives() {
    let default = outcome(&Config::default());
    for setting in SETTINGS {
        match setting.key {
            "home" => home_takes_effect(),
            // Tests of their own below.
            "audit.file" | "audit.strict" | "audit.max_bytes" | "audit.keep" => {}
            key => assert_ne!(outcome(&with(key, example(setting))), default, "{key} doesn't arrive"),
        }
    }
}

/// Whether the table of the object that is a sandbox in a mode has the field that a setting fills.
fn is_shown_by_the_object(setting: &Setting, mode: &str) -> bool {
    let (section, table) = match mode {
        "raw" => ("raw.", "crates/k8s/src/raw/manifest/fields.rs"),
        "agent-sandbox" => ("agent_sandbox.", "crates/k8s/src/agent_sandbox/claims/fields.rs"),
        _ => return false,
    };
    let shared = SHARED_WITH_CLUSTER.iter().find(|(key, _)| *key == setting.key).map(|(_, field)| *field);
    let Some(field) = shared.or_else(|| setting.key.strip_prefix(section)) else { return false };
    // Without white space, as a row may have several lines.
    let table: String = std::fs::read_to_string(named_tests::root().join(table)).unwrap().split_whitespace().collect();
    table.contains(&format!("({field:?},"))
}

#[test]
fn every_setting_has_a_test_that_sees_it_take_effect() {
    let mut wrong = Vec::new();
    let mut rows = Vec::new();
    for line in EFFECTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [key, mode, test] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let setting = lookup::find(key).unwrap_or_else(|| panic!("{key} isn't a setting"));
        assert!(mode == "any" || setting.modes().contains(&mode), "{key} isn't a setting of mode {mode}");
        assert!(test.contains("::"), "{key}: name a test in the file {test}");
        wrong.extend(named_tests::missing(test).map(|why| format!("{key}: {why}")));
        rows.push((key, mode));
    }
    for setting in SETTINGS {
        let has_row = |mode: &str| rows.iter().any(|(key, of)| *key == setting.key && (*of == mode || *of == "any"));
        let unseen = setting.modes().iter().filter(|mode| !has_row(mode) && !is_shown_by_the_object(setting, mode));
        wrong.extend(unseen.map(|mode| format!("{} in mode {mode}: no test sees it take effect", setting.key)));
    }
    assert!(wrong.is_empty(), "effects.txt:\n{}", wrong.join("\n"));
}

fn home_takes_effect() {
    #[cfg(target_os = "linux")]
    {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        with("home", home.to_str().unwrap()).local_provider().unwrap();
        assert!(home.is_dir());
    }
}

#[test]
fn the_audit_has_its_file_and_is_strict_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit");
    let mut config = with("audit.file", file.to_str().unwrap());
    let lenient = format!("{:?}", config.audit().unwrap());
    assert!(file.is_file());
    config.set("audit.strict", "true").unwrap();
    assert_ne!(format!("{:?}", config.audit().unwrap()), lenient);
}

#[test]
fn the_audit_starts_new_files_and_keeps_as_many_as_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = with("audit.file", dir.path().join("audit").to_str().unwrap());
    config.set("audit.max_bytes", "100").unwrap();
    config.set("audit.keep", "2").unwrap();
    let audit = config.audit().unwrap();
    for _ in 0..5 {
        let operation = audit.begin("box", "ls", crate::audit::Details::none).unwrap();
        audit.end(operation, Ok(crate::audit::RecordedEffect::default())).unwrap();
    }
    let files = std::fs::read_dir(dir.path()).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        !name.to_string_lossy().ends_with("lock")
    });
    assert_eq!(files.count(), 3, "the current file and two full ones");
}

/// The table says what the documentation and Python show, and must not say anything else than what happens.
#[test]
fn defaults_are_what_happens_without_a_setting() {
    let nothing = outcome(&Config::default());
    for setting in SETTINGS {
        let Some(default) = setting.default else { continue };
        assert!(setting.check(default).is_ok(), "{}: {default}", setting.key);
        if setting.default_note.is_none() {
            assert_eq!(outcome(&with(setting.key, default)), nothing, "{} isn't {default}", setting.key);
        }
    }
}

#[test]
fn a_request_never_exceeds_a_limit_that_is_set_alone() {
    let raw = with("raw.memory_limit", "64Mi").raw().unwrap();
    assert_eq!((raw.memory_limit.as_str(), raw.memory_request.as_str()), ("64Mi", "64Mi"));
    let raw = with("raw.cpu_limit", "2").raw().unwrap();
    assert_eq!((raw.cpu_limit.as_str(), raw.cpu_request.as_str()), ("2", "100m"));
}

/// `podbay config`, errors and logs once showed whatever a setting had.
#[test]
fn a_token_is_shown_nowhere() {
    let mut config = with("cluster.token", "s3cret");
    assert_eq!(config.access().token.as_deref(), Some("s3cret"));
    let entry = config.entries().find(|entry| entry.key == "cluster.token").unwrap();
    assert_eq!(entry.value, "…");
    assert!(!format!("{config:?} {entry:?}").contains("s3cret"));
    let error = config.set_value("cluster.token", &serde_json::json!(["s3cret"])).unwrap_err().to_string();
    assert!(error.contains("expected a string, found a list") && !error.contains("s3cret"), "{error}");
    // dcode reads settings by one process and passes them to another.
    config.read_environment([("PODBAY_CLUSTER_TOKEN".into(), "s3cret".into())]).unwrap();
    // An empty one lifts what a weaker source says.
    config.set("cluster.token", "").unwrap();
    assert_eq!(config.access().token, None);
}

#[test]
fn renamed_settings_are_refused_with_their_new_names() {
    for key in ["kubeconfig", "context", "namespace"] {
        let error = Config::default().set(&format!("raw.{key}"), "x").unwrap_err().to_string();
        assert_eq!(error, format!("settings: unknown setting \"raw.{key}\"; it is now \"cluster.{key}\""));
        let variable = format!("PODBAY_RAW_{}", key.to_uppercase());
        let error = Config::default().read_environment([(variable, "x".into())]).unwrap_err().to_string();
        assert!(error.ends_with(&format!("it is now \"PODBAY_CLUSTER_{}\"", key.to_uppercase())), "{error}");
        let error = Config::default().read_toml(&format!("[raw]\n{key} = \"x\""), "f").unwrap_err().to_string();
        assert!(error.contains(&format!("it is now \"cluster.{key}\"")), "{error}");
    }
}

/// Flags that two settings share have to be read alike, and one mode can't have two of them.
#[test]
fn shared_flags_belong_to_different_modes() {
    for setting in SETTINGS {
        let Some(flag) = setting.flag else { continue };
        let shared: Vec<_> =
            SETTINGS.iter().filter(|other| other.flag.is_some_and(|other| other.name == flag.name)).collect();
        for mode in super::setting::MODES {
            let of_mode = shared.iter().filter(|setting| setting.modes().contains(mode));
            assert!(of_mode.count() <= 1, "--{} is two settings in mode {mode}", flag.name);
        }
        assert!(shared.iter().all(|other| other.flag == setting.flag), "--{}", flag.name);
    }
}
