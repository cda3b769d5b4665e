//! Values of settings.

use std::collections::BTreeMap;
use std::time::Duration;

use podbay_client::mount::MountSpec;
use podbay_client::quantity::{format_size, format_time, parse_quantity, parse_size, parse_time};
use serde_json::Value as Json;

use super::setting::SettingKind;

/// A value, of whatever kind.
#[derive(Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    /// Never shown.
    Secret(String),
    Flag(bool),
    Number(u64),
    Real(f64),
    Time(Duration),
    List(Vec<String>),
    Map(BTreeMap<String, String>),
    /// A structure of the Kubernetes API.
    Tree(Json),
    /// Set to nothing: a limit that is lifted, or an ID that the cluster chooses.
    None,
}

impl Value {
    /// From the text of a flag or of the environment.
    pub(super) fn parse(kind: SettingKind, text: &str) -> Result<Self, String> {
        match kind {
            SettingKind::Limit(_) if matches!(text, "none" | "unlimited") => Ok(Self::None),
            SettingKind::Limit(kind) => match Self::parse(*kind, text) {
                // What lives for no time would be gone before it could be used.
                Ok(Self::Time(Duration::ZERO)) => {
                    Err("the time has to be longer than 0; to lift the limit, use none".into())
                }
                read => read.map_err(|why| format!("{why}, or none")),
            },
            SettingKind::Text => Ok(Self::Text(text.to_owned())),
            SettingKind::Secret => Ok(Self::Secret(text.to_owned())),
            SettingKind::Choice(words) if words.contains(&text) => Ok(Self::Text(text.to_owned())),
            SettingKind::Choice(words) => Err(format!("{text:?} isn't one of {}", words.join(", "))),
            SettingKind::Flag => match text {
                "true" | "yes" | "1" | "on" => Ok(Self::Flag(true)),
                "false" | "no" | "0" | "off" => Ok(Self::Flag(false)),
                _ => Err(format!("{text:?} is neither true nor false")),
            },
            SettingKind::Id if text == "none" => Ok(Self::None),
            SettingKind::Object | SettingKind::Objects => {
                let tree = serde_json::from_str(text).map_err(|error| format!("this isn't JSON: {error}"))?;
                Self::from_json(kind, &tree)
            }
            SettingKind::Count | SettingKind::Id => {
                text.parse().map(Self::Number).map_err(|_| format!("{text:?} isn't a whole number"))
            }
            SettingKind::Real => text
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(Self::Real)
                .ok_or_else(|| format!("{text:?} isn't a number")),
            SettingKind::Size => parse_size(text).map(Self::Number),
            SettingKind::Time => parse_time(text).map(|time| Self::Time(in_milliseconds(time))),
            SettingKind::Quantity => parse_quantity(text).map(|_| Self::Text(text.to_owned())),
            SettingKind::List => Ok(Self::List(items(text))),
            SettingKind::Mounts => mounts(items(text)),
            SettingKind::Map => items(text)
                .into_iter()
                .map(|item| match item.split_once('=') {
                    Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
                    None => Err(format!("{item:?} isn't NAME=TEXT")),
                })
                .collect::<Result<_, _>>()
                .map(Self::Map),
        }
    }

    /// From a file, or from another language.
    pub(super) fn from_json(kind: SettingKind, value: &Json) -> Result<Self, String> {
        match (kind, value) {
            (SettingKind::Limit(_) | SettingKind::Id, Json::Null) => Ok(Self::None),
            (SettingKind::Limit(_), Json::String(text)) => Self::parse(kind, text),
            (SettingKind::Limit(limited), value) => match Self::from_json(*limited, value)? {
                Self::Time(Duration::ZERO) => Self::parse(kind, "0"),
                limit => Ok(limit),
            },
            (SettingKind::Object, tree @ (Json::Object(_) | Json::Null))
            | (SettingKind::Objects, tree @ Json::Array(_)) => Ok(Self::Tree(tree.clone())),
            (SettingKind::List, Json::Array(items)) => texts(items).map(Self::List),
            (SettingKind::Mounts, Json::Array(items)) => mounts(texts(items)?),
            (SettingKind::Map, Json::Object(table)) => {
                let pair = |(name, value): (&String, &Json)| Ok((name.clone(), text(value)?));
                table.iter().map(pair).collect::<Result<_, String>>().map(Self::Map)
            }
            (SettingKind::Flag, Json::Bool(flag)) => Ok(Self::Flag(*flag)),
            // Other languages have times of less than a microsecond, which print as 1e-7.
            (SettingKind::Time, Json::Number(number)) => match number.as_f64().map(Duration::try_from_secs_f64) {
                Some(Ok(time)) => parse_time(&time.as_secs().to_string()).map(|_| Self::Time(in_milliseconds(time))),
                _ => Err(format!("{number} isn't a time; use a number of seconds, or a text such as \"90s\"")),
            },
            (
                SettingKind::Count | SettingKind::Id | SettingKind::Size | SettingKind::Real | SettingKind::Quantity,
                Json::Number(number),
            ) => Self::parse(kind, &number.to_string()),
            (
                SettingKind::Text
                | SettingKind::Secret
                | SettingKind::Choice(_)
                | SettingKind::Id
                | SettingKind::Size
                | SettingKind::Time
                | SettingKind::Quantity,
                Json::String(text),
            ) => Self::parse(kind, text),
            // The value itself could be a secret in the wrong place.
            (_, value) => Err(format!("expected {}, found {}", expected(kind), sort(value))),
        }
    }

