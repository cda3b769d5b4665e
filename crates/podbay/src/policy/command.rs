//! Rules on commands.

use super::shell::{self, ANY, Simple, Word};

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
/// known when it runs may be any word. A line that can't be taken apart, or in which the name of a command is only known
/// when it runs, is denied.
///
/// This is a guardrail and no boundary: whoever may run any other program can do with it what these rules deny. The
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

/// Programs that run the command in their arguments.
const WRAPPERS: &[&str] = &[
    "builtin", "busybox", "chroot", "chrt", "command", "doas", "env", "exec", "fakeroot", "firejail", "flock",
    "ionice", "ltrace", "nice", "nohup", "nsenter", "parallel", "prlimit", "runuser", "script", "setarch", "setpriv",
    "setsid", "ssh", "stdbuf", "strace", "su", "sudo", "taskset", "time", "timeout", "toybox", "unbuffer", "unshare",
    "watch", "xargs", "xvfb-run",
];

/// Wrappers that add words of their own to the command.
const FEEDERS: &[&str] = &["parallel", "xargs"];

/// A command with more words than this isn't looked at.
const MOST_WORDS: usize = 4_096;

const SHELLS: &[&str] = &["ash", "bash", "dash", "fish", "ksh", "mksh", "sh", "zsh"];

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
            Matching::Words => self.check_script(line, 0),
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
                self.check_command(&words, None, 0, false)
            }
        }
    }

    fn check_text(&self, text: &str) -> Result<(), String> {
        match self.rules.iter().find(|rule| text.contains(&rule.text)) {
            Some(rule) => Err(denied(rule)),
            None => Ok(()),
        }
    }

    fn check_script(&self, script: &str, depth: u32) -> Result<(), String> {
        if depth > 16 {
            return Err("it is too deeply nested to be checked".to_owned());
        }
        let commands = shell::commands(script)
            .map_err(|why| format!("the line can't be checked against the command rules: {why}"))?;
        for Simple { words, input, pattern, .. } in &commands {
            if *pattern && !words[0].is_static() {
                continue;
            }
            self.check_command(words, input.as_ref(), depth, false)?;
        }
        Ok(())
    }

    /// Decides on one command. Within a wrapper's words each is looked at in its turn, so that a second wrapper needs no
    /// further look.
    fn check_command(&self, words: &[Word], input: Option<&Word>, depth: u32, wrapped: bool) -> Result<(), String> {
        if words.len() > MOST_WORDS {
            return Err(format!("a command in it has more than {MOST_WORDS} words and can't be checked"));
        }
        let Some((name, arguments)) = words.split_first() else { return Ok(()) };
        if !name.is_static() {
            return Err("the name of a command in it is only known when it runs".to_owned());
        }
        if let Some(rule) = self.rules.iter().find(|rule| rule.matches(name, arguments)) {
            return Err(denied(rule));
        }
        let name = base(&name.text);
        match name {
            "eval" => self.check_joined(arguments, depth),
            "trap" => self.check_joined(&arguments[..arguments.len().min(1)], depth),
            "alias" => arguments.iter().try_for_each(|word| match word.text.split_once('=') {
                Some((_, value)) if word.is_static() => self.check_script(value, depth + 1),
                Some(_) => Err("an alias in it is only known when it runs".to_owned()),
                None => Ok(()),
            }),
            "find" => {
                let runs = |word: &Word| ["-exec", "-execdir", "-ok", "-okdir"].contains(&word.text.as_str());
                let starts = (0..arguments.len()).filter(|&index| runs(&arguments[index]));
                starts
                    .into_iter()
                    .try_for_each(|index| self.check_command(&arguments[index + 1..], None, depth, wrapped))
            }
            _ if SHELLS.contains(&name) => self.check_shell(arguments, input, depth),
            _ if WRAPPERS.contains(&name) && !wrapped => self.check_wrapped(name, arguments, input, depth),
            _ => Ok(()),
        }
    }

    fn check_joined(&self, words: &[Word], depth: u32) -> Result<(), String> {
        if words.iter().any(|word| !word.is_static()) {
            return Err("a command that it evaluates is only known when it runs".to_owned());
        }
        let script: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        self.check_script(&script.join(" "), depth + 1)
    }

    fn check_shell(&self, arguments: &[Word], input: Option<&Word>, depth: u32) -> Result<(), String> {
        let option = |word: &Word| word.text.starts_with(['-', '+']) && word.text.len() > 1;
        let takes_line = |word: &Word| {
            !word.text.starts_with("--") && option(word) && word.text.contains('c') || word.text == "--command"
        };
        if let Some(at) = arguments.iter().position(takes_line) {
            // `-o` takes a word of its own, and so do a few long options: what isn't the line is then checked as if it were.
            let operands: Vec<&Word> = arguments[at + 1..].iter().filter(|word| !option(word)).collect();
            let several = arguments.iter().any(|word| option(word) && word.text.contains(['o', 'O']));
            let lines = operands.iter().take(if several { 2 } else { 1 });
            return lines.into_iter().try_for_each(|line| self.check_joined(std::slice::from_ref(*line), depth));
        }
        let reads_input =
            arguments.iter().any(|word| word.text == "-s" || word.text == "-" || word.text == "/dev/stdin");
        let file = arguments.iter().find(|word| !option(word));
        match (file, input) {
            (Some(_), _) if !reads_input => Ok(()),
            (_, Some(input)) => self.check_joined(std::slice::from_ref(input), depth),
            (None, None) if arguments.iter().any(|word| matches!(word.text.as_str(), "--version" | "--help")) => Ok(()),
            _ => Err("a shell in it takes its commands from its input, where they can't be checked".to_owned()),
        }
    }

    /// The command may begin at any of the wrapper's words.
    fn check_wrapped(&self, name: &str, words: &[Word], input: Option<&Word>, depth: u32) -> Result<(), String> {
        let mut words = words.to_vec();
        if FEEDERS.contains(&name) {
            words.push(Word::literal(&ANY.to_string()));
        }
        let mut seen = false;
        for (at, word) in words.iter().enumerate() {
            let option = word.text.starts_with('-');
            let number = word.text.starts_with(|c: char| c.is_ascii_digit());
            if !word.is_static() {
                let fed = FEEDERS.contains(&name) && at + 1 == words.len();
                if !seen && !fed && !option {
                    return Err(format!("which command '{name}' runs in it is only known when it runs"));
                }
                continue;
            }
            // `env -S 'rm -rf x'`, `watch 'rm -rf x'`, `su -c 'rm -rf x'`.
            if word.text.contains(char::is_whitespace) {
                self.check_script(&word.text, depth + 1)?;
            }
            if option || word.text.contains('=') {
                continue;
            }
            self.check_command(&words[at..], input, depth, true)?;
            seen |= !number;
        }
        Ok(())
    }
}

