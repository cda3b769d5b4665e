//! The simple commands of a shell line, wherever they occur: in lists, pipes, groups, functions and substitutions.
//!
//! This isn't a shell parser but a scanner that must never overlook a command. A syntax tree has many corners in which one
//! can hide (defaults of parameters, arithmetic, here-documents); here every substitution is followed where it is met, and
//! every word knows which of its parts are only decided when it runs. What isn't understood is an error, and the caller
//! denies it. brush-parser, a well-maintained parser, was considered: it adds some thirty crates and process-wide caches, and
//! its tree would still have to be searched corner by corner.

mod word;

use super::work::Work;

/// What stands for any text in a [`Word`]: no command line can contain it.
pub(super) const ANY: char = '\0';

/// A line longer than this isn't parsed.
const LONGEST: usize = 256 << 10;

/// Commands nested deeper than this aren't parsed.
const DEEPEST: usize = 40;

/// Variables whose value shells run, read commands from, or take as the meaning of a command's name.
pub(super) const SETTINGS: &[&str] = &[
    "BASH_ALIASES",
    "BASH_CMDS",
    "BASH_ENV",
    "BASHOPTS",
    "ENV",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "SHELLOPTS",
    "ZDOTDIR",
];

/// Decides on a variable that is set.
///
/// # Errors
/// When shells run its value.
pub(super) fn variable(name: &str) -> Result<(), String> {
    match SETTINGS.contains(&name) || name.starts_with("BASH_FUNC_") {
        true => Err(format!("a shell may run what {name} is set to")),
        false => Ok(()),
    }
}

/// One word, unquoted. [`ANY`] stands in it for what is only known when it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Whether any part was quoted: then it is no keyword and no assignment.
    quoted: bool,
    /// Whether it may become several words when it runs.
    pub(super) splits: bool,
}

impl Word {
    /// A word that is taken as it stands.
    pub(super) fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), quoted: true, splits: false }
    }

    /// Whether all of it is known.
    pub(super) fn is_static(&self) -> bool {
        !self.text.contains(ANY)
    }

    /// Whether what isn't known of it is only known when it runs, and not just a `{}` in it.
    pub(super) fn is_unknown(&self) -> bool {
        !self.is_static() && (self.quoted || self.splits)
    }

    /// Whether bash runs a command in it where it makes a number of it, though it is quoted: `a[$(command)]`.
    fn evaluates(&self) -> bool {
        let named =
            |(at, _): &(usize, &str)| self.text[..*at].ends_with(|c: char| c == '_' || c.is_ascii_alphanumeric());
        let first = self.text.match_indices('[').find(named).map(|(at, _)| &self.text[at..]);
        first.is_some_and(|rest| ["$(", "`", "${"].iter().any(|begin| rest.contains(begin)))
    }

    fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }

    fn is_assignment(&self) -> bool {
        let Some((name, _)) = self.text.split_once('=') else { return false };
        let name = name.strip_suffix('+').unwrap_or(name);
        let legal = |(index, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || index > 0 && c.is_ascii_digit();
        !name.is_empty() && name.chars().enumerate().all(legal)
    }
}

/// One command with its words.
#[derive(Debug, Clone, Default)]
pub(super) struct Simple {
    pub(super) words: Vec<Word>,
    /// What it gets as input in the line itself: here-documents and here-strings.
    pub(super) input: Option<Word>,
    /// It is the pattern of a `case`, not a command.
    pub(super) pattern: bool,
    documents: Vec<usize>,
    /// Whether its input may be something else than its here-document: a file, or what it had before.
    other_input: bool,
    /// The descriptor that is written before a redirection.
    descriptor: Option<String>,
    /// How many words stand before its first redirection.
    redirected: Option<usize>,
    /// How many words stand before a `&>`.
    both: Option<usize>,
    /// Whether a `|` stands before it, which may also be part of a pattern.
    piped: bool,
}

/// All commands of a line, or why they can't be told.
pub(super) fn commands(line: &str, work: &Work) -> Result<Vec<Simple>, String> {
    scan(line, 0, work)
}

fn scan(line: &str, depth: usize, work: &Work) -> Result<Vec<Simple>, String> {
    if depth > DEEPEST || line.len() > LONGEST {
        return Err("it is too long or too deeply nested to be checked".to_owned());
    }
    if line.contains(ANY) {
        return Err("it contains a NUL byte".to_owned());
    }
    let mut scanner = Scanner::new(line, depth, work)?;
    scanner.list(None)?;
    let bodies = scanner.bodies;
    for simple in &mut scanner.found {
        if let Some(last) = simple.documents.last() {
            let known = simple.documents.len() == 1 && !simple.other_input;
            simple.input =
                if known { bodies.get(*last).cloned().flatten() } else { Some(Word::literal(&ANY.to_string())) };
        }
    }
    Ok(scanner.found)
}

