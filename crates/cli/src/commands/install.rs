//! `podbay install`: manifests for a cluster's administrator.

use clap::{Args, Subcommand, ValueEnum};
use podbay::config::Config;
use podbay::k8s::channel::Connection;
use podbay::k8s::install::{DEFAULT_NAMESPACE, Install, PodSecurity, Template};
use podbay::k8s::keys::PublicKey;
use podbay::k8s::rights::ModeNeeds;
use podbay::k8s::{agent_sandbox, raw};

use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay install raw | kubectl apply -f -
  podbay install raw --namespace boxes --account-namespace agents > podbay.yaml
  podbay install agent-sandbox --runtime-class gvisor | kubectl apply -f -

It only prints manifests; nothing is changed.";

const RAW_EXAMPLES: &str = "\
Examples:
  podbay install raw | kubectl apply -f -
  podbay install raw --namespace boxes --account agent --account-namespace agents
  podbay install raw --pool --reaper-image podbay:0.1.0

Raw mode needs none of this where an account has these permissions already. The role has only the verbs that your settings
need: raw.block_network, raw.warm_pool_size, raw.namespace_per_sandbox, raw.namespace_quota.
Check the result with 'podbay doctor --mode raw'.";

const AGENT_SANDBOX_EXAMPLES: &str = "\
Examples:
  podbay install agent-sandbox | kubectl apply -f -
  podbay install agent-sandbox --template python --replicas 5 --set raw.image=python:3.12-slim
  podbay install agent-sandbox --public-key podbay-public-v1.… --podbayd-in-image --set raw.image=agents:1
  podbay install agent-sandbox --no-template --account agent --account-namespace agents

The cluster needs the agent-sandbox controller and its extensions first. The template's pods are those of raw mode: settings
such as raw.image, raw.memory_limit, raw.runtime_class and raw.egress describe them.
Check the result with 'podbay doctor --mode agent-sandbox'.";

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
    AgentSandbox(AgentSandboxArguments),
}

/// Print a namespace for sandboxes and an account that may use them
#[derive(Debug, Args)]
#[command(after_help = RAW_EXAMPLES)]
struct RawArguments {
    #[command(flatten)]
    common: CommonArguments,

    /// Add permissions for a warm pool, whatever raw.warm_pool_size is
    #[arg(long)]
    pool: bool,

    /// Add permissions for a namespace per sandbox: they are cluster-wide, and an admission policy restricts them
    #[arg(long)]
    namespace_per_sandbox: bool,
}

/// Print a namespace for sandboxes, an account that may use them, a template and a warm pool
#[derive(Debug, Args)]
#[command(after_help = AGENT_SANDBOX_EXAMPLES)]
struct AgentSandboxArguments {
    #[command(flatten)]
    common: CommonArguments,

    /// Name of the SandboxTemplate and its SandboxWarmPool
    #[arg(long, value_name = "NAME", default_value = "podbay")]
    template: String,

    /// Print neither template nor pool: the cluster has its own
    #[arg(long)]
    no_template: bool,

    /// How many sandboxes the warm pool keeps ready
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    replicas: u32,

    /// RuntimeClass of the template's pods, such as gvisor or kata
    #[arg(long, value_name = "NAME")]
    runtime_class: Option<String>,

    /// Let claims add environment variables to their pods (agent_sandbox.claim_env)
    #[arg(long)]
    allow_env: bool,

    /// Let podbayd listen in the template's pods for clients with this key ('podbay keys'); up to two [default: the keys of
    /// cluster.private_key_file, if it is set]
    #[arg(long, value_name = "KEY", value_parser = PublicKey::parse)]
    public_key: Vec<PublicKey>,

    /// Admit upstream's router to the template's pods, for clients that can't reach them
    #[arg(long)]
    router: bool,

    /// Let the account forward ports to upstream's router in agent_sandbox.router_namespace, and admit the router, whatever
    /// cluster.connection is
    #[arg(long)]
    tunnel: bool,

    /// Let the account read Gateways in agent_sandbox.gateway_namespace, and admit the router, whatever cluster.connection is
    #[arg(long)]
    gateway: bool,

    /// The image contains podbayd: start it with the pod, so that it needn't be sent to each sandbox
    #[arg(long)]
    podbayd_in_image: bool,

