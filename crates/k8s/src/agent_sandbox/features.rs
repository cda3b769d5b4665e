//! The features of agent-sandbox mode, and the rights that each of them takes.

use super::resources::{EXTENSIONS_GROUP, SANDBOXES_GROUP};
use super::{Config, Runtime};
use crate::channel::router::{GATEWAY_GROUP, Way};
use crate::rights::{ModeNeeds, Right, right};

/// The features of agent-sandbox mode that are used. Each takes rights of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Features {
    /// Sandboxes are found by their template, so pools are listed.
    pub templates: bool,
    /// A pool is created for a template that has none.
    pub creates_pools: bool,
    /// Sandboxes are suspended and resumed.
    pub suspends: bool,
    /// Sandboxes are reached over the stock runtime's API, so exec isn't used.
    pub without_exec: bool,
    /// Sandboxes are reached through a tunnel to the router, whose Service is in this namespace.
    pub tunnel: Option<String>,
    /// Sandboxes are reached by the address of a Gateway in this namespace.
    pub gateway: Option<String>,
    /// Sandboxes that others created are used by their claims' names through the router, and nothing else is done.
    pub only_claims_names: bool,
}

impl Features {
    /// The features that a configuration uses.
    pub fn of(config: &Config) -> Self {
        // A tunnel that is only the last resort, as with `auto`, isn't needed.
        let way = config.way_to_router();
        Self {
            templates: config.warm_pool_name.is_none(),
            creates_pools: false,
            only_claims_names: false,
            suspends: config.resume,
            without_exec: config.runtime == Runtime::Stock,
            tunnel: (way == Some(Way::Tunnel)).then(|| config.router_namespace.clone()),
            gateway: (way == Some(Way::Gateway)).then(|| config.gateway_namespace.clone()),
        }
    }

    /// What these features need on a cluster, and no more.
    pub fn needs(&self) -> ModeNeeds {
        ModeNeeds {
            mode: "agent-sandbox",
            rights: self.rights(),
            reaper_rights: reaper_rights(),
            reaper_settings: Vec::new(),
            cluster_wide: false,
        }
    }

    fn rights(&self) -> Vec<Right> {
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
                "Each sandbox is a claim.",
            ),
            right(
                SANDBOXES_GROUP,
                "sandboxes",
                sandboxes,
                "To find a claim's pod; suspending and resuming patch the Sandbox.",
            ),
            right("", "pods", &["get", "list", "watch"], "To check a pod's owner, and explain why it doesn't start."),
            // The API server checks get where the upgrade comes as a GET, as WebSockets do, and create where it comes as a POST.
            right("", "pods/exec", &["create", "get"], "The connection to a sandbox: one stream for everything."),
            right("", "events", &["list"], "To explain why a pod doesn't start."),
            right(EXTENSIONS_GROUP, "sandboxwarmpools", pools, "To find the pool to claim from, and how full it is."),
        ];
        if self.without_exec {
            rights.retain(|right| right.resource != "pods/exec");
        }
        if self.only_claims_names {
            rights = vec![right(EXTENSIONS_GROUP, "sandboxclaims", &["get"], "The name of a claim's Sandbox.")];
        }
        if self.creates_pools {
            rights.push(right(EXTENSIONS_GROUP, "sandboxtemplates", &["get"], "To check that a template exists."));
        }
        if let Some(namespace) = &self.tunnel {
            rights.extend(tunnel_rights().map(|right| right.within(namespace)));
        }
        if let Some(namespace) = &self.gateway {
            let verbs = &["get", "list", "watch"];
            let gateways = right(GATEWAY_GROUP, "gateways", verbs, "To find the address of the router's Gateway.");
            rights.push(gateways.within(namespace));
        }
        rights
    }
}

