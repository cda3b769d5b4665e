//! `podbay config`: what is set, and by whom.

use clap::Args;
use podbay::config::{Kind, SETTINGS, Setting};

use crate::failure::Failure;
use crate::output::{Output, Table, plain};
use crate::settings::Settings;
use crate::terminal::Style;

const EXAMPLES: &str = "\
Examples:
  podbay config                               what is set, and where
  podbay config --all                         every setting there is, with its variable and what it does
  podbay config --set local.memory=1GiB       whether that would be understood

A flag beats the environment (PODBAY_…), the environment beats the file, and the file beats the default. The file is
podbay.toml in this directory, or the one that --config or PODBAY_CONFIG names. Values of tables, such as environment
variables, may be secret: only their names are shown.";

/// Shows which settings hold, and where each comes from
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Those too that aren't set, with what they do
    #[arg(long, short)]
    all: bool,
}

/// Shows the settings.
pub fn config(arguments: &Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let config = settings.config()?;
    let set: Vec<_> = config.entries().collect();
    let of = |setting: &Setting| set.iter().find(|(key, ..)| *key == setting.key);
    let shown = SETTINGS.iter().filter(|setting| arguments.all || of(setting).is_some());
    if output.is_json() {
        let rows = shown.map(|setting| {
            let (from, value) = of(setting).map(|(_, from, value)| (from, value)).unzip();
            serde_json::json!({
                "key": setting.key, "variable": setting.variable(), "value": value, "from": from, "help": setting.help,
            })
        });
        return output.json(&rows.collect::<Vec<_>>());
    }
    if !arguments.all {
        let mut table = Table::new(&["KEY", "VALUE", "FROM"]);
        for setting in shown {
            if let Some((key, from, value)) = of(setting) {
                table.row([plain(*key), plain(value), plain(*from)]);
            }
        }
        if set.is_empty() {
            output.note("nothing is set: the defaults hold; 'podbay config --all' shows what can be set");
            return Ok(0);
        }
        return output.text(&table.render(output));
    }
    let mut table = Table::new(&["KEY", "VARIABLE", "KIND", "VALUE", "FROM", "WHAT IT DOES"]);
    for setting in shown {
        let (from, value) = of(setting).map_or(("-", "-"), |(_, from, value)| (*from, value));
        let style = if of(setting).is_some() { Style::Good } else { Style::Dim };
        table.row([
            plain(setting.key),
            plain(setting.variable()),
            plain(kind(setting.kind)),
            (style, value.to_owned()),
            plain(from),
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
    }
}