    /// Let that podbayd also serve upstream's runtime API on port 8888, for upstream's SDKs, and admit the router to it. That
    /// API has no authentication: whoever may use the router may run commands in every sandbox
    #[arg(long, requires = "podbayd_in_image")]
    runtime_api: bool,

    /// Add permissions to create a pool for a template that has none
    #[arg(long)]
    create_pools: bool,
}

/// What the manifests of every mode have.
#[derive(Debug, Args)]
struct CommonArguments {
    /// Service account that uses sandboxes
    #[arg(long, value_name = "NAME", default_value = "podbay")]
    account: String,

    /// Namespace of that account [default: the sandboxes' namespace]
    #[arg(long, value_name = "NAME")]
    account_namespace: Option<String>,

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
    let install = match arguments.what {
        What::Raw(arguments) => raw(arguments, &settings.config_of("raw")?)?,
        What::AgentSandbox(arguments) => agent_sandbox(arguments, settings)?,
    };
    let manifests = install.manifests().map_err(podbay::Error::from)?;
    match output.is_json() {
        true => output.json(&serde_json::json!({ "manifests": manifests })),
        false => output.text(&manifests),
    }
}

fn raw(arguments: RawArguments, config: &Config) -> Result<Install, Failure> {
    let used = raw::Features::of(&config.raw()?);
    let features = raw::Features {
        pool: used.pool || arguments.pool,
        namespace_per_sandbox: used.namespace_per_sandbox || arguments.namespace_per_sandbox,
        ..used
    };
    Ok(install(arguments.common, config, features.needs(), None))
}

fn agent_sandbox(arguments: AgentSandboxArguments, settings: &Settings) -> Result<Install, Failure> {
    let config = settings.config_of("agent-sandbox")?;
    let used = config.agent_sandbox()?;
    // The stock runtime's API takes no key, so nobody uses podbayd's port there.
    let to_podbayd_by_router = used.is_through_router() && used.runtime == agent_sandbox::Runtime::Podbayd;
    let features = agent_sandbox::Features::of(&used);
    let features = agent_sandbox::Features {
        templates: true,
        creates_pools: arguments.create_pools,
        tunnel: features.tunnel.or_else(|| arguments.tunnel.then(|| used.router_namespace.clone())),
        gateway: features.gateway.or(arguments.gateway.then_some(used.gateway_namespace)),
        ..features
    };
    let template = match arguments.no_template {
        true => None,
        false => {
            let mut pod = config.raw()?;
            pod.runtime_class = arguments.runtime_class.or(pod.runtime_class);
            let public_keys = public_keys(arguments.public_key, &pod)?;
            if pod.connection.is_through_router() {
                // Raw mode has no router, and its pods are the same however clients get there.
                pod.connection = Connection::default();
            }
            let asked = arguments.router || arguments.tunnel || arguments.gateway;
            Some(Template {
                name: arguments.template,
                replicas: arguments.replicas,
                allow_env: arguments.allow_env,
                admit_router: asked || to_podbayd_by_router,
                router_namespace: used.router_namespace,
                public_keys,
                podbayd_in_image: arguments.podbayd_in_image,
                runtime_api: arguments.runtime_api,
                pod,
            })
        }
    };
    Ok(install(arguments.common, &config, features.needs(), template))
}

/// The keys that were named, or those of the private keys that clients with these settings use.
fn public_keys(named: Vec<PublicKey>, pod: &raw::Config) -> Result<Vec<PublicKey>, Failure> {
    match named.len() {
        0 => Ok(pod.public_keys().map_err(podbay::Error::from)?),
        1 | 2 => Ok(named),
        _ => Err(Failure::new("podbayd accepts at most two keys: pass only the old and the new public key")),
    }
}

fn install(common: CommonArguments, config: &Config, needs: ModeNeeds, template: Option<Template>) -> Install {
    Install {
        namespace: config.namespace().unwrap_or(DEFAULT_NAMESPACE).to_owned(),
        account: common.account,
        account_namespace: common.account_namespace,
        needs,
        pod_security: match common.pod_security {
            Level::Restricted => PodSecurity::Restricted,
            Level::Baseline => PodSecurity::Baseline,
            Level::Privileged => PodSecurity::Privileged,
        },
        reaper_image: common.reaper_image,
        template,
        reaper_namespace: common.reaper_namespace,
    }
}
