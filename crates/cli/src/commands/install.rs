//! `podbay install`: manifests for a cluster's administrator.

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

It only prints manifests; nothing is changed.";

const RAW_EXAMPLES: &str = "\
Examples:
  podbay install raw | kubectl apply -f -
  podbay install raw --namespace boxes --account agent --account-namespace agents
  podbay install raw --pool --reaper-image podbay:0.1.0

Raw mode needs none of this where an account has these permissions already. The role has only the verbs that your settings
need: raw.block_network, raw.warm_pool_size, raw.namespace_per_sandbox, raw.namespace_quota.
Check the result with 'podbay doctor --mode raw'.";

/// Print manifests for a cluster
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

/// Print a namespace for sandboxes and an account that may use them
#[derive(Debug, Args)]
#[command(after_help = RAW_EXAMPLES)]
struct RawArguments {
    /// Service account that uses sandboxes
    #[arg(long, value_name = "NAME", default_value = "podbay")]
    account: String,

    /// Namespace of that account [default: the sandboxes' namespace]
    #[arg(long, value_name = "NAME")]
    account_namespace: Option<String>,

    /// Add permissions for a warm pool, whatever raw.warm_pool_size is
    #[arg(long)]
    pool: bool,

    /// Add permissions for a namespace per sandbox: they are cluster-wide, and an admission policy restricts them
    #[arg(long)]
    namespace_per_sandbox: bool,

    /// Pod Security level of the namespace
    #[arg(long, value_enum, default_value_t = Level::Restricted)]
    pod_security: Level,

    /// Add a job that cleans up every 15 minutes, with this image, which must contain podbay
    #[arg(long, value_name = "IMAGE")]
    reaper_image: Option<String>,

    /// Namespace of that job and its account [default: the sandboxes' namespace plus '-reaper']
    #[arg(long, value_name = "NAME", requires = "reaper_image")]
    reaper_namespace: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Podbay's pods meet this by default
    Restricted,
    /// For images that must run as root
    Baseline,
    /// No restrictions
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
