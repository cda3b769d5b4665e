//! `podbay config`: the settings in effect, and where they come from.

use clap::Args;
use podbay::config::{EffectiveSetting, SETTINGS, Setting};

use crate::failure::Failure;
use crate::output::{Output, Table, plain};
use crate::settings::Settings;
use crate::terminal::Style;

const EXAMPLES: &str = "\
Examples:
  podbay config                               the settings in effect, and where each comes from
  podbay config --all                         every setting, with its variable, default and description
  podbay config --set local.memory=1GiB       check a setting

Flags override the environment (PODBAY_…), which overrides podbay.toml in this directory, which overrides your own file
(~/.config/podbay/podbay.toml, or below $XDG_CONFIG_HOME), which overrides the defaults. --config or PODBAY_CONFIG names one
file to read instead of both. A podbay.toml that is merely found in this directory may have been written by a sandbox: it can
choose an image, lower limits, add labels and add deny rules, and nothing else. Tokens and the values of tables, such as
environment variables, aren't shown.";

/// Show the settings in effect, and where each comes from
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Show settings that aren't set too, and what each does
    #[arg(long, short)]
    all: bool,
}

/// Shows the settings.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let config = settings.config()?;
    let set: Vec<EffectiveSetting> = config.entries().collect();
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
                "default": setting.default_text(),
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
    let columns = ["KEY", "VARIABLE", "KIND", "VALUE", "FROM", "POWER", "DEFAULT", "IN A PROJECT", "WHAT IT DOES"];
    let mut table = Table::new(&columns);
    for setting in shown {
        let found = of(setting);
        let (from, power, value) = found.map_or(("-", "-", "-"), |(from, power, value)| (from, power, value));
        let style = if found.is_some() { Style::Good } else { Style::Dim };
        table.row([
            plain(setting.key),
            plain(setting.variable()),
            plain(setting.kind.to_string()),
            (style, value.to_owned()),
            plain(from),
            plain(power),
            plain(setting.default_text()),
            plain(setting.project.as_str()),
            plain(setting.help),
        ]);
    }
    output.text(&table.render(output))
}
