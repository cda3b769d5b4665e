//! Rules on commands.

mod wrapped;

use std::cell::RefCell;
use std::collections::HashSet;

use super::shell::{self, ANY, Simple, Word};
use super::work::Work;
use wrapped::{REPEATED, WRAPPERS};

/// How rules are compared with commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Matching {
    /// Word by word, with each simple command of the line: see [`CommandRules`].
    #[default]
    Words,
    /// A rule denies every line that contains its text, as the replaced packages did. `rm  -rf` with two blanks passes it, and
    /// a file named `curl.txt` doesn't.
    Substring,
}

/// Commands that may not be run.
///
/// A rule is a command's name and more words: `rm -rf`, `git push --force`, `curl`. It denies a line in which any simple
/// command has that name and all those words, in any order: behind pipes, in substitutions and functions, after `env` and
/// `xargs`, in `sh -c '…'`. Short options count one by one: `rm -rf` denies `rm -r -f` and `rm -fr`. A word that is only
/// known when it runs may be any word. Variables that shells execute (`BASH_ENV`, `PS4`) can't be set. A line that can't be parsed, or in which the name of a command is only known
/// when it runs, is denied.
///
/// This is a guardrail, not a boundary: whoever may run any other program can do with it what these rules deny. The
/// boundary is the sandbox.
#[derive(Debug, Clone, Default)]
pub struct CommandRules {
    rules: Vec<Rule>,
    matching: Matching,
}

#[derive(Debug, Clone)]
struct Rule {
    text: String,
    words: Vec<String>,
}

/// Builtins whose arguments are assignments.
const DECLARATIONS: &[&str] = &["declare", "export", "local", "readonly", "typeset"];

/// Other builtins that set the variables they name.
const SETTERS: &[&str] = &["getopts", "let", "mapfile", "printf", "read", "readarray", "wait"];

/// Options of [`SETTERS`] that take a value other than a variable.
const VALUES: [char; 9] = ['C', 'c', 'd', 'i', 'N', 'n', 'p', 't', 'u'];

/// A command with more words than this isn't looked at.
const MOST_WORDS: usize = 4_096;

const SHELLS: &[&str] = &[
    "ash", "bash", "csh", "dash", "fish", "ksh", "ksh93", "lksh", "mksh", "oksh", "pdksh", "posh", "rbash", "rksh",
    "sh", "tcsh", "yash", "zsh",
];

impl CommandRules {
    /// Rules that deny.
    pub fn deny(rules: impl IntoIterator<Item = impl Into<String>>, matching: Matching) -> Self {
        let rule = |text: String| Rule { words: text.split_whitespace().map(str::to_owned).collect(), text };
        let rules = rules.into_iter().map(|text| rule(text.into())).filter(|rule| !rule.words.is_empty()).collect();
        Self { rules, matching }
    }

    /// Whether there is any rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Decides on a line for the shell.
    ///
    /// # Errors
    /// Why it is denied.
    pub fn check_line(&self, line: &[u8]) -> Result<(), String> {
        if self.is_empty() {
            return Ok(());
        }
        let Ok(line) = std::str::from_utf8(line) else {
            return Err("the line isn't UTF-8 and can't be checked against the command rules".to_owned());
        };
        match self.matching {
            Matching::Substring => self.check_text(line),
            Matching::Words => Check::new(&self.rules).script(line, 0),
        }
    }

    /// Decides on a program and its arguments.
    ///
    /// # Errors
    /// Why it is denied.
    pub fn check_argv<'a>(&self, words: impl IntoIterator<Item = &'a [u8]>) -> Result<(), String> {
        if self.is_empty() {
            return Ok(());
        }
        let words: Vec<_> = words.into_iter().map(String::from_utf8_lossy).collect();
        match self.matching {
            Matching::Substring => self.check_text(&words.join(" ")),
            Matching::Words => {
                let words: Vec<Word> = words.iter().map(|word| Word::literal(word)).collect();
                Check::new(&self.rules).command(&words, None, 0, Within::default())
            }
        }
    }

    /// Decides on the variables that a caller sets for a command, as on assignments in a line.
    ///
    /// # Errors
    /// Why they are denied.
    pub fn check_variables<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        if self.is_empty() || self.matching == Matching::Substring {
            return Ok(());
        }
        names.into_iter().try_for_each(shell::variable)
    }

    fn check_text(&self, text: &str) -> Result<(), String> {
        match self.rules.iter().find(|rule| text.contains(&rule.text)) {
            Some(rule) => Err(denied(rule)),
            None => Ok(()),
        }
    }
}

/// What the command being looked at is part of, whose words are looked at in any case.
#[derive(Debug, Clone, Copy, Default)]
struct Within {
    wrapper: bool,
    find: bool,
}

