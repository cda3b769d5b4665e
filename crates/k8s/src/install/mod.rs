//! The manifests that a cluster's administrator applies for sandboxes.
//!
//! Raw mode needs nothing on the cluster. These are good practice: a namespace for sandboxes alone, an account that may do
//! just what Podbay does, and optionally a reaper with an account of its own.

mod admission;
mod grant;
mod reaper;
mod template;

use self::grant::Grant;
pub use self::template::Template;
use crate::error::Result;
use crate::names;
use crate::rights::ModeNeeds;

/// The namespace of the sandboxes by default.
pub const DEFAULT_NAMESPACE: &str = "podbay-sandboxes";

/// The manifests of a mode.
#[derive(Debug, Clone, PartialEq)]
pub struct Install {
    /// The namespace of the sandboxes, for nothing else.
    pub namespace: String,
    /// The account that uses the sandboxes.
    pub account: String,
    /// The account's namespace; by default the sandboxes' own.
    pub account_namespace: Option<String>,
    /// What the mode needs.
    pub needs: ModeNeeds,
    /// The Pod Security level that the cluster enforces in the namespace.
    pub pod_security: PodSecurity,
    /// An image with `podbay` in it, for the reaper. Without it there is no reaper.
    pub reaper_image: Option<String>,
    /// What sandboxes are created from, in a mode whose controller creates them.
    pub template: Option<Template>,
    /// The namespace of the reaper and its account, which is created too; by default named after the sandboxes' own.
    pub reaper_namespace: Option<String>,
}

/// A level of the Pod Security Standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodSecurity {
    /// The level that Podbay's pods meet by default.
    #[default]
    Restricted,
    /// For images that have to run as root.
    Baseline,
    /// No rules.
    Privileged,
}

impl PodSecurity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Baseline => "baseline",
            Self::Privileged => "privileged",
        }
    }
}

impl Install {
    /// The manifests for what a mode needs, with the usual names.
    pub fn new(needs: ModeNeeds) -> Self {
        Self {
            namespace: DEFAULT_NAMESPACE.into(),
            account: "podbay".into(),
            account_namespace: None,
            needs,
            pod_security: PodSecurity::Restricted,
            reaper_image: None,
            template: None,
            reaper_namespace: None,
        }
    }
}

impl Install {
    /// The manifests, as YAML.
    ///
    /// # Errors
    /// When a name isn't valid on a cluster.
    pub fn manifests(&self) -> Result<String> {
        let home = self.account_namespace.as_deref().unwrap_or(&self.namespace);
        for (what, name) in [("namespace", self.namespace.as_str()), ("account", &self.account), ("namespace", home)] {
            names::check_label(what, name)?;
        }
        let mut parts = vec![namespace(
            &self.namespace,
            self.pod_security,
            "A namespace for sandboxes only: an account that may run commands in one of its pods may do so in all of \
             them.",
        )];
        let token = format!(
            "The account of programs that use sandboxes. To create a token for a kubeconfig: kubectl create token {} \
             -n {home}",
            self.account
        );
        parts.push(account(&self.account, home, &token));
        parts.extend(self.rights_of_the_account(home)?);
        if let Some(template) = &self.template {
            parts.extend(template.manifests(&self.namespace)?);
        }
        let mut accounts = vec![(home.to_owned(), self.account.clone())];
        if let Some(image) = &self.reaper_image {
            let reaper = self.reaper_home()?;
            parts.extend(self.reaper(image, &reaper)?);
            accounts.push((reaper, reaper::ACCOUNT.to_owned()));
        }
        if self.needs.cluster_wide {
            parts.push(self.admission(&accounts));
        }
        Ok(parts.join("---\n"))
    }

    /// The rights of whoever uses sandboxes: a role for each namespace where some are needed.
    fn rights_of_the_account(&self, home: &str) -> Result<Vec<String>> {
        let mut by_namespace = self.needs.by_namespace(&self.namespace);
        let own = Grant {
            role: self.role_name(""),
            namespace: self.scope(),
            account: &self.account,
            home,
            rights: by_namespace.remove(self.namespace.as_str()).unwrap_or_default(),
            why: "Exactly the rights that Podbay needs.",
        };
        let mut parts: Vec<String> = own.manifests().into();
        for (namespace, rights) in by_namespace {
            names::check_label("namespace", namespace)?;
            let there = Grant {
                // Several installations may need rights there.
                role: format!("podbay-router-{}", self.namespace),
                namespace: Some(namespace),
                account: &self.account,
                home,
                rights,
                why: "What the same account needs outside of the sandboxes' namespace, to reach upstream's router.",
            };
            parts.extend(there.manifests());
        }
        Ok(parts)
    }

