//! `podbay config`: what is set, and by whom.

use clap::Args;
use podbay::config::{Entry, Kind, SETTINGS, Setting};

use crate::failure::Failure;
use crate::output::{Output, Table, plain};
use crate::settings::Settings;
use crate::terminal::Style;

const EXAMPLES: &str = "\
Examples:
  podbay config                               what holds, where it comes from, and what that place may do
  podbay config --all                         every setting there is, with its variable and what it does
  podbay config --set local.memory=1GiB       whether that would be understood

A flag beats the environment (PODBAY_…), that beats podbay.toml in this directory, that beats your own file
(~/.config/podbay/podbay.toml, or below $XDG_CONFIG_HOME), and that beats the default. --config or PODBAY_CONFIG names one file
in place of both. A podbay.toml that is only found in this directory may have been written by a sandbox: it can choose an
image, lower limits, add labels and add rules that deny, nothing else. Values of tables, such as environment variables, may
be secret: only their names are shown.";

/// Shows which settings hold, and where each comes from
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Those too that aren't set, with what they do
    #[arg(long, short)]
    all: bool,
}

/// Shows the settings.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let config = settings.config()?;
    let set: Vec<Entry> = config.entries().collect();
    let defaults = config.default_limits();
    let of = |setting: &Setting| {
        let entry = set.iter().find(|entry| entry.key == setting.key);
        let default = || defaults.iter().find(|(key, _)| *key == setting.key).map(|(_, value)| ("default", "-", value));
        entry.map(|entry| (entry.from.as_str(), entry.power, &entry.value)).or_else(default)
    };
    let shown = SETTINGS.iter().filter(|setting| arguments.all || of(setting).is_some());
    if output.is_json() {
        let rows = shown.map(|setting| {
            let found = of(setting);
            serde_json::json!({
                "key": setting.key,
                "variable": setting.variable(),
                "value": found.map(|(_, _, value)| value),
                "from": found.map(|(from, ..)| from),
                "power": found.map(|(_, power, _)| power).filter(|power| *power != "-"),
                "in_project": setting.project.as_str(),
                "help": setting.help,
            })
        });
        return output.json(&rows.collect::<Vec<_>>());
    }
    if !arguments.all {
        let mut table = Table::new(&["KEY", "VALUE", "FROM", "POWER"]);
        for setting in shown {
            if let Some((from, power, value)) = of(setting) {
                table.row([plain(setting.key), plain(value), plain(from), plain(power)]);
            }
        }
        return output.text(&table.render(output));
    }
    let mut table = Table::new(&["KEY", "VARIABLE", "KIND", "VALUE", "FROM", "POWER", "IN A PROJECT", "WHAT IT DOES"]);
    for setting in shown {
        let found = of(setting);
        let (from, power, value) = found.map_or(("-", "-", "-"), |(from, power, value)| (from, power, value));
        let style = if found.is_some() { Style::Good } else { Style::Dim };
        table.row([
            plain(setting.key),
            plain(setting.variable()),
            plain(kind(setting.kind)),
            (style, value.to_owned()),
            plain(from),
            plain(power),
            plain(setting.project.as_str()),
            plain(setting.help),
        ]);
    }
    output.text(&table.render(output))
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Choice(words) => words.join("|"),
        Kind::Text => "text".into(),
        Kind::Flag => "true|false".into(),
        Kind::Count | Kind::Real => "number".into(),
        Kind::Size => "size".into(),
        Kind::Time => "time".into(),
        Kind::List => "list".into(),
        Kind::Id => "number|none".into(),
        Kind::Tree => "structure".into(),
        Kind::Map => "table".into(),
        Kind::Limit(limited) => format!("{}|none", self::kind(*limited)),
    }
}