    /// As the provider's own configuration has it.
    pub(super) fn to_json(&self, kind: SettingKind) -> Json {
        match self {
            Self::Text(text) | Self::Secret(text) => text.as_str().into(),
            Self::Flag(flag) => (*flag).into(),
            // Kubernetes counts in seconds; a fraction is rounded up, so that it isn't no time at all.
            Self::Time(time) => (time.as_secs() + u64::from(time.subsec_nanos() > 0)).into(),
            Self::Number(number) => (*number).into(),
            Self::Real(number) => (*number).into(),
            Self::List(list) if kind == SettingKind::Mounts => list
                .iter()
                .filter_map(|text| text.parse::<MountSpec>().ok())
                .filter_map(|mount| serde_json::to_value(mount).ok())
                .collect(),
            Self::List(list) => list.as_slice().into(),
            Self::Map(map) => map.iter().map(|(name, text)| (name.clone(), text.as_str())).collect(),
            Self::Tree(tree) => tree.clone(),
            Self::None => Json::Null,
        }
    }

    /// As [`from_json`](Self::from_json) reads it again.
    pub(super) fn written(&self, kind: SettingKind) -> Json {
        match self {
            Self::Time(time) => format_time(*time).into(),
            Self::Number(_) if kind.of_limit() == SettingKind::Size => self.shown(kind).into(),
            Self::None => "none".into(),
            Self::List(list) => list.as_slice().into(),
            other => other.to_json(kind),
        }
    }

    /// How much it is, for comparing two values of one setting. Nothing where it is unlimited or no amount.
    pub(super) fn amount(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number as f64),
            Self::Real(number) => Some(*number),
            Self::Time(time) => Some(time.as_secs_f64()),
            Self::Text(text) => parse_quantity(text).ok(),
            _ => None,
        }
    }

    /// For people to read. What may be secret is left out: tokens, the values of variables, and structures, which may have
    /// variables in them.
    pub(super) fn shown(&self, kind: SettingKind) -> String {
        let names = |names: &mut dyn Iterator<Item = &String>| {
            names.map(|name| format!("{name}=…")).collect::<Vec<_>>().join(",")
        };
        match self {
            Self::Number(number) if kind.of_limit() == SettingKind::Size => format_size(*number),
            Self::Time(time) => format_time(*time),
            Self::Text(text) => text.clone(),
            Self::Secret(_) => "…".into(),
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Real(number) => number.to_string(),
            Self::List(list) => list.join(","),
            Self::Tree(Json::Object(tree)) => names(&mut tree.keys()),
            Self::Tree(Json::Array(items)) => format!("a list of {}", items.len()),
            Self::Tree(tree) => tree.to_string(),
            Self::Map(map) => names(&mut map.keys()),
            Self::None => "none".into(),
        }
    }
}

/// Shows no more than people see: this is what ends up in logs.
impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown(SettingKind::Text))
    }
}

/// Rounded up, so that what isn't nothing stays more than nothing.
fn in_milliseconds(time: Duration) -> Duration {
    Duration::from_millis(time.as_nanos().div_ceil(1_000_000) as u64)
}

fn items(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn mounts(list: Vec<String>) -> Result<Value, String> {
    for text in &list {
        let mount: MountSpec = text.parse()?;
        if !mount.host.is_absolute() {
            return Err(format!("mount {text:?}: the host's path has to be absolute"));
        }
    }
    Ok(Value::List(list))
}

fn text(value: &Json) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("expected a string, found {}", sort(value)))
}

fn texts(items: &[Json]) -> Result<Vec<String>, String> {
    items.iter().map(text).collect()
}

/// What a kind wants to see in a file.
fn expected(kind: SettingKind) -> String {
    match kind {
        SettingKind::Text | SettingKind::Secret => "a string".into(),
        SettingKind::Choice(words) => format!("one of {}", words.join(", ")),
        SettingKind::Flag => "true or false".into(),
        SettingKind::Count => "a whole number".into(),
        SettingKind::Real => "a number".into(),
        SettingKind::Size => "a number of bytes, or a string such as \"512MiB\"".into(),
        SettingKind::Time => "a number of seconds, or a string such as \"90s\"".into(),
        SettingKind::Quantity => "a Kubernetes quantity, such as \"500m\" or \"1Gi\"".into(),
        SettingKind::List => "a list of strings".into(),
        SettingKind::Mounts => "a list of mounts, such as [\"/data:/data:rw\"]".into(),
        SettingKind::Id => "a whole number or \"none\"".into(),
        SettingKind::Object | SettingKind::Map => "a table".into(),
        SettingKind::Objects => "a list of tables".into(),
        SettingKind::Limit(limited) => format!("{}, or \"none\"", expected(*limited)),
    }
}

/// What kind of JSON or TOML a value is.
fn sort(value: &Json) -> &'static str {
    match value {
        Json::Null => "nothing",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "a table",
    }
}