struct Scanner<'a> {
    work: &'a Work,
    chars: Vec<char>,
    at: usize,
    depth: usize,
    found: Vec<Simple>,
    bodies: Vec<Option<Word>>,
    /// Here-documents whose bodies come after the next line end: which, their end, whether it was quoted, tabs cut.
    waiting: Vec<(usize, String, bool, bool)>,
}

impl<'a> Scanner<'a> {
    fn new(text: &str, depth: usize, work: &'a Work) -> Result<Self, String> {
        work.spend(text.len())?;
        let chars = text.chars().collect();
        Ok(Self { work, chars, at: 0, depth, found: Vec::new(), bodies: Vec::new(), waiting: Vec::new() })
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Reads commands up to the closing character, or the end.
    fn list(&mut self, close: Option<char>) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("it is too deeply nested to be checked".to_owned());
        }
        let mut current = Simple::default();
        let mut cases = 0_usize;
        loop {
            let Some(c) = self.peek(0) else {
                self.flush(&mut current, &mut cases)?;
                self.depth -= 1;
                return match close {
                    None if self.waiting.is_empty() => Ok(()),
                    None => Err("a here-document isn't terminated".to_owned()),
                    Some(close) => Err(format!("a '{close}' is missing")),
                };
            };
            match c {
                ' ' | '\t' => self.at += 1,
                '\\' if self.peek(1) == Some('\n') => self.continuation()?,
                '#' => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                '\n' => {
                    self.at += 1;
                    let piped = current.piped && current.words.is_empty();
                    self.flush(&mut current, &mut cases)?;
                    current.piped = piped;
                    self.documents()?;
                }
                '&' if self.peek(1) == Some('>') => self.redirection(&mut current)?,
                ';' | '&' | '|' => {
                    self.at += 1;
                    self.flush(&mut current, &mut cases)?;
                    current.piped = c == '|';
                }
                '(' => {
                    if self.peek(1) == Some('(') {
                        self.no_shift()?;
                    }
                    let array = self.at > 0 && self.chars[self.at - 1] == '=';
                    // `@(…)` and what follows `=~` in `[[ … ]]`: there nothing is a comment or a redirection.
                    let glued = self.at > 0 && !self.chars[self.at - 1].is_whitespace();
                    let keyword = |word: &Word| word.is("for") || begins(word) && !(glued && word.is("!"));
                    let pattern = !array && current.words.last().is_some_and(|word| !keyword(word));
                    self.at += 1;
                    let start = self.at;
                    self.flush(&mut current, &mut cases)?;
                    self.list(Some(')'))?;
                    if pattern && self.chars[start..self.at].iter().any(|c| "#<>".contains(*c)) {
                        return Err("it isn't clear whether parentheses in it are a pattern's".to_owned());
                    }
                    // For bash the word goes on, and what looks like a comment or a command is part of it.
                    if array && self.peek(0).is_some_and(|c| !" \t\n;&|)<>".contains(c)) {
                        return Err("something follows a ')' without a blank".to_owned());
                    }
                }
                ')' => {
                    self.at += 1;
                    let before = cases;
                    current.pattern = cases > 0;
                    self.flush(&mut current, &mut cases)?;
                    // The end of a pattern, unless `esac` stands before it or there is no `case`.
                    if cases > 0 && cases >= before {
                        continue;
                    }
                    if cases > 0 || close != Some(')') {
                        return Err("a ')' has no matching '('".to_owned());
                    }
                    self.depth -= 1;
                    return Ok(());
                }
                '<' | '>' if self.peek(1) != Some('(') => self.redirection(&mut current)?,
                _ => {
                    let word = self.word()?;
                    let named = |text: &str| text.starts_with('{') && text.ends_with('}');
                    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
                    let descriptor = !word.quoted && (number(&word.text) || named(&word.text));
                    if !(descriptor && matches!(self.peek(0), Some('<' | '>')) && self.peek(1) != Some('(')) {
                        current.words.push(word);
                    } else {
                        current.descriptor = Some(word.text);
                    }
                }
            }
        }
    }

    /// Backslash and line end, which a shell takes out before it looks for anything else. Between two words that is easy; where
    /// it may tear an operator or a name apart, it isn't followed.
    fn continuation(&mut self) -> Result<(), String> {
        let before = self.at.checked_sub(1).and_then(|at| self.chars.get(at)).copied();
        let after = self.peek(2);
        let plain = |c: Option<char>| c.is_none_or(|c| c.is_alphanumeric() || " \t\n-_./,:=\"'".contains(c));
        // `\\` before it may be an escaped backslash or not.
        if !plain(before) || !(plain(after) || matches!(before, None | Some(' ' | '\t' | '\n'))) {
            return Err("an operator in it continues on another line".to_owned());
        }
        self.at += 2;
        Ok(())
    }

    /// A `((`: two groups, or arithmetic, in which `<<` is no here-document.
    fn no_shift(&self) -> Result<(), String> {
        let mut open = 0_usize;
        for at in self.at..self.chars.len() {
            match (self.chars[at], self.chars.get(at + 1)) {
                ('<', Some('<')) => return Err("'<<' in it may be a shift or a here-document".to_owned()),
                ('(', _) => open += 1,
                (')', _) => open = open.saturating_sub(1),
                _ => {}
            }
            if open == 0 && at > self.at {
                return self.work.spend(at - self.at);
            }
        }
        Err("a ')' is missing".to_owned())
    }

    /// A command is complete: what stands before its name goes.
    fn flush(&mut self, current: &mut Simple, cases: &mut usize) -> Result<(), String> {
        let mut simple = std::mem::take(current);
        if let Some(word) = simple.words.iter().find(|word| word.evaluates()) {
            return Err(format!("'{}' runs a command when it is evaluated as a number", word.text.replace(ANY, "…")));
        }
        let mut words = std::mem::take(&mut simple.words).into_iter().peekable();
        let others = ["case", "esac", "for", "select", "function", "coproc"];
        let keyword = |word: &Word| begins(word) || others.iter().any(|keyword| word.is(keyword));
        let mut count = words.len();
        if simple.both.is_some_and(|before| before < count) {
            return Err("words follow '&>', which ends the command in some shells".to_owned());
        }
        let mut assigned = false;
        loop {
            let at = count - words.len();
            let Some(word) = words.peek() else { break };
            if simple.redirected.is_some_and(|before| before <= at) && keyword(word) {
                return Err("a keyword follows a redirection".to_owned());
            }
            if word.is("coproc") {
                return Err("it isn't clear what 'coproc' runs".to_owned());
            }
            if word.is_assignment() {
                assigned = true;
                let name = word.text.split_once('=').map_or("", |(name, _)| name);
                variable(name.trim_end_matches('+'))?;
            } else if assigned && keyword(word) {
                return Err("a keyword follows an assignment".to_owned());
            }
            if word.is("time") {
                words.next();
                while words.next_if(|word| word.text.starts_with('-')).is_some() {}
                continue;
            }
            if word.is("for") || word.is("select") {
                let mut list: Vec<Word> = words.by_ref().collect();
                if !is_followed_by_body(&list)? {
                    break;
                }
                words = list.split_off(3).into_iter().peekable();
                count = words.len() + at + 3;
                continue;
            }
            let (opens, closes) = (word.is("case"), word.is("esac"));
            if closes && simple.piped {
                return Err("it isn't clear whether 'esac' is a pattern".to_owned());
            }
            if opens {
                let rest: Vec<Word> = words.by_ref().collect();
                check_case(&rest)?;
                words = rest.into_iter().peekable();
                *cases += 1;
                break;
            }
            if word.is("function") {
                words.next();
                words.next();
            } else if closes || begins(word) || word.is_assignment() {
                *cases = cases.saturating_sub(usize::from(closes));
                words.next();
            } else {
                break;
            }
        }
        simple.words = words.collect();
        if !simple.words.is_empty() {
            self.found.push(simple);
        }
        Ok(())
    }

    /// Reads the commands of a substitution.
    fn substituted(&mut self) -> Result<(), String> {
        let (start, outer) = (self.at, std::mem::take(&mut self.waiting));
        self.list(Some(')'))?;
        // Shells disagree where a body is that hasn't begun at one end of a substitution or the other.
        let lines = self.chars[start..self.at].contains(&'\n');
        if !self.waiting.is_empty() || !outer.is_empty() && lines {
            return Err("it isn't clear where a here-document begins".to_owned());
        }
        self.waiting = outer;
        Ok(())
    }

    fn redirection(&mut self, current: &mut Simple) -> Result<(), String> {
        current.redirected.get_or_insert(current.words.len());
        let mut operator = String::new();
        while let Some(c @ ('<' | '>' | '&' | '|' | '-')) = self.peek(0) {
            let longer = format!("{operator}{c}");
            if !["<", ">", "<<", "<<-", "<<<", ">>", "<>", ">|", ">&", "<&", "&>", "&", "&>>"]
                .contains(&longer.as_str())
            {
                break;
            }
            operator = longer;
            self.at += 1;
        }
        while matches!(self.peek(0), Some(' ' | '\t')) {
            self.at += 1;
        }
        if matches!(self.peek(0), None | Some('\n' | ';' | '&' | '|' | ')')) {
            return Err(format!("nothing follows '{operator}'"));
        }
        let target = self.word()?;
        current.other_input |=
            current.descriptor.take().is_some_and(|number| number != "0") && operator.starts_with("<<");
        current.other_input |= ["<", "<&", "<>"].contains(&operator.as_str());
        match operator.as_str() {
            "<<" | "<<-" => {
                self.bodies.push(None);
                let number = self.bodies.len() - 1;
                current.documents.push(number);
                self.waiting.push((number, target.text, target.quoted, operator == "<<-"));
            }
            "&>" | "&>>" => {
                current.both.get_or_insert(current.words.len());
            }
            // bash takes what isn't a number for a file's name, and expands it once more.
            ">&" | "<&" if target.text.contains(['$', '`', ANY]) => {
                return Err(format!("what follows '{operator}' is known only at run time"));
            }
            "<<<" => {
                self.bodies.push(Some(target));
                current.documents.push(self.bodies.len() - 1);
            }
            _ => {}
        }
        Ok(())
    }

    fn documents(&mut self) -> Result<(), String> {
        for (number, end, quoted, tabs) in std::mem::take(&mut self.waiting) {
            let mut body = String::new();
            let mut goes_on = String::new();
            loop {
                if self.at >= self.chars.len() {
                    return Err("a here-document isn't terminated".to_owned());
                }
                let mut line = String::new();
                while let Some(c) = self.peek(0) {
                    self.at += 1;
                    if c == '\n' {
                        break;
                    }
                    line.push(c);
                }
                let line = if tabs { line.trim_start_matches('\t').to_owned() } else { line };
                // Shells don't agree whether a line that goes on in the next can hide or make the end.
                let joined = format!("{goes_on}{line}");
                self.work.spend(joined.len() / 64)?;
                if !goes_on.is_empty() && (line == end || joined == end) {
                    return Err("it isn't clear where a here-document ends".to_owned());
                }
                if line == end {
                    break;
                }
                goes_on = match line.strip_suffix('\\').filter(|_| !quoted) {
                    Some(start) => format!("{}{start}", joined.strip_suffix(&line).unwrap_or_default()),
                    None => String::new(),
                };
                body.push_str(&line);
                body.push('\n');
            }
            let word = if quoted { Word::literal(&body) } else { self.expanded(&body)? };
            self.bodies[number] = Some(word);
        }
        Ok(())
    }
}

