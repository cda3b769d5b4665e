//! What may be done in a sandbox: rules on paths and on commands.
//!
//! Rules are guardrails in front of the sandbox, which is the boundary: they keep a well-meaning agent from mistakes.

mod command;
mod shell;
mod work;

pub use command::{CommandRules, Matching};

use podbay_client::files::Scope;
use podbay_client::{Command, Program, RawPath};
use podbay_proto::{Error, ErrorCode};

/// What may be done in a sandbox.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// What file operations may touch: every operation that names a path obeys it.
    pub paths: Scope,
    /// Which commands may not run.
    pub commands: CommandRules,
}

impl Policy {
    /// Whether nothing is forbidden.
    pub fn is_empty(&self) -> bool {
        self.paths_are_free() && self.commands.is_empty()
    }

    pub(crate) fn paths_are_free(&self) -> bool {
        self.paths == Scope::default()
    }

    /// Decides on a command.
    ///
    /// # Errors
    /// `policy_denied`, with the reason.
    pub fn check(&self, command: &Command) -> Result<(), Error> {
        let decided = match &command.program {
            Program::Shell(line) => self.commands.check_line(line.as_bytes()),
            Program::Argv(words) => self.commands.check_argv(words.iter().map(RawPath::as_bytes)),
        };
        let decided = decided.and_then(|()| self.commands.check_variables(command.env.keys().map(String::as_str)));
        decided.map_err(|why| Error::new(ErrorCode::PolicyDenied, format!("the command wasn't run: {why}")))
    }

    /// What an operation may touch that asks for this scope: it can only narrow the policy's own.
    ///
    /// The policy's prefixes mean what they mean without the request, whose paths are therefore understood as the policy's are.
    ///
    /// # Errors
    /// `policy_denied`, when the scope asks for paths to be understood in another way.
    pub fn narrow(&self, asked: &Scope) -> Result<Scope, Error> {
        let own = &self.paths;
        let prefixes = || own.allow_prefixes.iter().chain(&own.deny_prefixes);
        let fixed = own.root.is_some() || own.virtual_paths || prefixes().next().is_some();
        let same_view = own.virtual_paths && asked.root.is_none();
        if fixed && asked.virtual_paths && !same_view {
            return Err(refused("virtual_paths", "leave it out, and name paths as the policy does"));
        }
        let other_workdir = asked.workdir.is_some() && asked.workdir != own.workdir;
        if other_workdir && prefixes().any(|prefix| !is_absolute(prefix)) {
            return Err(refused(
                "workdir",
                "a prefix of the policy is relative to the working directory: make it absolute",
            ));
        }
        let mut deny_prefixes = own.deny_prefixes.clone();
        deny_prefixes.extend(asked.deny_prefixes.iter().filter(|path| !own.deny_prefixes.contains(path)).cloned());
        // Prefixes are read below a root. What absolute ones deny stays denied below any, but a root that is a link would move
        // what others allow, and a second root would replace the first: then the request's becomes a rule. Its relative paths
        // begin where they begin without it, and so may be refused.
        let only_denies =
            own.root.is_none() && !own.virtual_paths && own.allow_prefixes.is_empty() && prefixes().all(is_absolute);
        let (root, rule) = match &asked.root {
            Some(asked) if !only_denies => (own.root.clone(), Some(asked.clone())),
            asked => (asked.clone().or_else(|| own.root.clone()), None),
        };
        let allow_prefixes = both(&own.allow_prefixes, &asked.allow_prefixes);
        Ok(Scope {
            workdir: asked.workdir.clone().or_else(|| own.workdir.clone()),
            root,
            virtual_paths: own.virtual_paths || asked.virtual_paths,
            rules_for_reads: own.rules_for_reads || asked.rules_for_reads || rule.is_some(),
            allow_prefixes: rule.map_or_else(|| allow_prefixes.clone(), |rule| both(&allow_prefixes, &[rule])),
            deny_prefixes,
        })
    }
}

fn refused(field: &str, advice: &str) -> Error {
    Error::new(ErrorCode::PolicyDenied, format!("the policy doesn't let a request set {field}: {advice}"))
}

/// The prefixes that both lists allow; an empty list allows everything.
fn both(ours: &[RawPath], asked: &[RawPath]) -> Vec<RawPath> {
    if ours.is_empty() || asked.is_empty() {
        return if ours.is_empty() { asked.to_vec() } else { ours.to_vec() };
    }
    let mut list: Vec<RawPath> = Vec::new();
    for (a, b) in ours.iter().flat_map(|a| asked.iter().map(move |b| (a, b))) {
        let narrower = if below(a, b) { a } else { b };
        if (below(a, b) || below(b, a)) && !list.contains(narrower) {
            list.push(narrower.clone());
        }
    }
    if list.is_empty() {
        // An empty list would allow everything; Linux has no names this long.
        list.push(RawPath::from(format!("/{}", "-".repeat(256))));
    }
    list
}

/// Whether a path is at or below a prefix. A relative one can't be compared with an absolute one.
fn below(path: &RawPath, prefix: &RawPath) -> bool {
    let components = |path: &RawPath| -> Vec<Vec<u8>> {
        let parts = path.as_bytes().split(|byte| *byte == b'/');
        parts.filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec).collect()
    };
    is_absolute(path) == is_absolute(prefix) && components(path).starts_with(&components(prefix))
}

