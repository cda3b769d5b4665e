//! The options of a sandbox that a command creates.

use std::path::Path;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use podbay::config::Config;
use podbay::mount::MountSpec;
use podbay::provider::Wanted;

use crate::failure::Failure;
use crate::flags::{self, Given};
use crate::quantity;

const HEADING: &str = "Sandbox";

/// The options of a sandbox that a command creates: its name, and the settings that have a flag.
#[derive(Debug)]
pub struct SandboxOptions {
    /// The sandbox's name.
    pub name: Option<String>,
    labels: Vec<(String, String)>,
    given: Vec<Given>,
}

impl Args for SandboxOptions {
    fn augment_args(command: Command) -> Command {
        let name = Arg::new("name")
            .long("name")
            .value_name("NAME")
            .help("The sandbox's name: lower-case letters, digits and '-' [default: a random one]");
        command.args([name].into_iter().chain(flags::of_table(false)).map(|flag| flag.help_heading(HEADING)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SandboxOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // Labels are this sandbox's alone: as settings they would be those of a pool's pods too.
        let (labels, given): (Vec<_>, Vec<_>) =
            flags::given(matches, false).into_iter().partition(|given| given.name == "label");
        let labels = labels.iter().flat_map(|given| &given.values).filter_map(|text| quantity::pair(text).ok());
        Ok(Self { name: matches.get_one("name").cloned(), labels: labels.collect(), given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl SandboxOptions {
    /// Puts these flags over the settings.
    ///
    /// # Errors
    /// When a flag isn't for the mode, or names a file that doesn't exist.
    pub fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        for given in &self.given {
            let on_this_machine = !config.mode_row().on_cluster;
            match given.name {
                "network" if config.mode() == "raw" && given.values == ["none"] => {
                    config.set_by("--network", "raw.block_network", "true")?;
                }
                "workspace" if on_this_machine => given.with(workspace)?.apply(config)?,
                "mount" if on_this_machine => given.with(mount)?.apply(config)?,
                _ => given.apply(config)?,
            }
        }
        Ok(())
    }

    /// The sandbox to create. Everything else about it is in the settings.
    pub fn wanted(&self, leashed: bool) -> Wanted {
        Wanted { id: self.name.clone(), labels: self.labels.iter().cloned().collect(), leashed, ..Wanted::default() }
    }
}

impl Given {
    fn with(&self, change: fn(&str) -> Result<String, Failure>) -> Result<Self, Failure> {
        let values = self.values.iter().map(|value| change(value)).collect::<Result<_, _>>()?;
        Ok(Self { name: self.name, values })
    }
}

/// The absolute path of a workspace.
fn workspace(path: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::local(Path::new(path), "can't be the workspace", &error);
    // A directory of the sandbox's own is created with the sandbox, and can't be resolved before.
    if path.contains("{id}") {
        return text(&std::path::absolute(path).map_err(failed)?);
    }
    let real = std::fs::canonicalize(path).map_err(failed)?;
    match real.is_dir() {
        true => text(&real),
        false => {
            Err(Failure::new(format!("{path} can't be the workspace: it isn't a directory; mount a file with --mount")))
        }
    }
}

/// A mount as the setting is written. The sandbox refuses symbolic links on the way to it; this path is the user's own, and
/// means where it leads now.
fn mount(spec: &str) -> Result<String, Failure> {
    let mount: MountSpec = spec.parse().map_err(|why| Failure::new(format!("--mount: {why}")).coded("usage"))?;
    let host =
        std::fs::canonicalize(&mount.host).map_err(|error| Failure::local(&mount.host, "can't be mounted", &error))?;
    let access = if mount.writable { "rw" } else { "ro" };
    Ok(format!("{}:{}:{access}", text(&host)?, text(&mount.inside)?))
}

/// A path as a setting.
fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::new(format!("{} can't be used: its name isn't UTF-8; rename it", path.display())).coded("local_file")
    })
}
