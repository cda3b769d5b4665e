use super::super::setting::{SETTINGS, SettingKind};
use super::*;

const FROM: &str = "podbay.toml";

/// Settings with full power, then a project's file.
fn read(own: &str, project: &str) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    config.read_toml(own, "own")?;
    config.read_project_toml(project, FROM)?;
    Ok(config)
}

/// A key with its value, as a file has it.
fn line(key: &str, value: &str) -> String {
    match key.split_once('.') {
        Some((section, key)) => format!("[{section}]\n{key} = {value}\n"),
        None => format!("{key} = {value}\n"),
    }
}

/// Some value of a kind.
fn example(kind: SettingKind) -> String {
    match kind {
        SettingKind::Text | SettingKind::Secret => "\"x\"".into(),
        SettingKind::Choice(words) => format!("{:?}", words[words.len() - 1]),
        SettingKind::Flag => "true".into(),
        SettingKind::Count
        | SettingKind::Id
        | SettingKind::Real
        | SettingKind::Size
        | SettingKind::Time
        | SettingKind::Quantity => "1".into(),
        SettingKind::List | SettingKind::Mounts => "[\"/x\"]".into(),
        SettingKind::Objects => "[]".into(),
        SettingKind::Object => "{}".into(),
        SettingKind::Map => "{ a = \"x\" }".into(),
        SettingKind::Limit(kind) => example(*kind),
    }
}

/// What a project may touch at all. Whoever makes this list longer has to say why the setting can't reach beyond the sandbox:
///
/// - An image runs inside the sandbox, with the sandbox's rights.
/// - Lower limits and times leave the sandbox with less.
/// - Labels can't replace the user's, can't be those by which Podbay finds sandboxes, and can't be the cluster's.
/// - Rules that deny are added to those that there are.
const MARKED: [&str; 14] = [
    "ttl",
    "idle_ttl",
    "labels",
    "local.memory",
    "local.cpu",
    "local.processes",
    "local.disk",
    "local.descriptors",
    "raw.image",
    "raw.cpu_limit",
    "raw.memory_limit",
    "raw.ephemeral_storage_limit",
    "policy.deny_prefixes",
    "policy.deny_commands",
];

/// A sandbox with `--workspace .` wrote a podbay.toml with mounts or a kubeconfig, and the next command obeyed it.
#[test]
fn every_setting_that_is_not_marked_is_refused_in_a_project() {
    let marked: Vec<_> = SETTINGS.iter().filter(|setting| setting.project != ProjectPower::Nothing).collect();
    assert_eq!(marked.iter().map(|setting| setting.key).collect::<Vec<_>>(), MARKED);
    for setting in SETTINGS.iter().filter(|setting| setting.project == ProjectPower::Nothing) {
        for value in [&example(setting.kind), "\"none\"", "false"] {
            let mut config = Config::default();
            let Err(error) = config.read_project_toml(&line(setting.key, value), FROM) else {
                panic!("a project set {} to {value}", setting.key);
            };
            // A value of the wrong kind may be refused for that.
            if value == example(setting.kind).as_str() {
                let error = error.to_string();
                for word in [FROM, setting.key, &setting.variable(), "~/.config/podbay", "--config", "PODBAY_CONFIG"] {
                    assert!(error.contains(word), "{word} isn't in: {error}");
                }
            }
            assert!(config.entries().next().is_none(), "{} left something behind", setting.key);
        }
        let variables = [(setting.variable(), example(setting.kind).trim_matches('"').to_owned())];
        assert!(Config::default().read_project_variables(variables, ".env").is_err(), "{}", setting.key);
    }
}

#[test]
fn the_other_settings_only_narrow_in_a_project() {
    for setting in SETTINGS {
        match setting.project {
            ProjectPower::Nothing => {}
            ProjectPower::Choose => {
                assert_eq!(read("", &line(setting.key, "\"x\"")).unwrap().text(setting.key), Some("x"));
            }
            ProjectPower::Lower => only_lowers(setting),
            ProjectPower::Add => only_adds(setting),
        }
    }
}

