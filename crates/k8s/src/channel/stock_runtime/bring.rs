//! Installs podbayd in a pod without exec, through the API of the runtime that runs there, and starts it.

use bytes::Bytes;

use super::api::{ApiFailure, Executed, RuntimeApi};
use super::routed_api::{RoutedApi, Runtime};
use crate::bootstrap::{self, BootstrapFailure, LaunchOptions};
use crate::error::{Error, Result};

/// What came of the attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Brought {
    /// podbayd runs.
    Running,
    /// There is no runtime that could have helped.
    NoRuntime,
}

/// Why podbayd doesn't run.
#[derive(Debug)]
pub(super) enum StartFailure {
    /// The runtime can't be asked, or refuses.
    Api(ApiFailure),
    /// It was asked.
    Failed(Error),
}

impl From<ApiFailure> for StartFailure {
    fn from(failure: ApiFailure) -> Self {
        Self::Api(failure)
    }
}

impl From<StartFailure> for Error {
    fn from(failure: StartFailure) -> Self {
        match failure {
            StartFailure::Api(failure) => {
                Self::Bootstrap(format!("installing it through the pod's runtime failed: {failure}"))
            }
            StartFailure::Failed(error) => error,
        }
    }
}

/// Brings podbayd into a pod and starts it, by the runtime that runs there.
///
/// # Errors
/// When the runtime is one that can't, or fails.
pub(crate) async fn bring(api: &RoutedApi, launch: &LaunchOptions) -> Result<Brought> {
    match api.runtime().await {
        Runtime::Python => {}
        Runtime::Unknown => return Ok(Brought::NoRuntime),
        Runtime::Sandboxd => {
            return Err(Error::UnsuitableRuntime { pod: api.pod().to_owned() });
        }
    }
    start(api, launch).await?;
    Ok(Brought::Running)
}

/// Starts podbayd if it isn't running, and installs it first if necessary. Returns what it printed after its greeting.
pub(super) async fn start(api: &impl RuntimeApi, launch: &LaunchOptions) -> Result<String, StartFailure> {
    let found = run(api, launch, None).await?;
    let Some(arch) = bootstrap::needs(&found.stdout) else { return greeted(&found).await };
    let (podbayd, digest) = bootstrap::daemon(arch).map_err(StartFailure::Failed)?;
    // What the script reads from its standard input: it needn't know where that comes from.
    let input = [format!("{} {digest}\n", podbayd.len()).as_bytes(), podbayd].concat();
    let name = format!(".podbay-{:016x}", rand::random::<u64>());
    api.upload(&name, Bytes::from(input)).await?;
    greeted(&run(api, launch, Some(&name)).await?).await
}

/// Runs the script with a file as its standard input, which is removed.
async fn run(api: &impl RuntimeApi, launch: &LaunchOptions, input: Option<&str>) -> Result<Executed, ApiFailure> {
    let (from, name) = match input {
        Some(name) => ("exec <\"$0\" && rm -f \"$0\" && exec \"$@\"", name),
        None => ("exec <\"$0\" && exec \"$@\"", "/dev/null"),
    };
    let mut words: Vec<String> = ["sh", "-c", from, name].map(str::to_owned).into();
    words.extend(bootstrap::command(launch));
    api.execute(&words).await
}

async fn greeted(printed: &Executed) -> Result<String, StartFailure> {
    let Executed { stdout, stderr, exit_code } = printed;
    let mut said = tokio::io::join(stdout.as_bytes(), tokio::io::sink());
    let why = match bootstrap::run(&mut said).await {
        Ok(()) => return Ok(String::from_utf8_lossy(said.reader()).into_owned()),
        Err(BootstrapFailure::Refused(error)) => return Err(StartFailure::Failed(error)),
        Err(BootstrapFailure::Failed(why)) => why,
        Err(BootstrapFailure::Ended) => {
            format!("the runtime's shell ended with {exit_code} before podbayd started")
        }
    };
    let stderr: String = stderr.trim().chars().take(1000).collect();
    Err(StartFailure::Failed(Error::Bootstrap(format!("{why}: {stderr}"))))
}
