//! What an account must be allowed to do: the one table from which `podbay install` writes roles and `podbay doctor` asks.

use crate::raw::Config;

/// What of raw mode is used. Each takes rights of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Sandboxes have network rules: `block_network`.
    pub network_rules: bool,
    /// Sandboxes wait in a pool for someone to want them.
    pub pool: bool,
    /// Each sandbox has a namespace of its own.
    pub namespace_per_sandbox: bool,
    /// These have quotas.
    pub namespace_quota: bool,
}

/// One resource, and what has to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// The API group; empty for the oldest.
    pub group: &'static str,
    /// The resource, with its subresource behind a `/`.
    pub resource: &'static str,
    /// What is done with it.
    pub verbs: &'static [&'static str],
    /// What for.
    pub why: &'static str,
}

const fn right(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { group, resource, verbs, why }
}

impl Features {
    /// What a configuration uses.
    pub fn of(config: &Config) -> Self {
        Self {
            network_rules: config.block_network,
            pool: config.warm_pool_size > 0,
            namespace_per_sandbox: config.namespace_per_sandbox,
            namespace_quota: !config.namespace_quota.is_empty(),
        }
    }

    /// The rights that these features take, and no more.
    pub fn rights(self) -> Vec<Right> {
        let pods: &[&str] = match self.pool {
            true => &["create", "get", "list", "watch", "patch", "delete"],
            false => &["create", "get", "list", "watch", "delete"],
        };
        let for_pods = match self.pool {
            true => "A sandbox is a pod; taking one from the pool is a patch.",
            false => "A sandbox is a pod.",
        };
        let mut rights = vec![
            right("", "pods", pods, for_pods),
            // The API server asks for get where the upgrade comes as a GET, as WebSockets do, and for create where as a POST.
            right("", "pods/exec", &["create", "get"], "The way into it: one stream for everything."),
            right("", "events", &["list"], "Why a pod doesn't start."),
            right(
                "coordination.k8s.io",
                "leases",
                &["create", "get", "list", "patch", "delete"],
                "A Lease is the sandbox's name, owner and last use.",
            ),
        ];
        if self.network_rules {
            rights.push(right(
                "networking.k8s.io",
                "networkpolicies",
                &["create", "get", "list", "delete"],
                "The rules exist before the first pod that they hold for, and are removed when there is none any more.",
            ));
        }
        if self.namespace_per_sandbox {
            rights.push(right(
                "",
                "namespaces",
                &["create", "get", "list", "watch", "delete"],
                "Each sandbox has a namespace of its own.",
            ));
        }
        if self.namespace_per_sandbox && self.namespace_quota {
            rights.push(right("", "resourcequotas", &["create"], "What all in such a namespace may use together."));
        }
        rights
    }

    /// The rights of whoever only removes what is over: nothing is made but a network policy that turns out to be needed
    /// after all.
    pub fn reaper_rights(self) -> Vec<Right> {
        let mut rights = vec![
            right("", "pods", &["get", "list", "delete"], "Finds and deletes pods that are over."),
            right("", "pods/exec", &["create", "get"], "Asks podbayd for how long nobody has used a sandbox."),
            right(
                "coordination.k8s.io",
                "leases",
                &["get", "list", "patch", "delete"],
                "A Lease is the sandbox; deleting it deletes everything.",
            ),
        ];
        if self.network_rules {
            rights.push(right(
                "networking.k8s.io",
                "networkpolicies",
                &["create", "get", "list", "delete"],
                "Removes rules that no pod is under, and puts back those that a pod came under meanwhile.",
            ));
        }
        if self.namespace_per_sandbox {
            rights.push(right(
                "",
                "namespaces",
                &["get", "list", "delete"],
                "Removes the namespaces of sandboxes that are over.",
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