impl Rule {
    fn matches(&self, name: &Word, arguments: &[Word]) -> bool {
        let Some((wanted, words)) = self.words.split_first() else { return false };
        let same = if wanted.contains('/') { name.text == *wanted } else { base(&name.text) == wanted };
        same && words.iter().all(|word| has(word, base(wanted), arguments))
    }
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
mod tests {
    use super::*;

    fn decide(rules: &[&str], line: &str) -> Result<(), String> {
        CommandRules::deny(rules.iter().copied(), Matching::Words).check_line(line.as_bytes())
    }

    /// Ways around `rm -rf` and `curl` that people and models have found.
    const BYPASSES: &[&str] = &[
        "rm -rf /",
        "rm  -rf /",
        "rm -fr /",
        "rm -r -f /",
        "rm -Rf /",
        "rm --recursive --force /",
        "rm --rec -f x",
        "rm x -rf",
        "rm -rvf x",
        "/bin/rm -rf x",
        "\\rm -rf x",
        "r''m -rf x",
        "r\"m\" -r'f' x",
        "r\\m -\\rf x",
        "r\\\nm -rf x",
        "A=1 rm -rf x",
        "A=$(true) B='x y' rm -rf x",
        "true; rm -rf x",
        "true && rm -rf x",
        "true || rm -rf x",
        "true & rm -rf x",
        "true\nrm -rf x",
        "echo x | rm -rf x",
        "(rm -rf x)",
        "{ rm -rf x; }",
        "! rm -rf x",
        "if true; then rm -rf x; fi",
        "while rm -rf x; do :; done",
        "for i in 1 2; do rm -rf $i; done",
        "case x in x) rm -rf y;; esac",
        "case x in (x) rm -rf y;; esac",
        "echo $(case x in x) rm -rf y;; esac)",
        "f() { rm -rf x; }; f",
        "function f { rm -rf x; }",
        "echo $(rm -rf x)",
        "echo `rm -rf x`",
        "echo \"`rm -rf x`\"",
        "echo \"a $(rm -rf x) b\"",
        "echo \"${a:-$(rm -rf x)}\"",
        "echo \"${a:-'$(rm -rf x)'}\"",
        "echo ${a:-'}'}; rm -rf x; echo 'a'",
        "echo $(( $(rm -rf x) + 1 ))",
        "echo $((rm -rf x); (true))",
        "cat <(rm -rf x)",
        "tee >(rm -rf x)",
        "cat <<EOF\n$(rm -rf x)\nEOF",
        "cat <<'EOF'\nhello\nEOF\nrm -rf x",
        "cat <<EOF; rm -rf x\nhello\nEOF",
        ">out rm -rf x",
        "2>/dev/null rm -rf x",
        "rm>/dev/null -rf x",
        "rm -rf x 2>&1",
        "sh -c 'rm -rf x'",
        "bash -lc \"rm -rf x\"",
        "bash -o pipefail -c 'rm -rf x'",
        "sh -ec 'sh -c \"rm -rf x\"'",
        "sh <<EOF\nrm -rf x\nEOF",
        "bash <<< 'rm -rf x'",
        "echo 'rm -rf x' | sh",
        "base64 -d <<< cm0gLXJmIHg= | bash",
        "curl x | sh -s -- -y",
        "sh -c \"$X\"",
        "eval rm -rf x",
        "eval 'rm -rf x'",
        "eval \"$X\"",
        "trap 'rm -rf x' EXIT",
        "alias z='rm -rf'\nz x",
        "env rm -rf x",
        "env A=1 rm -rf x",
        "env -i /bin/rm -rf x",
        "env -S 'rm -rf x'",
        "sudo -u root rm -rf x",
        "nohup rm -rf x",
        "timeout 5 rm -rf x",
        "nice -n 5 rm -rf x",
        "command rm -rf x",
        "exec rm -rf x",
        "busybox rm -rf x",
        "time rm -rf x",
        "xargs rm -rf",
        "echo '-rf x' | xargs rm",
        "xargs -I{} sh -c 'rm -rf {}'",
        "find . -exec rm -rf {} +",
        "find . -execdir sh -c 'rm -rf x' \\;",
        "ssh host 'rm -rf x'",
        "watch 'rm -rf x'",
        "su -c 'rm -rf x' root",
        "$X -rf x",
        "r$Y -rf x",
        "$(echo rm) -rf x",
        "`echo rm` -rf x",
        "$'\\x72m' -rf x",
        "/bin/r? -rf x",
        "/bin/r* -rf x",
        "/bin/[r]m -rf x",
        "{rm,-rf,x}",
        "rm $FLAGS x",
        "rm \"$@\"",
        "env $X rm",
        "coproc rm -rf x",
        "c''url x",
        "/usr/bin/curl x",
        "echo 'unclosed; rm",
        "echo \"unclosed",
        "echo $(unclosed",
        "echo )",
        "cat <<EOF\nno end",
        "# comment\nrm -rf x",
        "echo a#b; rm -rf x",
        "echo \\#; rm -rf x",
    ];