/// Whether a word is a keyword after which a command may begin.
fn begins(word: &Word) -> bool {
    let keywords = ["if", "then", "else", "elif", "fi", "do", "done", "while", "until", "!", "{", "}", "time"];
    keywords.iter().any(|keyword| word.is(keyword))
}

/// Whether the commands of a loop follow at once: `for NAME do`, without a list.
///
/// # Errors
/// When it isn't a loop of a form that is known, or its variable is one that shells execute.
fn is_followed_by_body(words: &[Word]) -> Result<bool, String> {
    let Some(name) = words.get(1) else { return Ok(false) };
    if !name.is_static() || name.quoted {
        return Err("the name of a loop's variable is known only at run time".to_owned());
    }
    variable(&name.text)?;
    match words.get(2) {
        Some(word) if word.is("do") || word.is("{") => Ok(true),
        Some(word) if !word.is("in") => Err("it has a loop of an unknown form".to_owned()),
        _ => Ok(false),
    }
}

/// A `case` whose first pattern could be taken for its end, or that is itself a pattern, isn't followed.
fn check_case(words: &[Word]) -> Result<(), String> {
    let begins = words.get(2).is_some_and(|word| word.is("in"));
    match begins && words.get(3).is_none_or(|word| !word.is("esac")) {
        true => Ok(()),
        false => Err("it has a 'case' of an unknown form".to_owned()),
    }
}
