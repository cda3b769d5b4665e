//! Flags that stand for settings, made from the table of settings.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches};
use podbay::config::{Config, MODES, SETTINGS, Setting, SettingKind};
use podbay::quantity::parse_size;

use crate::failure::Failure;

/// A flag that was given, with its values.
#[derive(Debug)]
pub struct Given {
    /// Its name without the dashes.
    pub name: &'static str,
    /// More than one where it was repeated.
    pub values: Vec<String>,
}

/// The flags of the table: those of every command, or those of commands that create a sandbox.
pub fn of_table(global: bool) -> impl Iterator<Item = Arg> {
    rows(global).map(|(name, rows)| flag(name, &rows))
}

/// The flags of the table that were given.
pub fn given(matches: &ArgMatches, global: bool) -> Vec<Given> {
    let values = |name: &str| -> Vec<String> { matches.get_many(name).into_iter().flatten().cloned().collect() };
    let all = rows(global).map(|(name, _)| Given { name, values: values(name) });
    all.filter(|given| !given.values.is_empty()).collect()
}

/// The names of flags, in the table's order, each with the settings that it stands for.
fn rows(global: bool) -> impl Iterator<Item = (&'static str, Vec<&'static Setting>)> {
    let mut names: Vec<&'static str> = Vec::new();
    for flag in SETTINGS.iter().filter_map(|setting| setting.flag).filter(|flag| flag.global == global) {
        if !names.contains(&flag.name) {
            names.push(flag.name);
        }
    }
    names.into_iter().map(|name| (name, rows_of(name).collect()))
}

fn rows_of(name: &str) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(move |setting| setting.flag.is_some_and(|flag| flag.name == name))
}

fn flag(name: &'static str, rows: &[&'static Setting]) -> Arg {
    let arg = Arg::new(name).long(name).help(help(rows));
    let Some(first) = rows.first().copied() else { return arg };
    let arg = arg.value_name(first.flag.map_or("VALUE", |flag| flag.value));
    match first.kind {
        SettingKind::Choice(words) => arg.value_parser(PossibleValuesParser::new(words)),
        SettingKind::Mounts => arg.action(ArgAction::Append),
        SettingKind::Map => arg.action(ArgAction::Append).value_parser(|text: &str| {
            crate::quantity::pair(text)?;
            Ok::<_, String>(text.to_owned())
        }),
        // A setting of another kind that shares the flag checks what it gets once the mode is known.
        _ => arg.value_parser(move |text: &str| first.check(text).map(|()| text.to_owned())),
    }
}

/// What the settings behind a flag do, with their modes and defaults.
fn help(rows: &[&'static Setting]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut help = first.help.to_owned();
    if let Some(letter) = help.get_mut(..1) {
        letter.make_ascii_uppercase();
    }
    let example = match first.kind.of_limit() {
        SettingKind::Size => "; such as 512MiB",
        SettingKind::Time => "; such as 90s, 15m or 2h",
        _ => "",
    };
    let lifted = if matches!(first.kind, SettingKind::Limit(_)) { ", or none" } else { "" };
    let repeatable = if matches!(first.kind, SettingKind::Map | SettingKind::Mounts) { "; repeatable" } else { "" };
    let mode = match rows {
        [only] if only.modes().len() == 1 && first.flag.is_none_or(|flag| !flag.global) => {
            format!(" (mode {})", only.modes().join(", "))
        }
        _ => String::new(),
    };
    let default = match rows {
        [only] if only.default_text() == "none" => String::new(),
        [only] => format!(" [default: {}]", only.default_text()),
        several => {
            let each = several.iter().map(|row| format!("{} in mode {}", row.default_text(), row.modes().join(", ")));
            format!(" [default: {}]", each.collect::<Vec<_>>().join(", "))
        }
    };
    format!("{help}{example}{lifted}{repeatable}{mode}{default}")
}

impl Given {
    /// Puts the flag over the settings, as the setting that it stands for in their mode.
    ///
    /// # Errors
    /// When the mode has no such setting, or the value is invalid for it.
    pub fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        let mode = config.mode().to_owned();
        let flag = format!("--{}", self.name);
        let row = rows_of(self.name).find(|row| row.modes().contains(&mode.as_str()));
        let Some(row) = row else { return Err(self.other_mode(&mode)) };
        let is_size = rows_of(self.name).next().is_some_and(|first| first.kind.of_limit() == SettingKind::Size);
        for value in &self.values {
            match row.kind {
                SettingKind::List | SettingKind::Mounts => config.add_item(&flag, row.key, value)?,
                SettingKind::Map => config.add_pair(&flag, row.key, value.split_once('=').unwrap_or((value, "")))?,
                // Kubernetes' own MB isn't ours.
                SettingKind::Quantity if is_size => match parse_size(value) {
                    Ok(bytes) => config.set_by(&flag, row.key, &bytes.to_string())?,
                    Err(_) => config.set_by(&flag, row.key, value)?,
                },
                _ => config.set_by(&flag, row.key, value)?,
            }
        }
        Ok(())
    }

    /// Why the flag can't be used in this mode, and what to do instead.
    fn other_mode(&self, mode: &str) -> Failure {
        let row = MODES.iter().find(|row| row.name == mode);
        let first = rows_of(self.name).flat_map(Setting::modes).next().copied().unwrap_or(mode);
        let instead = row.and_then(|row| row.instead_of(self.name));
        let instead = instead.map_or_else(|| format!("add --mode {first}, or set PODBAY_MODE={first}"), str::to_owned);
        let own = rows_of(self.name).flat_map(Setting::modes).copied().collect::<Vec<_>>().join(", ");
        Failure::new(format!("--{} is for mode {own}, and the mode is {mode}: {instead}", self.name)).coded("usage")
    }
}
