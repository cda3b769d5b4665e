//! What modes need on a cluster. `podbay install` grants these rights, `podbay doctor` checks them, and the tests run with
//! them: there is no other list. What YAML has to repeat, in deploy/ and for the accounts of Python and TypeScript tests, is
//! compared with this one by tests.

#[cfg(test)]
mod roles_of_tests;

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;

/// What a mode needs on a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeNeeds {
    /// The mode's name: `raw`.
    pub mode: &'static str,
    /// The rights of whoever uses sandboxes.
    pub rights: Vec<Right>,
    /// The rights of the reaper, which only removes sandboxes.
    pub reaper_rights: Vec<Right>,
    /// The settings that the reaper needs to find the sandboxes, as `key=value`.
    pub reaper_settings: Vec<&'static str>,
    /// Whether the rights have to hold in the whole cluster, because every sandbox has a namespace of its own.
    pub cluster_wide: bool,
}

impl ModeNeeds {
    /// The rights of whoever uses sandboxes, as the rules of a role in the sandboxes' namespace. Rights that name another
    /// namespace take a role there.
    pub fn policy_rules(&self) -> Vec<PolicyRule> {
        let here = self.rights.iter().filter(|right| right.namespace.is_none());
        here.map(Right::policy_rule).collect()
    }

    /// The rights of whoever uses sandboxes, by the namespace where each is needed. The sandboxes are in `home`.
    pub(crate) fn by_namespace<'a>(&'a self, home: &'a str) -> BTreeMap<&'a str, Vec<&'a Right>> {
        let mut found = BTreeMap::<_, Vec<_>>::new();
        for right in &self.rights {
            found.entry(right.namespace.as_deref().unwrap_or(home)).or_default().push(right);
        }
        found
    }

    /// The namespace in which a right has to hold; none if it has to hold in all of them.
    pub(crate) fn scope<'a>(&self, right: &'a Right, home: &'a str) -> Option<&'a str> {
        right.namespace.as_deref().or_else(|| (!self.cluster_wide).then_some(home))
    }
}

/// The right to do something with a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, with its subresource after a `/`.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// Why it is needed, as a comment in manifests.
    pub why: &'static str,
    /// The namespace where it is needed, if that isn't the sandboxes' own.
    pub namespace: Option<String>,
}

impl Right {
    /// The same right in a namespace that isn't the sandboxes' own.
    pub(crate) fn within(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    fn policy_rule(&self) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![self.group.to_owned()]),
            resources: Some(vec![self.resource.to_owned()]),
            verbs: self.verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        }
    }
}

pub(crate) const fn right(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { group, resource, verbs, why, namespace: None }
}
