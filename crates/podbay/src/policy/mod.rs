//! What may be done in a sandbox: rules on paths and on commands.
//!
//! Rules are guardrails in front of the sandbox, which is the boundary: they keep a well-meaning agent from mistakes.

mod command;
mod shell;

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
        decided.map_err(|why| Error::new(ErrorCode::PolicyDenied, format!("the command wasn't run: {why}")))
    }

    /// What an operation may touch that asks for this scope: it can only narrow the policy's own.
    pub fn narrow(&self, asked: &Scope) -> Scope {
        let mut deny_prefixes = self.paths.deny_prefixes.clone();
        deny_prefixes
            .extend(asked.deny_prefixes.iter().filter(|path| !self.paths.deny_prefixes.contains(path)).cloned());
        // A second root inside the first becomes a rule: the first has to stay the kernel's.
        let inner = self.paths.root.as_ref().and(asked.root.clone());
        let allow_prefixes = both(&self.paths.allow_prefixes, &asked.allow_prefixes);
        Scope {
            workdir: asked.workdir.clone().or_else(|| self.paths.workdir.clone()),
            root: self.paths.root.clone().or_else(|| asked.root.clone()),
            virtual_paths: if self.paths.root.is_some() { self.paths.virtual_paths } else { asked.virtual_paths },
            rules_for_reads: self.paths.rules_for_reads || asked.rules_for_reads || inner.is_some(),
            allow_prefixes: inner.map_or_else(|| allow_prefixes.clone(), |inner| both(&allow_prefixes, &[inner])),
            deny_prefixes,
        }
    }
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
        // An empty list would allow everything; nothing has this name.
        list.push(RawPath::from("/dev/null/nothing-is-allowed"));
    }
    list
}

fn below(path: &RawPath, prefix: &RawPath) -> bool {
    let components = |path: &RawPath| -> Vec<Vec<u8>> {
        path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect()
    };
    components(path).starts_with(&components(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(list: &[&str]) -> Vec<RawPath> {
        list.iter().map(|path| RawPath::from(*path)).collect()
    }

    #[test]
    fn asking_only_narrows() {
        let policy = Policy {
            paths: Scope {
                allow_prefixes: paths(&["/workspace", "/tmp/a"]),
                deny_prefixes: paths(&["/workspace/secret"]),
                ..Scope::default()
            },
            ..Policy::default()
        };
        let asked = Scope { allow_prefixes: paths(&["/", "/workspace/x"]), ..Scope::default() };
        let narrow = policy.narrow(&asked);
        assert_eq!(narrow.allow_prefixes, paths(&["/workspace", "/workspace/x", "/tmp/a"]));
        assert_eq!(narrow.deny_prefixes, paths(&["/workspace/secret"]));
        let nothing = policy.narrow(&Scope { allow_prefixes: paths(&["/etc", "/workspaces"]), ..Scope::default() });
        assert_eq!(nothing.allow_prefixes, paths(&["/dev/null/nothing-is-allowed"]));
        assert_eq!(policy.narrow(&Scope::default()).allow_prefixes, policy.paths.allow_prefixes);
    }
}
