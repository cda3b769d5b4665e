//! What an operation is about to do, as the log records it.

use podbay_proto::RawPath;
use podbay_proto::exec::{Command, ExecId, Program, Target};
use podbay_proto::files::Scope;
use serde::Serialize;

use super::digest::{self, Digest, Text, Total, Variable, WHOLE};

/// How many bytes of an operation's target are shown.
const TARGET: usize = 4096;

/// What an operation is about to do: on which paths, with which command, with which data.
///
/// Contents, input and values of environment variables are recorded by length and digest. So no content of a file and no value of
/// a variable gets into the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Details {
    /// What the operation is about, for people: a path, or a command in one line.
    #[serde(skip)]
    pub target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pattern: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workdir: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<Text>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    virtual_paths: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exec_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shell: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    argv: Option<Vec<Text>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    argv_total: Option<Total>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<Text>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<Variable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    env_total: Option<Total>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Digest>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    closes_input: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal_target: Option<Target>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_cap: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gap: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
}

impl Details {
    /// An operation on the sandbox as a whole, such as listing its commands.
    pub fn none() -> Self {
        Self::default()
    }

    /// An operation on one path.
    pub fn path(path: &RawPath) -> Self {
        Self { target: shown(path.to_string()), path: Some(Text::of(path.as_bytes())), ..Self::default() }
    }

    /// An operation below a directory: the working directory when none is named.
    pub fn below(path: Option<&RawPath>) -> Self {
        path.map_or_else(|| Self { target: ".".to_owned(), ..Self::default() }, Self::path)
    }

    /// An operation from one path to another.
    pub fn between(from: &RawPath, to: &RawPath) -> Self {
        let target = shown(format!("{from} -> {to}"));
        Self { target, to: Some(Text::of(to.as_bytes())), ..Self::path(from) }
    }

    /// What the operation's paths mean: relative ones are below `workdir`, virtual ones below `root`.
    #[must_use]
    pub fn within(mut self, scope: &Scope) -> Self {
        let text = |path: &RawPath| Text::of(path.as_bytes());
        self.workdir = scope.workdir.as_ref().map(text);
        self.root = scope.root.as_ref().map(text);
        self.virtual_paths = scope.virtual_paths;
        self
    }

    /// A command that is to be started.
    pub fn command(command: &Command) -> Self {
        let (target, shell, argv, argv_total) = match &command.program {
            Program::Shell(line) => (line.to_string(), Some(Text::of(line.as_bytes())), None, None),
            Program::Argv(words) => {
                let (argv, total) = digest::list(words.iter().map(RawPath::as_bytes), WHOLE);
                (quoted(words), None, Some(argv), total)
            }
        };
        let (env, env_total) =
            digest::environment(command.env.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())), WHOLE);
        let cwd = command.cwd.as_ref().map(|cwd| Text::of(cwd.as_bytes()));
        Self { target: shown(target), shell, argv, argv_total, cwd, env, env_total, ..Self::default() }
    }

    /// An operation on a command that was started before.
    pub fn exec(id: &ExecId) -> Self {
        Self { target: id.to_string(), exec_id: Some(id.to_string()), ..Self::default() }
    }

    /// An operation on a sandbox itself, in the provider's mode: creating or deleting it.
    pub fn sandbox(id: &str, mode: &str) -> Self {
        Self { target: shown(id.to_owned()), mode: Some(mode.to_owned()), ..Self::default() }
    }

    /// The id of the command that is to be started.
    #[must_use]
    pub fn with_id(mut self, id: &ExecId) -> Self {
        self.exec_id = Some(id.to_string());
        self
    }

    /// What is searched for.
    #[must_use]
    pub fn with_pattern(mut self, pattern: &[u8]) -> Self {
        self.pattern = Some(Text::of(pattern));
        self
    }

    /// What goes to a command's standard input.
    #[must_use]
    pub fn with_input(mut self, input: &[u8]) -> Self {
        self.input = Some(Digest::of(input));
        self
    }

    /// Standard input is closed, after the input if there is any.
    #[must_use]
    pub fn closing_input(mut self) -> Self {
        self.closes_input = true;
        self
    }

    /// A signal, and which of a command's processes get it.
    #[must_use]
    pub fn with_signal(mut self, signal: i32, target: Target) -> Self {
        self.target = format!("{} {signal}", self.target);
        (self.signal, self.signal_target) = (Some(signal), Some(target));
        self
    }

    /// What is written.
    #[must_use]
    pub fn with_content(mut self, content: &[u8]) -> Self {
        self.content = Some(Digest::of(content));
        self
    }

    /// How much is going to be written, where it is read while it is sent.
    #[must_use]
    pub fn with_size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    /// A command's output is written, at most so many bytes of it and `gap` in the place of what is left out. The file's content
    /// is then whatever the command printed.
    #[must_use]
    pub fn with_output_of(mut self, id: &ExecId, cap: u64, gap: &[u8]) -> Self {
        self = self.with_id(id);
        (self.output_cap, self.gap) = (Some(cap), Some(Digest::of(gap)));
        self
    }

    /// What is replaced in a file, and by what: the payload of an edit, whose first bytes are the old text.
    #[must_use]
    pub fn with_edit(mut self, payload: &[u8], old_length: u64) -> Self {
        let middle = usize::try_from(old_length).unwrap_or(usize::MAX).min(payload.len());
        let (old, new) = payload.split_at(middle);
        (self.replaced, self.content) = (Some(Digest::of(old)), Some(Digest::of(new)));
        self
    }
}

