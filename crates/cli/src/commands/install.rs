//! `podbay install`: what a cluster's administrator sets up.

use clap::{Args, Subcommand, ValueEnum};
use podbay::k8s::install::{DEFAULT_NAMESPACE, Install, PodSecurity};
use podbay::k8s::raw::Features;

use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay install raw | kubectl apply -f -
  podbay install raw --namespace boxes --account-namespace agents > podbay.yaml

It prints manifests and changes nothing.";

const RAW_EXAMPLES: &str = "\
Examples:
  podbay install raw | kubectl apply -f -
  podbay install raw --namespace boxes --account agent --account-namespace agents
  podbay install raw --pool --reaper-image podbay:0.1.0

Raw mode works without any of it, wherever an account has these rights. The role has just the verbs that the chosen features
need, as the settings have them: raw.block_network, raw.warm_pool_size, raw.namespace_per_sandbox, raw.namespace_quota.
Afterwards 'podbay doctor --mode raw' tells whether everything is there.";

/// Prints manifests for a cluster
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Raw(RawArguments),
}

/// A namespace for sandboxes, and an account that may use them
#[derive(Debug, Args)]
#[command(after_help = RAW_EXAMPLES)]
struct RawArguments {
    /// The service account that uses sandboxes
    #[arg(long, value_name = "NAME", default_value = "podbay")]
    account: String,

    /// Where that account is; the sandboxes' own namespace when not given
    #[arg(long, value_name = "NAME")]
    account_namespace: Option<String>,

    /// Rights for a pool of sandboxes that wait, whatever raw.warm_pool_size says
    #[arg(long)]
    pool: bool,

    /// Rights for a namespace for each sandbox: they hold in the whole cluster, and an admission policy bounds them
    #[arg(long)]
    namespace_per_sandbox: bool,

    /// How strict the cluster is with pods in the namespace
    #[arg(long, value_enum, default_value_t = Level::Restricted)]
    pod_security: Level,

    /// A job every 15 minutes that removes what is over, from this image, which must have podbay in it
    #[arg(long, value_name = "IMAGE")]
    reaper_image: Option<String>,

    /// Where that job and its account are; the sandboxes' namespace with -reaper behind it when not given
    #[arg(long, value_name = "NAME", requires = "reaper_image")]
    reaper_namespace: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// What Podbay's pods keep to by themselves
    Restricted,
    /// For images that have to run as root
    Baseline,
    /// No rules
    Privileged,
}

/// Prints the manifests.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let What::Raw(arguments) = arguments.what;
    let config = settings.raw_config()?;
    let used = Features::of(&config.raw()?);
    let features = Features {
        pool: used.pool || arguments.pool,
        namespace_per_sandbox: used.namespace_per_sandbox || arguments.namespace_per_sandbox,
        ..used
    };
    let manifests = Install {
        namespace: config.namespace().unwrap_or(DEFAULT_NAMESPACE).to_owned(),
        account: arguments.account,
        account_namespace: arguments.account_namespace,
        needs: features.needs(),
        pod_security: match arguments.pod_security {
            Level::Restricted => PodSecurity::Restricted,
            Level::Baseline => PodSecurity::Baseline,
            Level::Privileged => PodSecurity::Privileged,
        },
        reaper_image: arguments.reaper_image,
        reaper_namespace: arguments.reaper_namespace,
    }
    .manifests()
    .map_err(podbay::Error::from)?;
    match output.is_json() {
        true => output.json(&serde_json::json!({ "manifests": manifests })),
        false => output.text(&manifests),
    }
}
