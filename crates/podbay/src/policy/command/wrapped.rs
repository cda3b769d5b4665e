//! Commands within the words of other programs: `env`, `xargs`, `timeout`.

use super::{ANY, Check, Within, Word, base, shell};

/// Programs that run the command in their arguments.
pub(super) const WRAPPERS: &[&str] = &[
    "builtin",
    "busybox",
    "catatonit",
    "choom",
    "chpst",
    "chronic",
    "chroot",
    "chrt",
    "command",
    "coreutils",
    "cpulimit",
    "dbus-run-session",
    "doas",
    "dumb-init",
    "eatmydata",
    "entr",
    "env",
    "exec",
    "faketime",
    "fakeroot",
    "firejail",
    "flock",
    "gdb",
    "gosu",
    "i386",
    "ionice",
    "linux32",
    "linux64",
    "ltrace",
    "nice",
    "nohup",
    "nsenter",
    "numactl",
    "parallel",
    "perf",
    "pkexec",
    "prlimit",
    "proxychains",
    "rlwrap",
    "runuser",
    "script",
    "sem",
    "setarch",
    "setpriv",
    "setsid",
    "sg",
    "ssh",
    "start-stop-daemon",
    "stdbuf",
    "strace",
    "su",
    "su-exec",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "tini",
    "torsocks",
    "toybox",
    "unbuffer",
    "unshare",
    "valgrind",
    "watch",
    "x86_64",
    "xargs",
    "xvfb-run",
];

/// Wrappers that add words of their own to the command.
const FEEDERS: &[&str] = &["parallel", "sem", "xargs"];

/// Wrappers that make other words of theirs, and are therefore looked at within the words of another, too.
pub(super) const REPEATED: &[&str] = &["env", "parallel", "sem", "xargs"];

/// A wrapper's own words, which come before the command.
struct Own {
    name: &'static str,
    /// Letters of options that take a word of their own.
    values: &'static str,
    /// Letters of options that take the rest of their word, or nothing.
    attached: &'static str,
    /// How many operands there are.
    operands: usize,
    /// Whether variables may be set.
    assigns: bool,
}

const fn own(name: &'static str, values: &'static str, operands: usize) -> Own {
    Own { name, values, attached: "", operands, assigns: false }
}

/// Wrappers of which it is known where the command begins. Behind the name of another one, every word has to be known.
const OWN: &[Own] = &[
    Own { assigns: true, ..own("env", "uCSa", 0) },
    Own { assigns: true, ..own("sudo", "ugphCDRrtTU", 0) },
    Own { attached: "eil", ..own("xargs", "adEILnPs", 0) },
    own("builtin", "", 0),
    own("busybox", "", 0),
    own("chrt", "TPD", 1),
    own("chronic", "", 0),
    own("command", "", 0),
    own("doas", "uCa", 0),
    own("eatmydata", "", 0),
    own("exec", "a", 0),
    own("flock", "wE", 1),
    own("gosu", "", 1),
    own("ionice", "cnpPu", 0),
    own("nice", "n", 0),
    own("nohup", "", 0),
    own("setsid", "", 0),
    own("stdbuf", "ioe", 0),
    own("strace", "abeEIoOpPsSuUX", 0),
    own("su-exec", "", 1),
    own("taskset", "", 1),
    own("time", "fo", 0),
    own("timeout", "ks", 1),
    own("toybox", "", 0),
    own("unbuffer", "", 0),
    own("valgrind", "", 0),
];

/// Long options of these wrappers that take no word of their own.
const FLAGS: &[&str] = &[
    "--exclusive",
    "--foreground",
    "--ignore-environment",
    "--no-run-if-empty",
    "--non-interactive",
    "--nonblock",
    "--null",
    "--portability",
    "--preserve-env",
    "--preserve-status",
    "--quiet",
    "--shared",
    "--unlock",
    "--verbose",
    "--wait",
];

/// Where the innermost command begins in the words of a wrapper, if that can be told.
fn command_at(name: &str, words: &[Word]) -> Option<usize> {
    let (mut name, mut at) = (name, 0);
    loop {
        at += own_words(name, words.get(at..)?)?;
        match words.get(at).filter(|word| word.is_static() && WRAPPERS.contains(&base(&word.text))) {
            Some(word) => (name, at) = (base(&word.text), at + 1),
            None => return Some(at),
        }
    }
}

/// How many of the words after a wrapper's name are its own.
fn own_words(name: &str, words: &[Word]) -> Option<usize> {
    let own = OWN.iter().find(|own| own.name == name)?;
    let mut at = 0;
    while let Some(option) = words.get(at).map(|word| word.text.as_str()).filter(|text| text.starts_with('-')) {
        at += 1;
        match option {
            "--" => break,
            _ if option.starts_with("--") && !option.contains('=') && !FLAGS.contains(&option) => return None,
            _ => at += usize::from(!option.starts_with("--") && takes_next(own, option)),
        }
    }
    while own.assigns && words.get(at).is_some_and(|word| word.text.contains('=')) {
        at += 1;
    }
    at += own.operands;
    // An option after an operand (`flock file -c …`).
    words.get(at).is_none_or(|word| !word.text.starts_with('-')).then_some(at)
}

