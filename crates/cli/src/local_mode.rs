//! What this machine offers for local sandboxes, which need Linux. The rest of the command line is the same everywhere.

#[cfg(target_os = "linux")]
pub use linux::{Isolation, chosen, probe};

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Isolation, chosen, probe};

#[cfg(target_os = "linux")]
mod linux {
    use podbay::config::Config;

    use crate::failure::Failure;

    pub use podbay::local::{Isolation, probe};

    /// How sandboxes are to be confined.
    pub fn chosen(config: &Config) -> Result<Isolation, Failure> {
        Ok(config.local()?.isolation)
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use podbay::config::Config;
    use serde::Serialize;

    use crate::failure::Failure;

    /// How a sandbox could be confined.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[allow(dead_code, reason = "what doctor asks about is the same everywhere")]
    pub enum Isolation {
        Namespaces,
        Landlock,
    }

    /// What was found.
    #[derive(Debug, Serialize)]
    pub struct ProbeReport {
        pub isolation: Option<Isolation>,
        pub findings: Vec<ProbeFinding>,
    }

    /// One thing that was looked at.
    #[derive(Debug, Serialize)]
    pub struct ProbeFinding {
        pub what: String,
        pub available: bool,
        pub detail: String,
        pub fix: Option<String>,
    }

    /// What would be asked for.
    pub fn chosen(_: &Config) -> Result<Isolation, Failure> {
        Ok(Isolation::Namespaces)
    }

    /// Nothing has to be tried to know.
    pub fn probe() -> ProbeReport {
        let finding = ProbeFinding {
            what: "Linux".into(),
            available: false,
            detail: "local sandboxes need Linux, and this machine runs something else".into(),
            fix: Some("use a cluster: --mode raw, or PODBAY_MODE=raw".into()),
        };
        ProbeReport { isolation: None, findings: vec![finding] }
    }
}