/// What a port-forward to the router takes, in the router's namespace.
fn tunnel_rights() -> [Right; 3] {
    [
        right("", "services", &["get"], "To find the router's pods."),
        right("", "pods", &["list"], "To find one that is ready."),
        // Both verbs, for the same reason as with pods/exec.
        right("", "pods/portforward", &["create", "get"], "To forward a port to it."),
    ]
}

/// The rights of the reaper. It creates nothing.
fn reaper_rights() -> Vec<Right> {
    vec![
        right(
            EXTENSIONS_GROUP,
            "sandboxclaims",
            &["get", "list", "patch", "delete"],
            "Each sandbox is a claim; deleting the claim deletes everything else.",
        ),
        right(SANDBOXES_GROUP, "sandboxes", &["get"], "To find a claim's pod."),
        right("", "pods", &["get"], "To check a pod's owner."),
        right("", "pods/exec", &["create", "get"], "To ask podbayd how long a sandbox has been idle."),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Connection;

    #[test]
    fn nothing_is_asked_for_that_isnt_used() {
        let verbs = |features: &Features, resource: &str| {
            let rights = features.rights();
            rights.iter().find(|right| right.resource == resource).map_or(&[][..], |right| right.verbs)
        };
        let plain = Features::default();
        assert_eq!(verbs(&plain, "sandboxes"), ["get"]);
        assert_eq!(verbs(&plain, "sandboxwarmpools"), ["get"]);
        assert!(verbs(&plain, "sandboxtemplates").is_empty());
        assert_eq!(verbs(&plain, "pods/exec"), ["create", "get"]);
        let stock = Features::of(&Config { runtime: Runtime::Stock, ..Config::default() });
        assert!(verbs(&stock, "pods/exec").is_empty());
        assert!(verbs(&Features { suspends: true, ..plain.clone() }, "sandboxes").contains(&"patch"));
        assert!(verbs(&Features { creates_pools: true, ..plain.clone() }, "sandboxwarmpools").contains(&"create"));
        let names = Features { only_claims_names: true, ..plain.clone() }.rights();
        assert!(names.len() == 1 && names[0].resource == "sandboxclaims" && names[0].verbs == ["get"], "{names:?}");
        let every = plain.rights().into_iter().chain(reaper_rights()).chain(tunnel_rights());
        for right in every {
            assert!(right.resource != "secrets" && !right.verbs.contains(&"*"), "{right:?}");
        }
    }

    /// These rights weren't in the table: the doctor checked neither, and `podbay install` had no right to get Gateways.
    #[test]
    fn the_way_to_the_router_takes_rights_where_the_router_is() {
        let elsewhere = |config: &Config| -> Vec<String> {
            let rights = Features::of(config).rights().into_iter();
            rights.filter_map(|right| Some(format!("{} in {}", right.resource, right.namespace?))).collect()
        };
        let config = |connection| Config {
            connection,
            private_key_file: Some("key".into()),
            router_namespace: "routers".into(),
            gateway_namespace: "gateways".into(),
            ..Config::default()
        };
        let tunnel = ["services in routers", "pods in routers", "pods/portforward in routers"];
        let gateway = ["gateways in gateways"];
        for connection in [Connection::Auto, Connection::Exec, Connection::InCluster, Connection::Direct] {
            assert_eq!(elsewhere(&config(connection)), [""; 0], "{connection:?}");
        }
        assert_eq!(elsewhere(&config(Connection::Tunnel)), tunnel);
        assert_eq!(elsewhere(&config(Connection::Gateway)), gateway);
        let named = Config { gateway_name: Some("front".into()), ..config(Connection::Auto) };
        assert_eq!(elsewhere(&named), gateway, "whoever names a Gateway means it");
        let stock = Config { runtime: Runtime::Stock, ..config(Connection::Auto) };
        assert_eq!(elsewhere(&stock), tunnel, "the stock runtime has no other way");
        // A role of the sandboxes' namespace can't grant them.
        assert!(
            Features::of(&stock).needs().policy_rules().len() + tunnel.len() == Features::of(&stock).rights().len()
        );
    }
}