/// One decision. All that is nested in the line shares its bounds.
struct Check<'a> {
    rules: &'a [Rule],
    work: Work,
    /// Scripts that were looked at, or are being looked at: once is enough, however many shells are given one.
    seen: RefCell<HashSet<String>>,
}

impl<'a> Check<'a> {
    fn new(rules: &'a [Rule]) -> Self {
        Self { rules, work: Work::default(), seen: RefCell::default() }
    }

    fn script(&self, script: &str, depth: u32) -> Result<(), String> {
        check_depth(depth)?;
        // Finding it among those that were seen is work, too.
        self.work.spend(1 + script.len() / 64)?;
        if !self.seen.borrow_mut().insert(script.to_owned()) {
            return Ok(());
        }
        let commands = shell::commands(script, &self.work)
            .map_err(|why| format!("the line can't be checked against the command rules: {why}"))?;
        for Simple { words, input, pattern, .. } in &commands {
            if *pattern && !words[0].is_static() {
                continue;
            }
            self.command(words, input.as_ref(), depth, Within::default())?;
        }
        Ok(())
    }

    /// Decides on one command. Within a wrapper's words each is looked at in its turn, so that a second wrapper needs no
    /// further look.
    fn command(&self, words: &[Word], input: Option<&Word>, depth: u32, within: Within) -> Result<(), String> {
        if words.len() > MOST_WORDS {
            return Err(format!("a command in it has more than {MOST_WORDS} words and can't be checked"));
        }
        let Some((name, arguments)) = words.split_first() else { return Ok(()) };
        if !name.is_static() {
            return Err("the name of a command in it is known only at run time".to_owned());
        }
        self.work.spend(1 + self.rules.len() / 16)?;
        for rule in self.rules.iter().filter(|rule| rule.is_about(name)) {
            self.work.spend(arguments.len() * rule.words.len())?;
            if rule.matches(arguments) {
                return Err(denied(rule));
            }
        }
        let name = base(&name.text);
        if looks_at_arguments(name) {
            self.work.spend(cost(arguments))?;
        }
        match name {
            "eval" => self.joined(after_options(arguments), depth),
            "trap" => {
                let arguments = after_options(arguments);
                self.joined(&arguments[..arguments.len().min(1)], depth)
            }
            "alias" if arguments.iter().any(|word| word.text.contains(['=', ANY])) => {
                Err("it isn't clear what an aliased name runs".to_owned())
            }
            "hash" if has_option(arguments, 'p') => Err("it isn't clear what a hashed name runs".to_owned()),
            "." | "source" => match after_options(arguments).first() {
                Some(file) if is_plain_file(file) => Ok(()),
                _ => Err(format!("what '{name}' reads in it can't be checked")),
            },
            "mapfile" | "readarray" if has_option(arguments, 'C') => Err(format!("'{name} -C' evaluates its argument")),
            "compgen" | "complete" if has_option(arguments, 'C') || has_option(arguments, 'W') => {
                Err(format!("'{name}' evaluates its arguments"))
            }
            "bind" | "enable" | "fc" => Err(format!("it isn't clear what '{name}' runs")),
            _ if DECLARATIONS.contains(&name) && has_option(arguments, 'n') && name != "export" => {
                Err(format!("it isn't clear which variable a name that '{name}' makes stands for"))
            }
            _ if DECLARATIONS.contains(&name) => arguments.iter().try_for_each(|word| match may_declare(word) {
                true => Err(format!("'{name}' may set a variable that shells execute")),
                false => Ok(()),
            }),
            _ if SETTERS.contains(&name) && (name != "printf" || sets_variable(arguments)) => {
                match may_set(arguments, name) {
                    true => Err(format!("'{name}' may set a variable that shells execute")),
                    false => Ok(()),
                }
            }
            "find" => {
                let options = ["-exec", "-execdir", "-ok", "-okdir"];
                let surely = |word: &Word| options.contains(&word.text.as_str());
                // What is only known at run time may be one of them; then what follows has to be known.
                let maybe = |word: &Word| options.iter().any(|option| may_be(&word.text, option));
                let known = |index: usize| arguments.get(index).is_some_and(Word::is_static);
                let runs = |index: usize| surely(&arguments[index]) || maybe(&arguments[index]) && known(index + 1);
                let starts = (0..arguments.len()).filter(|&index| runs(index));
                // The commands of a `find` within a `find` are among those of the first.
                let starts = starts.take(if within.find { 0 } else { usize::MAX });
                let within = Within { find: true, ..within };
                starts.into_iter().try_for_each(|index| self.command(&arguments[index + 1..], None, depth, within))
            }
            _ if SHELLS.contains(&name) => self.shell(arguments, input, depth),
            _ if WRAPPERS.contains(&name) && (!within.wrapper || REPEATED.contains(&name)) => {
                self.wrapped(name, arguments, input, depth)
            }
            _ => Ok(()),
        }
    }

