//! Command lines against rules.

use std::time::{Duration, Instant};

use podbay::policy::{CommandRules, Matching};

pub const SHELL: &[&str] = &[
    "curl",
    "echo",
    "rm -rf",
    " ",
    "\t",
    "\n",
    "\r",
    "\\\n",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "(",
    ")",
    "{ ",
    "; }",
    "$(",
    "`",
    "${",
    "}",
    "$((",
    "))",
    "'",
    "\"",
    "\\",
    "<<",
    "<<-",
    "EOF",
    "<<<",
    ">",
    ">&2",
    "{fd}>",
    "#",
    "if ",
    "; then ",
    "; fi",
    "case x in ",
    "esac",
    ";;",
    "for ",
    "do ",
    "done",
    "while ",
    "function f",
    "f()",
    "!",
    "time -p ",
    "coproc ",
    "env ",
    "env -S ",
    "sh -c ",
    "xargs ",
    "find -exec ",
    "env sh -s <<",
    "eval ",
    "trap ",
    "alias ",
    "A=b ",
    "$IFS",
    "$'\\x63'",
    "*",
    "[[",
    "]]",
    "é",
    "\0",
];

/// The longest decision. It takes milliseconds; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// A line for the shell: it is allowed or refused, and neither quotes nor anything after it lets a denied command pass.
///
/// # Panics
/// When a word that is quoted whole isn't taken as one word, or the answer depends on anything but the line, or
/// when it takes long.
pub fn command(data: &[u8]) {
    let rules = CommandRules::deny(["curl", "rm -rf"], Matching::Words);
    let begun = Instant::now();
    let verdict = rules.check_line(data);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert_eq!(verdict, rules.check_line(data));
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.contains('\0') {
        return;
    }
    let quoted = format!("'{}'", text.replace('\'', "'\\''"));
    assert!(rules.check_line(format!("curl {quoted}").as_bytes()).is_err(), "curl {quoted}");
    // Words that a shell would evaluate if it took them for numbers or assignments are denied wherever they stand.
    if !text.contains(['[', '$', '`', '=']) {
        assert_eq!(rules.check_line(format!("echo {quoted}").as_bytes()), Ok(()), "echo {quoted}");
    }
    // A complete line that is allowed stays complete: what follows is looked at.
    if verdict.is_ok() && !text.contains(['\\', '<', '#', '\'', '"', '`', '$', '(', '{']) {
        assert!(rules.check_line(format!("{text}\ncurl x").as_bytes()).is_err(), "{text:?}, then curl");
    }
}