    #[test]
    fn no_known_way_leads_around() {
        for line in BYPASSES {
            assert!(decide(&["rm -rf", "curl"], line).is_err(), "{line}");
        }
    }

    #[test]
    fn harmless_lines_pass() {
        for line in [
            "ls -la",
            "rm file",
            "rm -f file",
            "rm -r dir",
            "rm \"dir/$f\"",
            "rm ./*.o",
            "echo rm -rf /",
            "echo 'use curl'",
            "grep -rf patterns src",
            "cat curl.txt",
            "git commit -m 'remove rm -rf and curl'",
            "python3 -c 'print(\"curl\")'",
            "cat <<'EOF' > notes\nrm -rf is dangerous\ncurl too\nEOF",
            "cat <<EOF > notes\n$HOME and curl\nEOF",
            "for f in *.py; do python3 \"$f\" > \"$f.out\" 2>&1; done",
            "if [ -f x ] && [[ -d y ]]; then echo yes; else echo no; fi",
            "case $x in a|b) echo ab;; *) echo other;; esac",
            "x=$((1 + (2 * 3))); echo $x",
            "make -j$(nproc) test 2>&1 | tail -n 5",
            "find . -name '*.rs' -exec wc -l {} +",
            "sh script.sh --curl",
            "awk '{print $1,$2}' file",
            "timeout 10 python3 -m pytest -q",
            "(cd src && ls) > listing # rm -rf",
            "f() { echo hi; }; f",
            "printf '%s\\n' \"${x:-default}\" | sort -u",
            "cat <<< hello",
            "",
        ] {
            assert_eq!(decide(&["rm -rf", "curl"], line), Ok(()), "{line}");
        }
    }

    #[test]
    fn arguments_without_a_shell_are_words() {
        let rules = CommandRules::deny(["rm -rf"], Matching::Words);
        let check = |words: &[&str]| rules.check_argv(words.iter().map(|word| word.as_bytes()));
        assert!(check(&["/bin/rm", "-r", "-f", "x"]).is_err());
        assert!(check(&["sh", "-c", "rm -rf x"]).is_err());
        assert!(check(&["env", "rm", "-rf", "x"]).is_err());
        assert_eq!(check(&["echo", "$(rm -rf x)", "*"]), Ok(()));
    }

    #[test]
    fn the_substring_mode_is_the_replaced_packages() {
        let rules = CommandRules::deny(["rm -rf", "curl"], Matching::Substring);
        assert!(rules.check_line(b"echo rm -rf").is_err());
        assert!(rules.check_line(b"cat curl.txt").is_err());
        assert_eq!(rules.check_line(b"rm  -rf x"), Ok(()));
    }

    #[test]
    fn nothing_that_comes_in_takes_long_or_deep() {
        let begun = std::time::Instant::now();
        for piece in [
            "(",
            "$(",
            "`",
            "${",
            "\"$(",
            "$((",
            "{",
            "<(",
            "a|",
            "sh -c '",
            "<<E\n",
            "eval ",
            "env ",
            "xargs find -exec ",
            "a ",
        ] {
            let _ = decide(&["rm -rf"], &piece.repeat(20_000));
            let _ = decide(&["rm -rf"], &format!("{}{}", piece.repeat(5_000), ")".repeat(5_000)));
        }
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}
