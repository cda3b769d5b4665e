//! What was found out about a cluster.

use serde::Serialize;

/// What was found out about a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether sandboxes can be made there.
    pub usable: bool,
    /// The namespace that was looked at.
    pub namespace: String,
    /// Everything that was looked at, in order.
    pub findings: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name, for programs and for the documentation: one of [`CHECKS`].
    pub check: &'static str,
    /// What it is.
    pub what: String,
    /// How it is.
    pub state: State,
    /// What was found.
    pub detail: String,
    /// The exact remedy, where something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// It wasn't looked at, or couldn't be.
    Skipped,
    /// Sandboxes work; someone should know this all the same.
    Warning,
    /// Sandboxes don't work, or aren't what they should be.
    Failed,
}

/// All that is looked at.
pub const CHECKS: [&str; 14] = [
    "cluster",
    "account",
    "namespace",
    "rights",
    "excess",
    "neighbours",
    "leftovers",
    "lifetimes",
    "admission",
    "start",
    "walls",
    "network",
    "ranges",
    "user_namespace",
];

impl Finding {
    pub(super) fn new(check: &'static str, what: impl Into<String>, state: State, detail: impl Into<String>) -> Self {
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
