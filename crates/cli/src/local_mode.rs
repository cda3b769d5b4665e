//! Sandboxes on this machine, which has to run Linux. This is the one place of the command line that knows.

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::Arc;

    use podbay::config::Config;
    use podbay::provider::Provider;

    use crate::failure::Failure;

    pub use podbay_jail::{Isolation, probe};

    /// The provider of sandboxes on this machine.
    pub fn provider(config: &Config) -> Result<Arc<dyn Provider>, Failure> {
        Ok(Arc::new(config.local_provider()?))
    }
}

#[cfg(target_os = "linux")]
pub use linux::{Isolation, probe, provider};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::sync::Arc;

    use podbay::config::Config;
    use podbay::provider::Provider;
    use serde::Serialize;

    use crate::failure::Failure;

    const NEEDS_LINUX: &str = "local sandboxes need Linux, and this machine runs something else";
    const REMEDY: &str = "use a cluster: --mode raw, or PODBAY_MODE=raw";

    /// There are none.
    pub fn provider(_: &Config) -> Result<Arc<dyn Provider>, Failure> {
        Err(Failure::new(format!("{NEEDS_LINUX}; {REMEDY}")).coded("unsupported"))
    }

    /// How a sandbox could be confined.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Isolation {
        Namespaces,
        Landlock,
    }

    /// What was found.
    #[derive(Debug, Serialize)]
    pub struct Report {
        pub isolation: Option<Isolation>,
        pub findings: Vec<Finding>,
    }

    /// One thing that was looked at.
    #[derive(Debug, Serialize)]
    pub struct Finding {
        pub what: String,
        pub available: bool,
        pub detail: String,
        pub fix: Option<String>,
    }

    /// Nothing has to be tried to know.
    pub fn probe() -> Report {
        let finding =
            Finding { what: "Linux".into(), available: false, detail: NEEDS_LINUX.into(), fix: Some(REMEDY.into()) };
        Report { isolation: None, findings: vec![finding] }
    }
}

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Isolation, probe, provider};