fn is_absolute(path: &RawPath) -> bool {
    path.as_bytes().starts_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(list: &[&str]) -> Vec<RawPath> {
        list.iter().map(|path| RawPath::from(*path)).collect()
    }

    fn policy(scope: Scope) -> Policy {
        Policy { paths: scope, ..Policy::default() }
    }

    fn rooted(root: &str) -> Scope {
        Scope { root: Some(root.into()), ..Scope::default() }
    }

    fn in_dir(workdir: &str) -> Scope {
        Scope { workdir: Some(workdir.into()), ..Scope::default() }
    }

    fn allowing(prefixes: &[&str]) -> Scope {
        Scope { allow_prefixes: paths(prefixes), ..Scope::default() }
    }

    #[test]
    fn a_variable_is_denied_however_it_is_set() {
        let with = |matching| {
            let commands = CommandRules::deny(["rm -rf"], matching);
            Policy { commands, ..Policy::default() }
        };
        let words = with(Matching::Words);
        let set = |name: &str| {
            let mut command = Command::shell("bash -c true");
            command.env.insert(name.to_owned(), "$(rm -rf v)".into());
            command
        };
        for name in shell::SETTINGS {
            let reason = format!("a shell may run what {name} is set to");
            let assigned = format!("{name}='$(rm -rf v)' bash -c true");
            let by_env = format!("env {assigned}");
            for command in [set(name), assigned.as_str().into(), by_env.as_str().into()] {
                let denied = words.check(&command).unwrap_err();
                assert_eq!(denied.code, ErrorCode::PolicyDenied);
                assert!(denied.message.ends_with(&reason), "{command:?}: {}", denied.message);
            }
        }
        assert!(words.check(&set("BASH_FUNC_ls%%")).is_err());
        assert!(words.check(&"env 'BASH_FUNC_ls%%=() { true; }' bash -c ls".into()).is_err());
        assert!(words.check(&set("PATH")).is_ok() && words.check(&set("BASH_VERSION")).is_ok());
        // These are rules on texts, and those on nothing.
        assert!(with(Matching::Substring).check(&set("PS4")).is_ok() && Policy::default().check(&set("PS4")).is_ok());
    }

    #[test]
    fn asking_only_narrows() {
        let policy = policy(Scope {
            allow_prefixes: paths(&["/workspace", "/tmp/a"]),
            deny_prefixes: paths(&["/workspace/secret"]),
            ..Scope::default()
        });
        let narrow = policy.narrow(&allowing(&["/", "/workspace/x"])).unwrap();
        assert_eq!(narrow.allow_prefixes, paths(&["/workspace", "/workspace/x", "/tmp/a"]));
        assert_eq!(narrow.deny_prefixes, paths(&["/workspace/secret"]));
        for asked in [allowing(&["/etc", "/workspaces"]), rooted("/etc"), allowing(&["workspace/x"])] {
            let nothing = policy.narrow(&asked).unwrap().allow_prefixes;
            assert_eq!((nothing.len(), nothing[0].as_bytes().len()), (1, 257), "{asked:?}");
        }
        assert_eq!(policy.narrow(&Scope::default()).unwrap().allow_prefixes, policy.paths.allow_prefixes);
    }

    /// With a root of the caller's, `/workspace/secret` once meant a directory below that root.
    #[test]
    fn a_request_cant_change_what_the_policys_prefixes_mean() {
        let denied = |scope: &Scope, asked: &Scope| policy(scope.clone()).narrow(asked).unwrap_err().code;
        let virtual_paths = |scope| Scope { virtual_paths: true, ..scope };
        let deny = Scope { deny_prefixes: paths(&["/workspace/secret"]), ..Scope::default() };
        let relative = Scope { deny_prefixes: paths(&["secret"]), ..Scope::default() };
        let root = rooted("/workspace");
        for own in [&deny, &allowing(&["/workspace"]), &root, &virtual_paths(root.clone())] {
            assert_eq!(denied(own, &virtual_paths(rooted("/workspace/secret"))), ErrorCode::PolicyDenied, "{own:?}");
            // Prefixes that are absolute mean the same everywhere.
            assert!(policy(own.clone()).narrow(&in_dir("/workspace/src")).is_ok(), "{own:?}");
        }
        for own in [&relative, &allowing(&["src"]), &Scope { root: Some("/workspace".into()), ..relative.clone() }] {
            assert_eq!(denied(own, &in_dir("/workspace/src")), ErrorCode::PolicyDenied, "{own:?}");
        }
        let with_workdir = Scope { workdir: Some("/workspace".into()), ..relative };
        assert!(policy(with_workdir).narrow(&in_dir("/workspace")).is_ok());

        // Where the policy allows only some paths or has a root, a root of the caller's is one more rule.
        let narrow = policy(allowing(&["/workspace"])).narrow(&rooted("/workspace/a")).unwrap();
        assert_eq!(narrow, Scope { rules_for_reads: true, ..allowing(&["/workspace/a"]) });
        let narrow = policy(root.clone()).narrow(&rooted("/workspace/a")).unwrap();
        assert_eq!(narrow, Scope { rules_for_reads: true, root: root.root, ..allowing(&["/workspace/a"]) });
        // Where it has none of these, it stays the kernel's.
        let narrow = policy(deny.clone()).narrow(&rooted("/workspace/a")).unwrap();
        assert_eq!(narrow, Scope { root: Some("/workspace/a".into()), ..deny });
        let reads = Scope { rules_for_reads: true, ..Scope::default() };
        let asked = virtual_paths(rooted("/workspace/a"));
        assert_eq!(policy(reads).narrow(&asked).unwrap(), Scope { rules_for_reads: true, ..asked });
        // A policy that can't be right isn't made right by a request.
        let narrow = policy(virtual_paths(Scope::default())).narrow(&rooted("/etc")).unwrap();
        assert!(narrow.virtual_paths && narrow.root.is_none());
    }
}
