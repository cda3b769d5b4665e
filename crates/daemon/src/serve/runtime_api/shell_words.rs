//! Splitting a command line into words, as Python's `shlex.split` does: quotes and backslashes mean what they mean to a POSIX
//! shell, and everything else is literal.

/// The most words. The kernel refuses so many arguments; what a stranger sends must not take more memory than that.
const MOST: usize = 1 << 16;

/// Splits a command line.
///
/// # Errors
/// What is wrong with it, in the words of the stock runtime.
pub(super) fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    // None between words: an empty pair of quotes is a word too.
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(char) = rest.next() {
        match char {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().ok_or(UNCLOSED)? {
                        '\'' => break,
                        char => word.push(char),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().ok_or(UNCLOSED)? {
                        '"' => break,
                        '\\' => match rest.next().ok_or(UNESCAPED)? {
                            char @ ('"' | '\\') => word.push(char),
                            char => word.extend(['\\', char]),
                        },
                        char => word.push(char),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(rest.next().ok_or(UNESCAPED)?),
            char => word.get_or_insert_default().push(char),
        }
        if words.len() > MOST {
            return Err("Argument list too long");
        }
    }
    words.extend(word);
    Ok(words)
}

const UNCLOSED: &str = "No closing quotation";
const UNESCAPED: &str = "No escaped character";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_a_shell_would_and_nothing_is_expanded() {
        for (line, words) in [
            ("", &[][..]),
            (" \t\r\n", &[]),
            ("ls -l  /tmp", &["ls", "-l", "/tmp"]),
            ("echo 'a b' \"c d\"e", &["echo", "a b", "c de"]),
            ("'' \"\" a''", &["", "", "a"]),
            (r#""\$x \" \\ \n""#, &[r#"\$x " \ \n"#]),
            (r"a\ b \' '\'", &["a b", "'", r"\"]),
            ("echo $HOME | cat && x > y # z", &["echo", "$HOME", "|", "cat", "&&", "x", ">", "y", "#", "z"]),
            ("a\u{a0}b ü", &["a\u{a0}b", "ü"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line:?}");
        }
        for (line, error) in [("'a", UNCLOSED), ("\"a", UNCLOSED), ("a\\", UNESCAPED), ("\"a\\", UNESCAPED)] {
            assert_eq!(split(line).unwrap_err(), error, "{line:?}");
        }
        assert!(split(&"a ".repeat(1 << 18)).is_err());
    }

    /// Compared with the real thing, where there is one.
    #[test]
    fn python_splits_every_line_the_same_way() {
        const PROGRAM: &str = "import sys, json, shlex\n\
             def split(line):\n    try: return shlex.split(line)\n    except ValueError as error: return str(error)\n\
             print(json.dumps([split(line) for line in json.load(sys.stdin)]))";
        let alphabet: Vec<char> = " \t\na\\\"'$#é".chars().collect();
        let mut state: u64 = 7;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let lines: Vec<String> =
            (0..5_000).map(|_| (0..random(12)).map(|_| alphabet[random(alphabet.len())]).collect()).collect();
        let mut command = std::process::Command::new("python3");
        command.args(["-c", PROGRAM]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let Ok(mut python) = command.spawn() else { return };
        let sent = serde_json::to_vec(&lines).unwrap();
        std::io::Write::write_all(&mut python.stdin.take().unwrap(), &sent).unwrap();
        let answer = python.wait_with_output().unwrap();
        let theirs: Vec<serde_json::Value> = serde_json::from_slice(&answer.stdout).unwrap();
        for (line, theirs) in lines.iter().zip(theirs) {
            let ours = split(line).map_or_else(serde_json::Value::from, serde_json::Value::from);
            assert_eq!(ours, theirs, "{line:?}");
        }
    }
}
