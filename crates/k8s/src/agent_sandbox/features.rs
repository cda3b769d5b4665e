//! The features of agent-sandbox mode, and the rights that each of them takes.

use super::resources::{EXTENSIONS_GROUP, SANDBOXES_GROUP};
use super::{Config, Runtime};
use crate::rights::{ModeNeeds, Right, right};

/// The features of agent-sandbox mode that are used. Each takes rights of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Sandboxes are found by their template, so pools are listed.
    pub templates: bool,
    /// A pool is created for a template that has none.
    pub creates_pools: bool,
    /// Sandboxes are suspended and resumed.
    pub suspends: bool,
    /// Sandboxes are reached by the stock runtime's API, so exec isn't used.
    pub without_exec: bool,
}

impl Features {
    /// The features that a configuration uses.
    pub fn of(config: &Config) -> Self {
        Self {
            templates: config.warm_pool_name.is_none(),
            creates_pools: false,
            suspends: config.resume,
            without_exec: config.runtime == Runtime::Stock,
        }
    }

    /// What these features need on a cluster, and no more.
    pub fn needs(self) -> ModeNeeds {
        ModeNeeds {
            mode: "agent-sandbox",
            rights: self.rights(),
            reaper_rights: reaper_rights(),
            reaper_settings: Vec::new(),
            cluster_wide: false,
        }
    }

    fn rights(self) -> Vec<Right> {
        let sandboxes: &[&str] = if self.suspends { &["get", "watch", "patch"] } else { &["get"] };
        let pools: &[&str] = match (self.templates, self.creates_pools) {
            (_, true) => &["get", "list", "create"],
            (true, false) => &["get", "list"],
            (false, false) => &["get"],
        };
        let mut rights = vec![
            right(
                EXTENSIONS_GROUP,
                "sandboxclaims",
                &["create", "get", "list", "watch", "patch", "delete"],
                "A claim is the sandbox.",
            ),
            right(
                SANDBOXES_GROUP,
                "sandboxes",
                sandboxes,
                "Which pod belongs to a claim; suspending and resuming is a patch.",
            ),
            right("", "pods", &["get", "list", "watch"], "Whether the pod is the claim's, and why it doesn't start."),
            // The API server checks get where the upgrade comes as a GET, as WebSockets do, and create where it comes as a POST.
            right("", "pods/exec", &["create", "get"], "The way into a sandbox: one stream for everything."),
            right("", "events", &["list"], "Why a pod doesn't start."),
            right(EXTENSIONS_GROUP, "sandboxwarmpools", pools, "The pool to claim from, and how full it is."),
        ];
        if self.without_exec {
            rights.retain(|right| right.resource != "pods/exec");
        }
        if self.creates_pools {
            rights.push(right(EXTENSIONS_GROUP, "sandboxtemplates", &["get"], "Whether a pool's template exists."));
        }
        rights
    }
}

/// The rights of the reaper. It creates nothing.
fn reaper_rights() -> Vec<Right> {
    vec![
        right(
            EXTENSIONS_GROUP,
            "sandboxclaims",
            &["get", "list", "patch", "delete"],
            "A claim is the sandbox; deleting it deletes everything.",
        ),
        right(SANDBOXES_GROUP, "sandboxes", &["get"], "Which pod belongs to a claim."),
        right("", "pods", &["get"], "Whether the pod is the claim's."),
        right("", "pods/exec", &["create", "get"], "Asks podbayd for how long nobody has used a sandbox."),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_for_that_isnt_used() {
        let verbs = |features: Features, resource: &str| {
            let rights = features.rights();
            rights.iter().find(|right| right.resource == resource).map_or(&[][..], |right| right.verbs)
        };
        let plain = Features::default();
        assert_eq!(verbs(plain, "sandboxes"), ["get"]);
        assert_eq!(verbs(plain, "sandboxwarmpools"), ["get"]);
        assert!(verbs(plain, "sandboxtemplates").is_empty());
        assert_eq!(verbs(plain, "pods/exec"), ["create", "get"]);
        let stock = Features::of(&Config { runtime: Runtime::Stock, ..Config::default() });
        assert!(verbs(stock, "pods/exec").is_empty());
        assert!(verbs(Features { suspends: true, ..plain }, "sandboxes").contains(&"patch"));
        assert!(verbs(Features { creates_pools: true, ..plain }, "sandboxwarmpools").contains(&"create"));
        let every = plain.rights().into_iter().chain(reaper_rights());
        for right in every {
            assert!(right.resource != "secrets" && !right.verbs.contains(&"*"), "{right:?}");
        }
    }
}