    fn joined(&self, words: &[Word], depth: u32) -> Result<(), String> {
        if words.iter().any(|word| !word.is_static()) {
            return Err("a command that it evaluates is known only at run time".to_owned());
        }
        let script: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        self.script(&script.join(" "), depth + 1)
    }

    fn shell(&self, arguments: &[Word], input: Option<&Word>, depth: u32) -> Result<(), String> {
        let option = |word: &Word| word.text.starts_with(['-', '+']) && word.text.len() > 1;
        let options = leading_options(arguments);
        if options.iter().any(|word| !word.is_static() && word.text.starts_with(['-', '+'])) {
            return Err("an option of a shell in it is known only at run time".to_owned());
        }
        let start_file = || Err("a shell in it reads a start file, which can't be checked".to_owned());
        let starts = ["--rcfile", "--init-file", "--rc", "--init"];
        if arguments.iter().any(|word| starts.iter().any(|start| word.text.starts_with(start))) {
            return start_file();
        }
        let takes_line = |word: &Word| {
            !word.text.starts_with("--") && option(word) && word.text.contains('c') || word.text == "--command"
        };
        if let Some(at) = arguments.iter().position(takes_line) {
            // `-o` takes a word of its own, and so do a few long options: what isn't the line is then checked as if it were.
            let operands = arguments[at + 1..].iter().filter(|word| !is_plain_option(&word.text));
            let values: usize = arguments.iter().map(values).sum();
            operands.take(1 + values).try_for_each(|line| self.joined(std::slice::from_ref(line), depth))?;
            if at < options.len() {
                return Ok(());
            }
        }
        if has_option(arguments, 'i') {
            return start_file();
        }
        let reads_input = has_option(arguments, 's') || arguments.iter().any(|word| word.text == "-");
        let file = arguments.iter().find(|word| !option(word) && word.text != "-");
        if let Some(file) = file.filter(|file| !is_plain_file(file)) {
            return match (file.text.as_str(), input) {
                ("/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0", Some(input)) => {
                    self.joined(std::slice::from_ref(input), depth)
                }
                _ => Err("a shell in it runs a file that is known only at run time".to_owned()),
            };
        }
        match (file, input) {
            (Some(_), _) if !reads_input => Ok(()),
            (_, Some(input)) => self.joined(std::slice::from_ref(input), depth),
            (None, None) if arguments.iter().any(|word| matches!(word.text.as_str(), "--version" | "--help")) => Ok(()),
            _ => Err("a shell in it takes its commands from its input, where they can't be checked".to_owned()),
        }
    }
}

/// What follows the options of a builtin.
fn after_options(words: &[Word]) -> &[Word] {
    let end = words.iter().position(|word| !word.text.starts_with('-') || word.text == "-").unwrap_or(words.len());
    let marked = words[..end].iter().position(|word| word.text == "--").map(|at| at + 1);
    &words[marked.unwrap_or(end)..]
}

/// Whether a short option is among a command's words, or may be.
fn has_option(words: &[Word], letter: char) -> bool {
    let sets = |word: &Word| {
        let text = word.text.as_str();
        text.starts_with(ANY) || text.starts_with('-') && !text.starts_with("--") && text.contains([letter, ANY])
    };
    words.iter().take_while(|word| word.text != "--").any(sets)
}

/// The options of a shell that come before everything else, with their values.
fn leading_options(words: &[Word]) -> &[Word] {
    let mut open = 0;
    let goes_on = |word: &Word| {
        let (is_value, is_option) = (open > 0, word.text.starts_with(['-', '+']));
        open = if is_value { open - 1 } else { values(word) };
        is_value || is_option
    };
    &words[..words.iter().map(goes_on).position(|goes_on| !goes_on).unwrap_or(words.len())]
}

/// How many words an option of a shell takes: one for each `o`.
fn values(word: &Word) -> usize {
    let short = word.text.starts_with(['-', '+']) && !word.text.starts_with("--");
    word.text.chars().filter(|letter| short && ['o', 'O'].contains(letter)).count()
}

/// Whether a word before a shell's line is an option, or ends them: `-`, `--`, `-e`, `+o`. After `--` the line itself may begin with
/// a `-`, but with nothing else of an option's it is only a command's name.
fn is_plain_option(word: &str) -> bool {
    word.starts_with(['-', '+']) && word.chars().skip(1).all(|c| c == '-' || c.is_ascii_alphanumeric())
}

