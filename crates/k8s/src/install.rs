//! What a cluster's administrator sets up for sandboxes, as manifests.
//!
//! Raw mode needs nothing on the cluster. What is here is good practice: a namespace for sandboxes alone, an account that may
//! do just what Podbay does, and, if wanted, a job that removes what is over.

use std::fmt::Write as _;

use crate::error::{Error, Result};
use crate::names;
use crate::rights::Features;

/// The manifests of raw mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    /// The namespace of the sandboxes, for nothing else.
    pub namespace: String,
    /// The account that uses them.
    pub account: String,
    /// The account's namespace; the sandboxes' own when there is none.
    pub account_namespace: Option<String>,
    /// What the account's rights are for.
    pub features: Features,
    /// How strict the cluster is with the pods of the namespace.
    pub pod_security: PodSecurity,
    /// An image with `podbay` in it, for a job that removes what is over. No job without it.
    pub reaper_image: Option<String>,
}

/// A level of the Pod Security Standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodSecurity {
    /// What Podbay's pods keep to by themselves.
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

impl Default for Install {
    fn default() -> Self {
        Self {
            namespace: "podbay-sandboxes".into(),
            account: "podbay".into(),
            account_namespace: None,
            features: Features { network_rules: true, ..Features::default() },
            pod_security: PodSecurity::Restricted,
            reaper_image: None,
        }
    }
}

impl Install {
    /// The manifests, as YAML.
    ///
    /// # Errors
    /// When a name can't be one on a cluster.
    pub fn manifests(&self) -> Result<String> {
        let home = self.account_namespace.as_deref().unwrap_or(&self.namespace);
        for (what, name) in [("namespace", self.namespace.as_str()), ("account", &self.account), ("namespace", home)] {
            names::check_label(what, name)?;
        }
        let mut parts = vec![self.namespace_manifest(), account(&self.account, home), self.role(), self.binding(home)];
        if let Some(image) = &self.reaper_image {
            parts.push(self.reaper(image, home)?);
        }
        Ok(parts.join("---\n"))
    }

    fn namespace_manifest(&self) -> String {
        let level = self.pod_security.as_str();
        format!(
            "\
# A namespace for sandboxes and nothing else: whoever may run commands in one pod of it may in all.
apiVersion: v1
kind: Namespace
metadata:
  name: {}
  labels:
    app.kubernetes.io/managed-by: podbay
    # Podbay's pods keep to this by themselves; here the cluster sees to it too.
    pod-security.kubernetes.io/enforce: {level}
    pod-security.kubernetes.io/warn: {level}
",
            self.namespace
        )
    }

    /// With a namespace for each sandbox there is no namespace that a role could be in.
    fn kind(&self) -> &'static str {
        if self.features.namespace_per_sandbox { "ClusterRole" } else { "Role" }
    }

    fn role(&self) -> String {
        let mut text = format!(
            "\
# Just what Podbay does.
apiVersion: rbac.authorization.k8s.io/v1
kind: {}
metadata:
  name: {}
{}  labels:
    app.kubernetes.io/managed-by: podbay
rules:
",
            self.kind(),
            self.role_name(),
            self.role_namespace(),
        );
        for right in self.features.rights() {
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
        text
    }

    /// What belongs to the whole cluster mustn't be taken for that of another namespace's sandboxes.
    fn role_name(&self) -> String {
        match self.features.namespace_per_sandbox {
            true => format!("podbay-sandboxes-{}", self.namespace),
            false => "podbay-sandboxes".into(),
        }
    }

    fn role_namespace(&self) -> String {
        match self.features.namespace_per_sandbox {
            true => String::new(),
            false => format!("  namespace: {}\n", self.namespace),
        }
    }

    fn binding(&self, home: &str) -> String {
        format!(
            "\
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}Binding
metadata:
  name: {name}
{namespace}  labels:
    app.kubernetes.io/managed-by: podbay
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {kind}
  name: {name}
subjects:
  - kind: ServiceAccount
    name: {account}
    namespace: {home}
",
            kind = self.kind(),
            name = self.role_name(),
            namespace = self.role_namespace(),
            account = self.account,
        )
    }

    fn reaper(&self, image: &str, home: &str) -> Result<String> {
        let plain = |character: char| character.is_ascii_alphanumeric() || "./:@_-".contains(character);
        if image.is_empty() || !image.chars().all(plain) {
            return Err(Error::Config(format!(
                "{image:?} can't be the name of an image: use one such as podbay:0.1.0"
            )));
        }
        Ok(format!(
            "\
# Removes sandboxes that are over. Each sandbox ends itself; this is for those whose node is gone, and for what they left.
apiVersion: batch/v1
kind: CronJob
metadata:
  name: podbay-reaper
  namespace: {home}
  labels:
    app.kubernetes.io/managed-by: podbay
spec:
  schedule: \"*/15 * * * *\"
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 0
      activeDeadlineSeconds: 600
      template:
        metadata:
          labels:
            app.kubernetes.io/name: podbay-reaper
            app.kubernetes.io/managed-by: podbay
        spec:
          serviceAccountName: {account}
          restartPolicy: Never
          securityContext:
            runAsNonRoot: true
            runAsUser: 1000
            seccompProfile:
              type: RuntimeDefault
          containers:
            - name: reaper
              image: \"{image}\"
              command: [\"podbay\", \"--json\", \"reap\", \"--mode\", \"raw\", \"--namespace\", \"{namespace}\"]
              resources:
                requests: {{cpu: 10m, memory: 32Mi}}
                limits: {{cpu: 500m, memory: 128Mi}}
              securityContext:
                allowPrivilegeEscalation: false
                readOnlyRootFilesystem: true
                capabilities:
                  drop: [ALL]
",
            account = self.account,
            namespace = self.namespace,
        ))
    }
}

fn account(name: &str, namespace: &str) -> String {
    format!(
        "\
# Whoever uses sandboxes. A token for a kubeconfig: kubectl create token {name} -n {namespace}
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

    #[test]
    fn names_are_checked_before_they_are_written() {
        let bad = |change: fn(&mut Install), word: &str| {
            let mut install = Install::default();
            change(&mut install);
            let message = install.manifests().unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        };
        bad(|install| install.namespace = "a\nkind: Secret".into(), "namespace");
        bad(|install| install.account = "Podbay".into(), "account");
        bad(|install| install.account_namespace = Some("-".into()), "namespace");
        bad(|install| install.reaper_image = Some("x\"\n  y: z".into()), "image");
    }

    #[test]
    fn a_role_is_the_clusters_only_where_it_has_to_be() {
        let plain = Install::default().manifests().unwrap();
        assert!(!plain.contains("ClusterRole") && !plain.contains("CronJob") && plain.contains("networkpolicies"));
        let features = Features { namespace_per_sandbox: true, ..Features::default() };
        let wide = Install { features, ..Install::default() }.manifests().unwrap();
        assert!(wide.contains("kind: ClusterRoleBinding") && !wide.contains("networkpolicies"));
        // Two of them in one cluster each have their own.
        let names: Vec<_> =
            wide.lines().filter(|line| line.ends_with("name: podbay-sandboxes-podbay-sandboxes")).collect();
        assert_eq!(names.len(), 3, "{wide}");
    }
}