    /// The namespace where the rights hold. With a namespace for each sandbox they have to hold in all.
    fn scope(&self) -> Option<&str> {
        (!self.needs.cluster_wide).then_some(self.namespace.as_str())
    }

    /// A name of the whole cluster mustn't clash with that of another installation.
    fn role_name(&self, suffix: &str) -> String {
        match self.needs.cluster_wide {
            true => format!("podbay-sandboxes-{}{suffix}", self.namespace),
            false => format!("podbay-sandboxes{suffix}"),
        }
    }
}

fn namespace(name: &str, level: PodSecurity, why: &str) -> String {
    let level = level.as_str();
    format!(
        "\
# {why}
apiVersion: v1
kind: Namespace
metadata:
  name: {name}
  labels:
    app.kubernetes.io/managed-by: podbay
    # Podbay's pods comply with this anyway; here the cluster enforces it too.
    pod-security.kubernetes.io/enforce: {level}
    pod-security.kubernetes.io/warn: {level}
"
    )
}

fn account(name: &str, namespace: &str, why: &str) -> String {
    format!(
        "\
# {why}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {name}
  namespace: {namespace}
  labels:
    app.kubernetes.io/managed-by: podbay
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_sandbox;
    use crate::raw::Features;

    fn install(features: Features) -> Install {
        Install::new(features.needs())
    }

    fn usual() -> Install {
        install(Features { network_rules: true, ..Features::default() })
    }

    #[test]
    fn names_are_checked_before_they_are_written() {
        let bad = |change: fn(&mut Install), word: &str| {
            let mut install = usual();
            change(&mut install);
            let message = install.manifests().unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        };
        bad(|install| install.namespace = "a\nkind: Secret".into(), "namespace");
        bad(|install| install.account = "Podbay".into(), "account");
        bad(|install| install.account_namespace = Some("-".into()), "namespace");
        bad(|install| install.reaper_image = Some("x\"\n  y: z".into()), "image");
        bad(
            |install| {
                install.reaper_image = Some("podbay:1".into());
                install.reaper_namespace = Some("a b".into());
            },
            "namespace",
        );
    }

    #[test]
    fn a_role_is_the_clusters_only_where_it_has_to_be() {
        let plain = usual().manifests().unwrap();
        assert!(!plain.contains("ClusterRole") && !plain.contains("CronJob") && plain.contains("networkpolicies"));
        let features = Features { namespace_per_sandbox: true, ..Features::default() };
        let wide = install(features).manifests().unwrap();
        assert!(wide.contains("kind: ClusterRoleBinding") && !wide.contains("networkpolicies"));
        // Two of them in one cluster each have their own.
        let names: Vec<_> =
            wide.lines().filter(|line| line.ends_with("name: podbay-sandboxes-podbay-sandboxes")).collect();
        assert_eq!(names.len(), 5, "{wide}");
    }

    /// The job ran as the account that may make pods and run commands in them, among the sandboxes.
    #[test]
    fn the_reaper_is_an_account_of_its_own_outside_the_sandboxes_namespace() {
        let install = Install { reaper_image: Some("podbay:1".into()), ..usual() };
        let parts: Vec<serde_json::Value> = install
            .manifests()
            .unwrap()
            .split("---\n")
            .map(|part| serde_json::json!({"kind": line(part, "kind: "), "text": part}))
            .collect();
        let of = |kind: &str| -> Vec<String> {
            let kind_is = |part: &&serde_json::Value| part["kind"] == kind;
            parts.iter().filter(kind_is).filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
        };
        let job = &of("CronJob")[0];
        assert_eq!(line(job, "  namespace: "), "podbay-sandboxes-reaper");
        assert_eq!(line(job, "          serviceAccountName: "), "podbay-reaper");
        assert_eq!(of("Namespace").len(), 2);
        let role = of("Role").into_iter().find(|role| role.contains("name: podbay-sandboxes-reaper")).unwrap();
        assert_eq!(line(&role, "  namespace: "), "podbay-sandboxes");
        let pods = role.split("resources: [\"pods\"]").nth(1).unwrap();
        assert_eq!(line(pods, "    verbs: "), "[\"get\", \"list\", \"delete\"]");
    }

    fn line<'a>(text: &'a str, start: &str) -> &'a str {
        text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default()
    }

    /// The role of such an account reached every namespace of the cluster, and nothing held it to its own.
    #[test]
    fn rights_in_the_whole_cluster_come_with_a_policy_that_bounds_them() {
        let features = Features { namespace_per_sandbox: true, ..Features::default() };
        let wide = Install { reaper_image: Some("podbay:1".into()), ..install(features) };
        let text = wide.manifests().unwrap();
        assert!(text.contains("kind: ValidatingAdmissionPolicy\n"), "{text}");
        assert!(text.contains("kind: ValidatingAdmissionPolicyBinding\n"), "{text}");
        for account in ["podbay-sandboxes:podbay", "podbay-sandboxes-reaper:podbay-reaper"] {
            assert!(text.contains(&format!("'system:serviceaccount:{account}'")), "{text}");
        }
        assert!(!text.contains("secrets"), "{text}");
        assert!(!usual().manifests().unwrap().contains("ValidatingAdmissionPolicy"));
    }

    /// What reaches the router was granted in `agent-sandbox-system`, wherever the router was, and getting the Gateway wasn't
    /// granted at all.
    #[test]
    fn rights_outside_of_the_sandboxes_namespace_have_a_role_there() {
        let features = agent_sandbox::Features {
            tunnel: Some("routers".into()),
            gateway: Some("gateways".into()),
            ..agent_sandbox::Features::default()
        };
        let roles = |install: &Install| -> Vec<(String, String)> {
            let text = install.manifests().unwrap();
            let roles = text.split("---\n").filter(|part| line(part, "kind: ") == "Role");
            roles.map(|role| (line(role, "  namespace: ").to_owned(), role.to_owned())).collect()
        };
        let install = Install::new(features.needs());
        let found = roles(&install);
        let spaces: Vec<&str> = found.iter().map(|(namespace, _)| namespace.as_str()).collect();
        assert_eq!(spaces, ["podbay-sandboxes", "gateways", "routers"]);
        assert!(!found[0].1.contains("pods/portforward") && !found[0].1.contains("services"), "{}", found[0].1);
        assert!(
            found[1].1.contains("resources: [\"gateways\"]\n    verbs: [\"get\", \"list\", \"watch\"]\n"),
            "{}",
            found[1].1
        );
        for rule in ["[\"services\"]\n    verbs: [\"get\"]", "[\"pods\"]\n    verbs: [\"list\"]"] {
            assert!(found[2].1.contains(rule), "{}", found[2].1);
        }
        // Another installation may have given rights there to its own account.
        assert_eq!(line(&found[2].1, "  name: "), "podbay-router-podbay-sandboxes");
        let text = install.manifests().unwrap();
        let bindings: Vec<&str> = text
            .split("---\n")
            .filter(|part| line(part, "kind: ") == "RoleBinding")
            .map(|part| line(part, "    namespace: "))
            .collect();
        assert_eq!(bindings, ["podbay-sandboxes"; 3], "the account itself stays where it is");
        // Where the Gateway is beside the sandboxes, one role has it all.
        let near = agent_sandbox::Features { gateway: Some("podbay-sandboxes".into()), ..Default::default() };
        let found = roles(&Install::new(near.needs()));
        assert!(found.len() == 1 && found[0].1.contains("\"gateways\""), "{found:?}");
        let hostile = agent_sandbox::Features { tunnel: Some("a\nkind: Secret".into()), ..Default::default() };
        assert!(Install::new(hostile.needs()).manifests().is_err());
    }

    /// A reaper that may not list network policies failed on every run.
    #[test]
    fn a_reaper_is_told_what_it_must_not_look_for() {
        let job = |features: Features| {
            Install { reaper_image: Some("podbay:1".into()), ..install(features) }.manifests().unwrap()
        };
        assert!(job(Features::default()).contains("\"--set\", \"raw.block_network=false\""));
        assert!(!job(Features { network_rules: true, ..Features::default() }).contains("raw.block_network"));
    }
}
