//! Tests that aren't written in Rust have their accounts' roles in files. Some once granted more than `podbay install` does, so
//! these tests didn't show that its rights are enough.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::ModeNeeds;
use crate::channel::router::ROUTER_NAMESPACE;
use crate::{agent_sandbox, raw};

/// What stands in these files for the namespace of the account and its sandboxes. Roles without a namespace are applied there.
const HOME: &str = "NAMESPACE";

/// A role that holds in all namespaces.
const EVERYWHERE: &str = "*";

/// An account that Podbay runs with.
struct Account {
    /// The files with its roles.
    files: &'static [&'static str],
    /// What is done with it.
    needs: Vec<ModeNeeds>,
}

fn accounts() -> Vec<Account> {
    let pool = raw::Features { network_rules: true, pool: true, ..Default::default() }.needs();
    let everywhere = raw::Features { network_rules: true, namespace_per_sandbox: true, ..Default::default() };
    let with_quota = raw::Features { namespace_quota: true, ..everywhere }.needs();
    let claims = agent_sandbox::Features { templates: true, suspends: true, ..Default::default() };
    let all_of_claims = agent_sandbox::Features {
        creates_pools: true,
        tunnel: Some(ROUTER_NAMESPACE.into()),
        gateway: Some(HOME.into()),
        ..claims.clone()
    };
    vec![
        Account { files: &["python/tests/roles.yaml"], needs: vec![pool.clone()] },
        Account { files: &["python/tests/roles-everywhere.yaml"], needs: vec![everywhere.needs()] },
        Account {
            files: &["python/tests/roles-agent-sandbox.yaml", "python/tests/claims.yaml"],
            needs: vec![all_of_claims.needs()],
        },
        Account { files: &["node/tests/roles.yaml"], needs: vec![pool, claims.needs()] },
        Account { files: &["node/tests/roles-everywhere.yaml"], needs: vec![with_quota] },
    ]
}

/// The roles of accounts that the tests use without Podbay: to break something, or to look at what Podbay did.
const WITHOUT_PODBAY: [&str; 2] = ["node/tests/roles-harness.yaml", "python/tests/roles-harness.yaml"];

/// Verbs by namespace, API group and resource.
type Granted = BTreeMap<(String, String, String), BTreeSet<String>>;

#[test]
fn accounts_of_tests_have_the_rights_that_install_grants_and_no_others() {
    for Account { files, needs } in accounts() {
        let mut granted = Granted::new();
        files.iter().for_each(|file| read(&text(file), &mut granted));
        assert_eq!(granted, table(&needs), "{files:?}");
    }
}

/// A new file with roles has to be in one of the two lists above.
#[test]
fn no_other_file_of_the_tests_has_roles() {
    let mut found = BTreeSet::new();
    for directory in ["node/tests", "python/tests"] {
        find(directory, &mut found);
    }
    let accounts = accounts();
    let known = accounts.iter().flat_map(|account| account.files).chain(&WITHOUT_PODBAY);
    assert_eq!(found, known.map(|file| (*file).to_owned()).collect());
}

#[test]
fn one_verb_too_many_is_noticed() {
    let role = "kind: Role\nmetadata:\n  name: a\nrules:\n  # Why.\n  - apiGroups: [\"\"]\n    resources: [\"pods\"]\n";
    let read_role = |text: &str| {
        let mut granted = Granted::new();
        read(text, &mut granted);
        granted
    };
    let list = read_role(&format!("{role}    verbs: [\"list\"]\n"));
    let more = read_role(&format!("{role}    verbs: [\"list\", \"delete\"]\n"));
    assert!(list != more && list.len() == 1, "{list:?}, {more:?}");
    let elsewhere = role.replace("name: a\n", "name: a\n  namespace: b\n");
    assert_ne!(list, read_role(&format!("{elsewhere}    verbs: [\"list\"]\n")));
    assert_ne!(list, read_role(&format!("{}    verbs: [\"list\"]\n", role.replace("Role", "ClusterRole"))));
}

/// What the table of rights says.
fn table(needs: &[ModeNeeds]) -> Granted {
    let mut granted = Granted::new();
    for needs in needs {
        for right in &needs.rights {
            let scope = needs.scope(right, HOME).unwrap_or(EVERYWHERE);
            let verbs = granted.entry((scope.into(), right.group.into(), right.resource.into())).or_default();
            verbs.extend(right.verbs.iter().map(|verb| (*verb).to_owned()));
        }
    }
    granted
}

/// Adds what the roles of a manifest grant. It understands just what these files contain, so nothing in them is overlooked.
fn read(manifest: &str, granted: &mut Granted) {
    for part in manifest.split("\n---\n") {
        let kind = part.lines().find_map(|line| line.strip_prefix("kind: "));
        match kind {
            Some("Role" | "ClusterRole") => {}
            // A binding can name a role of the cluster's own, such as cluster-admin.
            Some("RoleBinding" | "ClusterRoleBinding") => {
                let role =
                    part.split_once("\nroleRef: {").and_then(|(_, rest)| rest.split_once('}')).map(|(role, _)| role);
                let name = role.and_then(|role| role.split_once("kind: Role, name: ")).map(|(_, name)| name);
                let is_here =
                    name.is_some_and(|name| manifest.contains(&format!("kind: Role\nmetadata: {{name: {name},")));
                assert!(is_here, "a binding of a role that isn't in the same file: {part}");
                continue;
            }
            _ => continue,
        }
        let (head, rules) = part.split_once("\nrules:\n").expect("a role has rules, one attribute per line");
        let namespace = head.split_once("namespace: ").and_then(|(_, rest)| rest.split([',', '}', '\n']).next());
        let scope = if kind == Some("ClusterRole") { EVERYWHERE } else { namespace.unwrap_or(HOME) };
        let lines = rules.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for rule in lines.collect::<Vec<_>>().chunks(3) {
            let [groups, resources, verbs] =
                [("- apiGroups: ", 0), ("resources: ", 1), ("verbs: ", 2)].map(|(attribute, place)| {
                    let list = rule.get(place).and_then(|line| line.strip_prefix(attribute));
                    let list = list.unwrap_or_else(|| panic!("expected {attribute:?} in {rule:?}"));
                    serde_json::from_str::<Vec<String>>(list).unwrap()
                });
            for group in &groups {
                for resource in &resources {
                    let key = (scope.to_owned(), group.clone(), resource.clone());
                    granted.entry(key).or_default().extend(verbs.iter().cloned());
                }
            }
        }
    }
}

/// Finds the manifests with roles in a directory.
fn find(directory: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(root().join(directory)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{directory}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            find(&name, found);
        } else if name.ends_with(".yaml") || name.ends_with(".yml") {
            // Or bindings of roles.
            let has_roles = |line: &str| line.starts_with("kind: Role") || line.starts_with("kind: ClusterRole");
            if text(&name).lines().any(has_roles) {
                found.insert(name);
            }
        }
    }
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
