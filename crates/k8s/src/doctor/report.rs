//! The doctor's findings.

use serde::Serialize;

/// What the doctor found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorReport {
    /// Whether sandboxes work there.
    pub usable: bool,
    /// The namespace that was examined.
    pub namespace: String,
    /// All findings, in order.
    pub findings: Vec<Finding>,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's name, for programs and the documentation: one of [`CHECKS`].
    pub check: &'static str,
    /// What was checked.
    pub what: String,
    /// The result.
    pub state: CheckState,
    /// What was found.
    pub detail: String,
    /// How to fix it, where something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// As it should be.
    Ok,
    /// It wasn't checked, or couldn't be.
    Skipped,
    /// Sandboxes work, but this should be known.
    Warning,
    /// Sandboxes don't work, or aren't protected as they should be.
    Failed,
}

/// The names of all checks.
pub const CHECKS: [&str; 22] = [
    "cluster",
    "account",
    "namespace",
    "crds",
    "controller",
    "template",
    "ports",
    "pool",
    "rights",
    "excess",
    "neighbours",
    "leftovers",
    "lifetimes",
    "admission",
    "start",
    "protection",
    "address",
    "channel",
    "hold",
    "network",
    "ranges",
    "user_namespace",
];

impl Finding {
    pub(super) fn new(
        check: &'static str,
        what: impl Into<String>,
        state: CheckState,
        detail: impl Into<String>,
    ) -> Self {
        debug_assert!(CHECKS.contains(&check));
        Self { check, what: what.into(), state, detail: detail.into(), fix: None }
    }

    pub(super) fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documentation_tells_about_every_check() {
        let page = include_str!("../../../../docs/troubleshooting.md");
        for check in super::CHECKS {
            assert!(page.contains(&format!("\n### `{check}`\n")), "docs/troubleshooting.md lacks `{check}`");
        }
    }
}