/// Whether the last of an option's letters takes the next word.
fn takes_next(own: &Own, option: &str) -> bool {
    let mut letters = option.chars().skip(1);
    let first = letters.find(|letter| own.values.contains(*letter) || own.attached.contains(*letter));
    first.is_some_and(|letter| own.values.contains(letter)) && letters.next().is_none()
}

/// Whether a word assigns something to a variable that is known, and stays one word.
fn assigns(word: &Word) -> bool {
    let name = word.text.split('=').next().unwrap_or_default();
    word.text.contains('=') && !name.starts_with('-') && !name.contains(ANY) && !word.splits
}

impl Check<'_> {
    /// The command may begin at any of the wrapper's words.
    pub(super) fn wrapped(&self, name: &str, words: &[Word], input: Option<&Word>, depth: u32) -> Result<(), String> {
        super::check_depth(depth)?;
        self.work.spend(super::cost(words))?;
        let mut words = words.to_vec();
        if FEEDERS.contains(&name) {
            words = with_placeholders(name, &words);
            // Without a command, xargs runs echo.
            if name != "xargs" || own_words(name, &words).is_none_or(|at| at < words.len()) {
                words.push(Word::literal(&ANY.to_string()));
            }
        }
        let command = command_at(name, &words);
        let before = |at: usize| command.is_none_or(|command| at <= command);
        if let Some(at) = (0..words.len()).find(|at| before(*at) && !words[*at].is_static() && !assigns(&words[*at])) {
            let what = if words[at].text.starts_with('-') { "an option of" } else { "the command after" };
            return Err(format!("{what} '{name}' is known only at run time"));
        }
        for (at, word) in words.iter().enumerate() {
            let variable = word.text.split('=').next().unwrap_or_default();
            shell::variable(variable)?;
            if !word.is_static() {
                continue;
            }
            if name == "env"
                && before(at)
                && let Some((script, next)) = split_string(&words, at)
            {
                let mut split = self.split(script)?;
                split.extend_from_slice(words.get(next..).unwrap_or_default());
                return self.wrapped("env", &split, input, depth + 1);
            }
            // `watch 'rm -rf x'`, `script '-crm -rf x'`, `su '--command=rm -rf x'`.
            for script in scripts(&word.text) {
                self.script(script, depth + 1)?;
            }
            if word.text.starts_with('-') || word.text.contains('=') {
                continue;
            }
            self.command(&words[at..], input, depth + 1, Within { wrapper: true, find: false })?;
        }
        Ok(())
    }

    /// The words of what `env -S` splits.
    fn split(&self, script: Option<&str>) -> Result<Vec<Word>, String> {
        let plain = script.filter(|script| !script.contains(['\'', '"', '\\', '$', '#', ANY]));
        let Some(plain) = plain else {
            return Err("'env' splits a word in it by rules of its own (env -S)".to_owned());
        };
        self.work.spend(plain.len())?;
        Ok(plain.split_whitespace().map(Word::literal).collect())
    }
}

/// What `env -S` splits if the option at this place may be that one, and where its words go on.
fn split_string(words: &[Word], at: usize) -> Option<(Option<&str>, usize)> {
    let text = words[at].text.as_str();
    let next = || (words.get(at + 1).map(|word| word.text.as_str()), at + 2);
    if let Some(long) = text.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let abbreviated = !name.is_empty() && "split-string".starts_with(name);
        return abbreviated.then(|| value.map_or_else(next, |value| (Some(value), at + 1)));
    }
    let (_, attached) = text.strip_prefix('-')?.split_once('S')?;
    Some(if attached.is_empty() { next() } else { (Some(attached), at + 1) })
}

/// Where a word of a wrapper may be a line of its own, behind an option's letter or name too.
fn scripts(word: &str) -> Vec<&str> {
    let mut scripts = Vec::new();
    if word.contains(char::is_whitespace) {
        scripts.push(word);
        scripts.extend(word.split_once('=').map(|(_, value)| value));
    }
    if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.starts_with('-')) {
        scripts.extend(letters.split_once(['S', 'c']).map(|(_, script)| script));
    } else if let Some((_, value)) = word.strip_prefix("--").and_then(|option| option.split_once('=')) {
        scripts.push(value);
    }
    scripts
}

/// The words of `xargs` or `parallel`, in which what they put other words in place of can be anything.
fn with_placeholders(name: &str, words: &[Word]) -> Vec<Word> {
    let mut places = vec!["{}".to_owned()];
    let mut rest = Vec::with_capacity(words.len());
    let mut unknown = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        let place = ["--replace=", "-I", "-i"].iter().find_map(|option| text.strip_prefix(option));
        match place {
            Some("") if text == "-I" => {
                let next = words.next();
                unknown |= next.is_some_and(Word::is_unknown);
                places.extend(next.map(|next| next.text.clone()));
            }
            Some(place) => {
                unknown |= word.is_unknown();
                places.push(place.to_owned());
            }
            None => rest.push(word.clone()),
        }
    }
    places.retain(|place| !place.is_empty());
    for word in &mut rest {
        let replaced = unknown || places.iter().any(|place| word.text.contains(place.as_str()));
        if replaced || name != "xargs" && word.text.contains('{') {
            word.text = ANY.to_string();
        }
    }
    rest
}
