//! The features of raw mode, and the rights that each of them takes.

use super::Config;
use crate::rights::{ModeNeeds, Right, right};

/// The features of raw mode that are used. Each takes rights of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Sandboxes have network rules: `block_network`.
    pub network_rules: bool,
    /// Sandboxes come from a warm pool.
    pub pool: bool,
    /// Each sandbox has a namespace of its own.
    pub namespace_per_sandbox: bool,
    /// These namespaces have quotas.
    pub namespace_quota: bool,
}

impl Features {
    /// The features that a configuration uses.
    pub fn of(config: &Config) -> Self {
        Self {
            network_rules: config.block_network,
            pool: config.warm_pool_size > 0,
            namespace_per_sandbox: config.namespace_per_sandbox,
            namespace_quota: !config.namespace_quota.is_empty(),
        }
    }

    /// What these features need on a cluster, and no more.
    pub fn needs(self) -> ModeNeeds {
        let settings = [
            (self.namespace_per_sandbox, "raw.namespace_per_sandbox=true"),
            // Without the right to list network policies, the reaper mustn't look for them.
            (!self.network_rules, "raw.block_network=false"),
        ];
        ModeNeeds {
            mode: "raw",
            rights: self.rights(),
            reaper_rights: self.reaper_rights(),
            reaper_settings: settings.into_iter().filter(|(needed, _)| *needed).map(|(_, setting)| setting).collect(),
            cluster_wide: self.namespace_per_sandbox,
        }
    }

    fn rights(self) -> Vec<Right> {
        let pods: &[&str] = match self.pool {
            true => &["create", "get", "list", "watch", "patch", "delete"],
            false => &["create", "get", "list", "watch", "delete"],
        };
        let for_pods = match self.pool {
            true => "Each sandbox is a pod; taking one from the pool patches it.",
            false => "Each sandbox is a pod.",
        };
        let mut rights = vec![
            right("", "pods", pods, for_pods),
            // The API server checks get where the upgrade comes as a GET, as WebSockets do, and create where it comes as a POST.
            right("", "pods/exec", &["create", "get"], "The connection to a sandbox: one stream for everything."),
            right("", "events", &["list"], "To explain why a pod doesn't start."),
            right(
                "coordination.k8s.io",
                "leases",
                &["create", "get", "list", "patch", "delete"],
                "A Lease records the sandbox's name, owner and last use.",
            ),
        ];
        if self.network_rules {
            rights.push(right(
                "networking.k8s.io",
                "networkpolicies",
                &["create", "get", "list", "delete"],
                "Each policy is created before the first pod that it applies to, and removed after the last one.",
            ));
        }
        if self.namespace_per_sandbox {
            rights.push(right(
                "",
                "namespaces",
                &["create", "get", "list", "watch", "patch", "delete"],
                "Each sandbox has a namespace of its own; reusing a sandbox is recorded in it.",
            ));
        }
        if self.namespace_per_sandbox && self.namespace_quota {
            rights.push(right(
                "",
                "resourcequotas",
                &["create"],
                "To limit what everything in such a namespace may use together.",
            ));
        }
        rights
    }

    /// The rights of the reaper. It creates nothing but a network policy that turns out to be needed after all.
    fn reaper_rights(self) -> Vec<Right> {
        let mut rights = vec![
            right("", "pods", &["get", "list", "delete"], "To find and delete expired pods."),
            right("", "pods/exec", &["create", "get"], "To ask podbayd how long a sandbox has been idle."),
            right(
                "coordination.k8s.io",
                "leases",
                &["get", "list", "patch", "delete"],
                "A Lease stands for the sandbox; deleting it deletes everything else.",
            ),
        ];
        if self.network_rules {
            rights.push(right(
                "networking.k8s.io",
                "networkpolicies",
                &["create", "get", "list", "delete"],
                "To remove policies that apply to no pod, and restore one that a pod needs again meanwhile.",
            ));
        }
        if self.namespace_per_sandbox {
            rights.push(right(
                "",
                "namespaces",
                &["get", "list", "delete"],
                "To remove the namespaces of expired sandboxes.",
            ));
        }
        rights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_for_that_isnt_used() {
        let plain = Features::default().rights();
        assert!(plain.iter().all(|right| !["networkpolicies", "namespaces"].contains(&right.resource)));
        assert!(plain.iter().all(|right| !right.verbs.contains(&"*") && !right.verbs.contains(&"update")));
        let pool = Features { pool: true, ..Features::default() }.rights();
        assert!(pool[0].verbs.contains(&"patch") && !plain[0].verbs.contains(&"patch"));
        let all = Features { network_rules: true, pool: true, namespace_per_sandbox: true, namespace_quota: true };
        for right in all.reaper_rights() {
            assert!(!right.verbs.contains(&"create") || ["pods/exec", "networkpolicies"].contains(&right.resource));
        }
        assert!(all.rights().iter().chain(&all.reaper_rights()).all(|right| right.resource != "secrets"));
        // An exec needs both: see kubernetes/kubernetes#78741.
        assert!(plain.iter().any(|right| right.resource == "pods/exec" && right.verbs == ["create", "get"]));
    }
}