fn only_lowers(setting: &'static Setting) {
    let key = setting.key;
    let written =
        |number: u64| if setting.kind == SettingKind::Quantity { format!("\"{number}\"") } else { number.to_string() };
    let (own, less, more) = (line(key, &written(80)), line(key, &written(40)), line(key, &written(160)));
    let amount = |config: &Config| config.get(key).unwrap().amount().unwrap();
    let full = amount(&read(&own, "").unwrap());
    let narrowed = read(&own, &less).unwrap();
    assert!((amount(&narrowed) - full / 2.0).abs() < 1e-6, "{key}");
    let entry = narrowed.entries().find(|entry| entry.key == key).unwrap();
    assert_eq!((entry.from.as_str(), entry.power), (FROM, "may only narrow"));
    let error = read(&own, &more).unwrap_err().to_string();
    assert!(error.contains("only lower") && error.contains("own file"), "{error}");
    // No number at all is the highest of all, and so might zero be taken.
    for none in ["\"none\"", "\"unlimited\"", "0", "\"0\"", "\"-1\"", "-1", "\"inf\"", "\"NaN\"", "\"1e999\""] {
        assert!(read(&own, &line(key, none)).is_err(), "a project set {key} to {none}");
        assert!(read("", &line(key, none)).is_err(), "a project set {key} to {none}");
    }
    // The default is compared with too.
    if let Some(default) = setting.default {
        let most = Value::parse(setting.kind, default).unwrap().amount().unwrap();
        let above = written(most as u64 + 1);
        assert!(read("", &line(key, &above)).is_err(), "{key} was raised above its default");
        // Unless the user lifted it.
        assert!(read(&line(key, &written(most as u64 * 4)), &line(key, &above)).is_ok(), "{key}");
    }
    // Read in the wrong order, the lower one holds nevertheless.
    let mut config = read(&own, &less).unwrap();
    config.read_toml(&line(key, &written(20)), "own").unwrap();
    assert!((amount(&config) - full / 4.0).abs() < 1e-6, "{key}");
    // What the user says here and now beats the project, in both directions.
    let mut config = read(&own, &less).unwrap();
    config.set_by("--set", key, written(60).trim_matches('"')).unwrap();
    assert!((amount(&config) - full * 0.75).abs() < full * 0.01, "{key}");
}

fn only_adds(setting: &'static Setting) {
    let key = setting.key;
    let (own, project) = match setting.kind {
        SettingKind::List => ("[\"/mine\"]", "[\"/theirs\", \"/mine\"]"),
        _ => ("{ mine = \"1\" }", "{ mine = \"2\", theirs = \"3\" }"),
    };
    let mut config = read(&line(key, own), &line(key, project)).unwrap();
    let entry = config.entries().find(|entry| entry.key == key).unwrap();
    assert_eq!((entry.from.as_str(), entry.power), ("own + podbay.toml", "full + may only add"));
    let check = |config: &Config| match config.effective(setting).unwrap() {
        Value::List(list) => assert_eq!(list, ["/mine", "/theirs"]),
        Value::Map(map) => assert_eq!((map["mine"].as_str(), map["theirs"].as_str()), ("1", "3")),
        other => panic!("{other:?}"),
    };
    check(&config);
    // An empty list removes nothing.
    let empty = if setting.kind == SettingKind::List { "[]" } else { "{}" };
    let kept = read(&line(key, own), &line(key, empty)).unwrap().effective(setting).unwrap();
    assert_eq!(kept, read(&line(key, own), "").unwrap().effective(setting).unwrap());
    // Flags replace what the user's file says, and the project still only adds.
    config
        .set_value(key, &serde_json::from_str(&own.replace(" = ", ": ").replace("mine:", "\"mine\":")).unwrap())
        .unwrap();
    check(&config);
}

/// Labels say whose conversation a sandbox belongs to, and NetworkPolicies select pods by them.
#[test]
fn a_projects_labels_keep_out_of_what_others_go_by() {
    for label in ["podbay.dev/tenant", "podbay.dev/thread", "app.kubernetes.io/managed-by"] {
        let error = read("", &format!("labels = {{ {label:?} = \"x\" }}")).unwrap_err().to_string();
        assert!(error.contains("can't have a '/'"), "{error}");
    }
    let labels = "labels = { egress = \"open\" }";
    for mode in ["raw", "agent_sandbox"] {
        let key = format!("{mode}.label_prefix");
        let prefix = format!("[{mode}]\nlabel_prefix = \"acme.example/\"");
        assert!(read(&prefix, labels).unwrap_err().to_string().contains(&key));
        let mut late = read("", labels).unwrap();
        late.set(&key, "acme.example/").unwrap();
        let error = if mode == "raw" { late.raw().unwrap_err() } else { late.agent_sandbox().unwrap_err() };
        assert!(error.to_string().contains(&key), "{error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_project_cannot_raise_memory_above_half_of_the_machine() {
    let local = podbay_local::default_limits();
    let more = format!("[local]\nmemory = {}", local.memory.unwrap() + 1);
    assert!(read("", &more).is_err(), "memory was raised above its default");
}

#[test]
fn variables_of_a_project_have_no_more_power_than_its_file() {
    let mut config = Config::default();
    config.read_environment([("PODBAY_POLICY_DENY_COMMANDS".into(), "rm".into())]).unwrap();
    let variables = [("PODBAY_POLICY_DENY_COMMANDS", "curl"), ("PODBAY_RAW_IMAGE", "x"), ("PODBAY_TTL", "90s")];
    config.read_project_variables(variables.map(|(name, text)| (name.into(), text.into())), ".env").unwrap();
    let found: std::collections::BTreeMap<_, _> = config.variables().collect();
    assert_eq!(found["policy.deny_commands"], serde_json::json!(["rm", "curl"]));
    assert_eq!((&found["raw.image"], &found["ttl"]), (&"x".into(), &"90s".into()));
    // What it is made of can be read again.
    for (key, value) in found {
        Config::default().set_value(key, &value).unwrap();
    }
}
