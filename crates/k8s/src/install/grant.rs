//! A role with an account's rights, and its binding.

use std::fmt::Write as _;

use crate::rights::Right;

/// An account and its rights.
pub(super) struct Grant<'a> {
    /// The name of the role and its binding.
    pub(super) role: String,
    /// The namespace where the rights hold: all of them if not set.
    pub(super) namespace: Option<&'a str>,
    pub(super) account: &'a str,
    /// The account's namespace.
    pub(super) home: &'a str,
    pub(super) rights: Vec<&'a Right>,
    pub(super) why: &'a str,
}

impl Grant<'_> {
    /// The role and its binding.
    pub(super) fn manifests(&self) -> [String; 2] {
        let Self { role, namespace, account, home, rights, why } = self;
        let (kind, namespace) = match namespace {
            None => ("ClusterRole", String::new()),
            Some(namespace) => ("Role", format!("  namespace: {namespace}\n")),
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
}