/// Whether an argument of `declare` and the like may set one of [`shell::SETTINGS`].
fn may_declare(word: &Word) -> bool {
    let name = word.text.split(['=', '+', '[']).next().unwrap_or_default();
    match name.split_once(ANY) {
        // What isn't known may be the rest of the name, and its value.
        Some((start, _)) => shell::SETTINGS.iter().any(|setting| setting.starts_with(start)),
        None => shell::SETTINGS.contains(&name),
    }
}

/// Whether the words of `printf` begin with `-v`.
fn sets_variable(words: &[Word]) -> bool {
    words.first().is_some_and(|word| word.text.starts_with("-v"))
}

/// Whether arguments of `read` and the like may name one of [`shell::SETTINGS`], behind an option's letter too.
fn may_set(words: &[Word], name: &str) -> bool {
    // What follows the variable is text, or what is looked at.
    let words = if ["printf", "getopts"].contains(&name) { &words[..words.len().min(2)] } else { words };
    let numbers = ["let", "wait"].contains(&name);
    let sets = |(at, word): (usize, &Word)| {
        let target = word.text.split(['=', '+', '[']).next().unwrap_or_default();
        if word.text.starts_with('-') && shell::SETTINGS.iter().any(|setting| target.ends_with(setting)) {
            return true;
        }
        // A prompt, a limit and the like come after their letter.
        let value = at > 0 && words[at - 1].text.starts_with('-') && words[at - 1].text.ends_with(VALUES);
        may_declare(word) && (word.is_static() || !value && !numbers)
    };
    words.iter().enumerate().any(sets)
}

/// Whether a word names a file that is there before the line runs, as far as that can be told.
fn is_plain_file(word: &Word) -> bool {
    word.is_static() && !word.text.starts_with("/dev/") && !word.text.starts_with("/proc/")
}

impl Rule {
    /// Whether the rule is about the command of this name.
    fn is_about(&self, name: &Word) -> bool {
        let Some(wanted) = self.words.first() else { return false };
        if wanted.contains('/') { name.text == *wanted } else { base(&name.text) == wanted }
    }

    /// Whether these arguments make it the command that is denied.
    fn matches(&self, arguments: &[Word]) -> bool {
        let Some((name, words)) = self.words.split_first() else { return false };
        words.iter().all(|word| has(word, base(name), arguments))
    }
}

fn check_depth(depth: u32) -> Result<(), String> {
    match depth > 16 {
        true => Err("it is too deeply nested to be checked".to_owned()),
        false => Ok(()),
    }
}

/// Whether all arguments of a command are gone through.
fn looks_at_arguments(name: &str) -> bool {
    const BUILTINS: &[&str] = &[".", "alias", "compgen", "complete", "eval", "find", "hash", "source", "trap"];
    [BUILTINS, DECLARATIONS, SETTERS, SHELLS].iter().any(|names| names.contains(&name))
}

/// The work of going through words.
fn cost(words: &[Word]) -> usize {
    words.iter().map(|word| 1 + word.text.len() / 64).sum()
}

/// Whether a word of a rule is among the arguments, or may be.
fn has(wanted: &str, name: &str, arguments: &[Word]) -> bool {
    if arguments.iter().any(|word| may_be(&word.text, wanted)) {
        return true;
    }
    let letters = wanted.strip_prefix('-').filter(|letters| !letters.is_empty() && !letters.starts_with('-'));
    letters.is_some_and(|letters| letters.chars().all(|letter| arguments.iter().any(|word| sets(word, letter, name))))
}

/// Whether an argument sets an option of one letter.
fn sets(word: &Word, letter: char, name: &str) -> bool {
    let text = word.text.as_str();
    if may_be(text, &format!("-{letter}")) {
        return true;
    }
    if let Some(long) = text.strip_prefix("--") {
        // GNU programs take any beginning of a long option that is unambiguous.
        let full = match letter {
            'r' | 'R' => "recursive",
            'f' => "force",
            _ => return false,
        };
        return !long.is_empty() && full.starts_with(long);
    }
    let either =
        |c: char| c == letter || name == "rm" && letter.eq_ignore_ascii_case(&'r') && c.eq_ignore_ascii_case(&'r');
    text.starts_with('-') && text.chars().skip(1).any(|c| c == ANY || either(c))
}

/// Whether a word, parts of which can be anything, may be this text.
fn may_be(word: &str, text: &str) -> bool {
    let Some((first, rest)) = word.split_once(ANY) else { return word == text };
    let Some(mut left) = text.strip_prefix(first) else { return false };
    let mut parts = rest.split(ANY).collect::<Vec<_>>();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn denied(rule: &Rule) -> String {
    format!("the command rule {:?} denies it", rule.text)
}

#[cfg(test)]
mod tests;