/// A text for people, cut after 4 KiB.
pub(super) fn shown(mut text: String) -> String {
    if text.len() > TARGET {
        text.truncate(text.floor_char_boundary(TARGET));
        text.push('…');
    }
    text
}

/// Arguments as a shell would want them, so that the borders between them can be seen.
fn quoted(words: &[RawPath]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        let text = word.to_string_lossy();
        match !text.is_empty() && text.bytes().all(plain) {
            true => line.push_str(&text),
            false => line.extend(["'", &text.replace('\'', r"'\''"), "'"]),
        }
        if line.len() > TARGET {
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(details: &Details) -> serde_json::Value {
        serde_json::to_value(details).unwrap()
    }

    /// Joined by blanks, these were one line in the log.
    #[test]
    fn arguments_keep_their_borders() {
        let lines: [&[&str]; 5] =
            [&["rm", "-rf", "a b"], &["rm", "-rf", "a", "b"], &["rm -rf", "a b"], &["rm", "-rf", "a\nb"], &[""]];
        let details = lines.map(|words| Details::command(&Command::argv(words.iter().copied())));
        for (one, words) in details.iter().zip(lines) {
            assert_eq!(json(one)["argv"], serde_json::json!(words));
            assert_eq!(details.iter().filter(|other| other.target == one.target).count(), 1, "{}", one.target);
        }
        assert_eq!(details[0].target, "rm -rf 'a b'");
        assert_eq!(Details::command(&Command::argv(["it's"])).target, r"'it'\''s'");
    }

    #[test]
    fn a_command_is_recorded_with_digests_of_its_variables_and_without_their_values() {
        let mut command = Command::shell("make all");
        command.cwd = Some("/src".into());
        command.env = [("KEY".to_owned(), "s3cr3t".into()), ("A".to_owned(), "b".into())].into();
        let details = Details::command(&command).with_id(&ExecId::new("e1").unwrap()).with_input(b"abc");
        let sha256 = Digest::of(b"abc").sha256;
        assert_eq!(
            json(&details),
            serde_json::json!({
                "shell": "make all", "cwd": "/src", "exec_id": "e1",
                "env": [
                    { "name": "A", "bytes": 1, "sha256": Digest::of(b"b").sha256 },
                    { "name": "KEY", "bytes": 6, "sha256": Digest::of(b"s3cr3t").sha256 },
                ],
                "input": { "bytes": 3, "sha256": sha256 },
            })
        );
    }

    #[test]
    fn an_edit_says_what_went_and_what_came() {
        let details = Details::path(&"f".into()).with_edit(b"oldnew!", 3);
        assert_eq!(
            json(&details),
            serde_json::json!({ "path": "f", "replaced": Digest::of(b"old"), "content": Digest::of(b"new!") })
        );
        // The length comes from the caller, and may be any number.
        assert_eq!(json(&Details::none().with_edit(b"old", u64::MAX))["content"]["bytes"], 0);
    }

    #[test]
    fn a_huge_command_line_has_a_short_target() {
        let huge = "x".repeat(1 << 20);
        for command in [Command::shell(huge.clone()), Command::argv(["echo", &huge])] {
            let details = Details::command(&command);
            assert!(details.target.len() < 5000, "{}", details.target.len());
            assert!(serde_json::to_vec(&details).unwrap().len() < 80 << 10);
        }
    }
}
