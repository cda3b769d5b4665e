//! The manifests that a cluster's administrator applies for sandboxes.
//!
//! Raw mode needs nothing on the cluster. These are good practice: a namespace for sandboxes alone, an account that may do
//! just what Podbay does, and optionally a reaper with an account of its own.

mod admission;
mod reaper;
mod template;

use std::fmt::Write as _;

pub use template::Template;

use crate::channel::router::ROUTER_NAMESPACE;
use crate::error::Result;
use crate::names;
use crate::rights::{ModeNeeds, Right, right};

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
    /// Whether the account may forward ports to upstream's router, for the connection `tunnel`.
    pub tunnel: bool,
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
            tunnel: false,
            reaper_namespace: None,
        }
    }
}

/// An account and its rights.
struct Grant<'a> {
    /// The name of the role and its binding.
    role: String,
    account: &'a str,
    /// The account's namespace.
    home: &'a str,
    rights: Vec<Right>,
    why: &'a str,
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
        parts.extend(self.granted(&Grant {
            role: self.role_name(""),
            account: &self.account,
            home,
            rights: self.needs.rights.clone(),
            why: "Exactly the rights that Podbay needs.",
        }));
        if self.tunnel {
            parts.extend(self.tunnel_rights(home));
        }
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

    /// A role with an account's rights, and its binding. With a namespace for each sandbox the role has to be the cluster's.
    fn granted(&self, grant: &Grant<'_>) -> [String; 2] {
        let Grant { role, account, home, rights, why } = grant;
        let (kind, namespace) = match self.needs.cluster_wide {
            true => ("ClusterRole", String::new()),
            false => ("Role", format!("  namespace: {}\n", self.namespace)),
        };
        let mut text = format!(
            "\
# {why}
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata:
  name: {role}
{namespace}  labels:
    app.kubernetes.io/managed-by: podbay
rules:
"
        );
        for right in rights {
            // Writing to a string can't fail.
            let _ = write!(
                text,
                "  # {}\n  - apiGroups: [\"{}\"]\n    resources: [\"{}\"]\n    verbs: [{}]\n",
                right.why,
                right.group,
                right.resource,
                right.verbs.iter().map(|verb| format!("\"{verb}\"")).collect::<Vec<_>>().join(", "),
            );
        }
        let binding = format!(
            "\
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}Binding
metadata:
  name: {role}
{namespace}  labels:
    app.kubernetes.io/managed-by: podbay
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {kind}
  name: {role}
subjects:
  - kind: ServiceAccount
    name: {account}
    namespace: {home}
"
        );
        [text, binding]
    }

    /// What a tunnel to the router takes, in the router's namespace.
    fn tunnel_rights(&self, home: &str) -> [String; 2] {
        let rights = vec![
            right("", "services", &["get"], "Which pods are the router's."),
            right("", "pods", &["list"], "Which of them is ready."),
            right("", "pods/portforward", &["create", "get"], "The tunnel to it."),
        ];
        let needs = ModeNeeds { cluster_wide: false, ..self.needs.clone() };
        let there = Self { namespace: ROUTER_NAMESPACE.into(), needs, ..self.clone() };
        there.granted(&Grant {
            role: format!("podbay-tunnel-{}", self.namespace),
            account: &self.account,
            home,
            rights,
            why: "Lets that account reach upstream's router through the API server.",
        })
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
