//! Values of settings.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::setting::Kind;

/// A value, of whatever kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Flag(bool),
    Number(u64),
    Real(f64),
    List(Vec<String>),
    Map(BTreeMap<String, String>),
    /// A structure of Kubernetes' own.
    Tree(Json),
    /// Set, to nothing.
    None,
}

impl Value {
    /// From the text of a flag or of the environment.
    pub(super) fn parse(kind: Kind, text: &str) -> Result<Self, String> {
        let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
        match kind {
            Kind::Limit(_) if matches!(text, "none" | "unlimited") => Ok(Self::None),
            Kind::Limit(kind) => Self::parse(*kind, text).map_err(|why| format!("{why}, or none")),
            Kind::Text => Ok(Self::Text(text.to_owned())),
            Kind::Choice(words) if words.contains(&text) => Ok(Self::Text(text.to_owned())),
            Kind::Choice(words) => Err(format!("{text:?} isn't one of {}", words.join(", "))),
            Kind::Flag => match text {
                "true" | "yes" | "1" | "on" => Ok(Self::Flag(true)),
                "false" | "no" | "0" | "off" => Ok(Self::Flag(false)),
                _ => Err(format!("{text:?} is neither true nor false")),
            },
            Kind::Id if text == "none" => Ok(Self::None),
            Kind::Tree => {
                serde_json::from_str(text).map(Self::Tree).map_err(|error| format!("this isn't JSON: {error}"))
            }
            Kind::Count | Kind::Id => {
                text.parse().map(Self::Number).map_err(|_| format!("{text:?} isn't a whole number"))
            }
            Kind::Real => text
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(Self::Real)
                .ok_or_else(|| format!("{text:?} isn't a number")),
            Kind::Size => scaled(text, &SIZES)
                .map(Self::Number)
                .ok_or_else(|| format!("{text:?} isn't a size; write a number of bytes, or like 512MiB")),
            Kind::Time => scaled(text, &TIMES)
                .map(Self::Number)
                .ok_or_else(|| format!("{text:?} isn't a time; write a number of seconds, or like 90s, 15m, 2h")),
            Kind::List => Ok(Self::List(parts().map(str::to_owned).collect())),
            Kind::Map => parts()
                .map(|part| {
                    let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} isn't NAME=TEXT"))?;
                    Ok((name.to_owned(), value.to_owned()))
                })
                .collect::<Result<_, _>>()
                .map(Self::Map),
        }
    }

    /// From a file, or from another language.
    pub(super) fn from_json(kind: Kind, value: &Json) -> Result<Self, String> {
        let text = |value: &Json| match value {
            Json::String(text) => Ok(text.clone()),
            other => Err(format!("a text is wanted in place of {other}")),
        };
        match (kind, value) {
            (Kind::Limit(_), Json::Null) => Ok(Self::None),
            (Kind::Limit(_), Json::String(text)) => Self::parse(kind, text),
            (Kind::Limit(kind), value) => Self::from_json(*kind, value),
            (Kind::Tree, tree) => Ok(Self::Tree(tree.clone())),
            (Kind::List, Json::Array(items)) => items.iter().map(text).collect::<Result<_, _>>().map(Self::List),
            (Kind::Map, Json::Object(table)) => {
                let pair = |(name, value): (&String, &Json)| Ok((name.clone(), text(value)?));
                table.iter().map(pair).collect::<Result<_, String>>().map(Self::Map)
            }
            (Kind::List, _) => Err(format!("a list of texts is wanted in place of {value}")),
            (Kind::Map, _) => Err(format!("a table is wanted in place of {value}")),
            (Kind::Flag, Json::Bool(flag)) => Ok(Self::Flag(*flag)),
            (Kind::Id, Json::Null) => Ok(Self::None),
            (Kind::Count | Kind::Id | Kind::Size | Kind::Time | Kind::Real, Json::Number(number)) => {
                Self::parse(kind, &number.to_string())
            }
            (Kind::Text | Kind::Choice(_) | Kind::Id | Kind::Size | Kind::Time, Json::String(text)) => {
                Self::parse(kind, text)
            }
            _ => Err(format!("{value} isn't what is wanted here")),
        }
    }

    /// As the provider's own configuration has it.
    pub(super) fn to_json(&self, kind: Kind) -> Json {
        let kind = kind.of_limit();
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Flag(flag) => (*flag).into(),
            // Kubernetes counts seconds; less than one is no time to start anything in.
            Self::Number(number) if kind == Kind::Time => number.div_ceil(1000).into(),
            Self::Number(number) => (*number).into(),
            Self::Real(number) => (*number).into(),
            Self::List(list) => list.as_slice().into(),
            Self::Map(map) => map.iter().map(|(name, text)| (name.clone(), text.as_str())).collect(),
            Self::Tree(tree) => tree.clone(),
            Self::None => Json::Null,
        }
    }
}

impl Value {
    /// As [`from_json`](Self::from_json) reads it again.
    pub(super) fn written(&self, kind: Kind) -> Json {
        match self {
            Self::Number(_) if matches!(kind.of_limit(), Kind::Time | Kind::Size) => self.shown(kind).into(),
            Self::None => "none".into(),
            other => other.to_json(kind),
        }
    }

    /// How much it is, for comparing two values of one setting; texts are quantities of Kubernetes. Nothing where it is
    /// unlimited or no amount.
    pub(super) fn amount(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number as f64),
            Self::Real(number) => Some(*number),
            Self::Text(text) => quantity(text),
            _ => None,
        }
    }

    /// As people would write it.
    pub(super) fn shown(&self, kind: Kind) -> String {
        let units: &[_] = match kind.of_limit() {
            Kind::Time => &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)],
            Kind::Size => &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)],
            _ => &[],
        };
        match self {
            Self::Number(number) => units
                .iter()
                .find(|(_, factor)| number % factor == 0)
                .map_or_else(|| number.to_string(), |(unit, factor)| format!("{}{unit}", number / factor)),
            other => other.to_string(),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Flag(flag) => flag.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Real(number) => number.fmt(f),
            Self::List(list) => f.write_str(&list.join(",")),
            // So are those of structures, which may have variables in them.
            Self::Tree(Json::Object(tree)) => {
                f.write_str(&tree.keys().map(|name| format!("{name}=…")).collect::<Vec<_>>().join(","))
            }
            Self::Tree(Json::Array(items)) => write!(f, "a list of {}", items.len()),
            Self::Tree(tree) => tree.fmt(f),
            Self::None => f.write_str("none"),
            // Values of variables are often secret.
            Self::Map(map) => f.write_str(&map.keys().map(|name| format!("{name}=…")).collect::<Vec<_>>().join(",")),
        }
    }
}

/// In bytes.
const SIZES: [(&str, u64); 11] = [
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
];

/// In milliseconds.
const TIMES: [(&str, u64); 6] =
    [("", 1_000), ("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// What Kubernetes makes of a quantity
/// (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>).
fn quantity(text: &str) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 16] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
        ("", 1.0),
    ];
    let (number, factor) = SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))?;
    // Rust also reads "inf" and "nan" as numbers.
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-' | b'e' | b'E'));
    number.parse::<f64>().ok().filter(|number| plain && number.is_finite()).map(|number| number * factor)
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor);
    }
    let scaled = number.parse::<f64>().ok()? * *factor as f64;
    (scaled.is_finite() && scaled < 9e15).then_some(scaled.round() as u64)
}
