//! Words: quoting, and the commands in substitutions.

use super::{ANY, DEEPEST, Scanner, Word, scan, variable};

impl Scanner<'_> {
    /// Text in which only substitutions count, as between double quotes.
    pub(super) fn expanded(&mut self, text: &str) -> Result<Word, String> {
        let mut inner = Scanner::new(text, self.depth + 1, self.work)?;
        if inner.depth > DEEPEST {
            return Err("it is too deeply nested to be checked".to_owned());
        }
        let mut word = Word { quoted: true, ..Word::default() };
        inner.double_quoted(&mut word, None)?;
        self.found.append(&mut inner.found);
        Ok(word)
    }

    pub(super) fn word(&mut self) -> Result<Word, String> {
        let mut word = Word::default();
        let mut braces = false;
        while let Some(c) = self.peek(0) {
            match c {
                // A blank for some, a part of a name for shells.
                '\r' => return Err("it has a carriage return outside of quotes".to_owned()),
                ' ' | '\t' | '\n' | ';' | '&' | '|' | ')' => break,
                '(' => {
                    // Patterns of bash, `@(a|b)`, look like this too; in doubt it is a group, and its words are commands.
                    break;
                }
                '<' | '>' if self.peek(1) == Some('(') => {
                    self.at += 2;
                    self.substituted()?;
                    word.text.push(ANY);
                }
                '<' | '>' if word.text.contains('[') && !word.quoted && !word.text.contains(']') => {
                    return Err("it has '<' or '>' in a subscript".to_owned());
                }
                '<' | '>' => break,
                '\\' if self.peek(1) == Some('\n') => self.continuation()?,
                '\\' => {
                    word.quoted = true;
                    word.text.push(self.peek(1).ok_or("it ends with a backslash")?);
                    self.at += 2;
                }
                '\'' => {
                    self.at += 1;
                    word.quoted = true;
                    loop {
                        match self.peek(0).ok_or("a ' is missing")? {
                            '\'' => break,
                            c => word.text.push(c),
                        }
                        self.at += 1;
                    }
                    self.at += 1;
                }
                '"' => {
                    self.at += 1;
                    word.quoted = true;
                    self.double_quoted(&mut word, Some('"'))?;
                }
                '$' if self.peek(1) == Some('\'') => {
                    // bash decodes escapes here, other shells don't: it can be anything.
                    self.at += 2;
                    word.text.push(ANY);
                    word.quoted = true;
                    loop {
                        match self.peek(0).ok_or("a ' is missing")? {
                            '\'' => break,
                            '\\' => self.at += 2,
                            _ => self.at += 1,
                        }
                    }
                    self.at += 1;
                }
                '$' if self.peek(1) == Some('"') => self.at += 1,
                '$' | '`' => self.substitution(&mut word, false)?,
                '*' | '?' | '[' => {
                    self.at += 1;
                    let bracket = c == '[' && matches!(word.text.as_str(), "" | "[") && !self.pattern_follows();
                    word.text.push(if bracket { c } else { ANY });
                }
                '~' if word.text.is_empty() => {
                    self.at += 1;
                    word.text.push(ANY);
                }
                c => {
                    braces |= c == '{';
                    word.text.push(c);
                    self.at += 1;
                }
            }
        }
        // `{a,b}` becomes several words in bash, and `{}` whatever xargs and find put there.
        if braces && (word.text.contains(',') || word.text.contains("..")) {
            word.text = ANY.to_string();
        } else if braces {
            word.text = word.text.replace("{}", &ANY.to_string());
        }
        Ok(word)
    }

    /// Whether a `[` begins a set of characters, rather than being the command of that name.
    fn pattern_follows(&self) -> bool {
        !matches!(self.peek(0), None | Some(' ' | '\t' | '\n' | '['))
    }

    /// Reads up to the closing quote, or to the end where there is none.
    fn double_quoted(&mut self, word: &mut Word, close: Option<char>) -> Result<(), String> {
        loop {
            match self.peek(0) {
                None if close.is_none() => return Ok(()),
                None => return Err("a \" is missing".to_owned()),
                Some(c) if Some(c) == close => {
                    self.at += 1;
                    return Ok(());
                }
                Some('\\') if matches!(self.peek(1), Some('$' | '`' | '"' | '\\')) => {
                    word.text.extend(self.peek(1));
                    self.at += 2;
                }
                Some('\\') if self.peek(1) == Some('\n') => self.continuation()?,
                Some('$' | '`') => self.substitution(word, true)?,
                Some(c) => {
                    word.text.push(c);
                    self.at += 1;
                }
            }
        }
    }

    /// Reads one `$…` or `` `…` ``, and the commands in it.
    fn substitution(&mut self, word: &mut Word, in_quotes: bool) -> Result<(), String> {
        word.splits |= !in_quotes;
        if self.peek(0) == Some('`') {
            self.at += 1;
            let mut script = String::new();
            loop {
                match self.peek(0).ok_or("a ` is missing")? {
                    '`' => break,
                    '\\' if in_quotes && self.peek(1) == Some('"') => {
                        return Err("it has '\\\"' in backticks between double quotes".to_owned());
                    }
                    '\\' if matches!(self.peek(1), Some('`' | '\\' | '$')) => {
                        script.extend(self.peek(1));
                        self.at += 2;
                    }
                    c => {
                        script.push(c);
                        self.at += 1;
                    }
                }
            }
            self.at += 1;
            if !self.waiting.is_empty() && script.contains('\n') {
                return Err("it isn't clear where a here-document begins".to_owned());
            }
            word.text.push(ANY);
            self.found.append(&mut scan(&script, self.depth + 1, self.work)?);
            return Ok(());
        }
        let arithmetic = match (self.peek(1), self.peek(2)) {
            (Some('('), Some('(')) => self.arithmetic_end()?,
            _ => None,
        };
        if let Some(end) = arithmetic {
            let inside: String = self.chars[self.at + 3..end].iter().collect();
            if !is_plain_arithmetic(&inside) {
                return Err("shells may not agree where arithmetic in it ends".to_owned());
            }
            self.at = end + 2;
            self.expanded(&inside)?;
            word.text.push(ANY);
            return Ok(());
        }
        match self.peek(1) {
            Some('(') => {
                if self.peek(2) == Some('(') {
                    self.no_shift()?;
                }
                self.at += 2;
                word.text.push(ANY);
                self.substituted()?;
            }
            Some('[') => return Err("it has arithmetic in the old form '$['".to_owned()),
            Some('\\') if self.peek(2) == Some('\n') => {
                return Err("an operator in it continues on another line".to_owned());
            }
            Some('{') => {
                self.at += 2;
                word.text.push(ANY);
                self.parameter(in_quotes)?;
            }
            Some(c) if c == '_' || c.is_ascii_alphanumeric() => {
                self.at += 2;
                word.text.push(ANY);
                while self.peek(0).is_some_and(|c| c == '_' || c.is_ascii_alphanumeric()) {
                    self.at += 1;
                }
            }
            Some('@' | '*' | '#' | '?' | '-' | '$' | '!') => {
                self.at += 2;
                word.text.push(ANY);
            }
            _ => {
                self.at += 1;
                word.text.push('$');
            }
        }
        Ok(())
    }

    /// Reads the rest of `${…}`: its default may contain anything. Between double quotes a single one is a plain character.
    fn parameter(&mut self, in_quotes: bool) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("it is too deeply nested to be checked".to_owned());
        }
        self.default_of_setting()?;
        let mut ignored = Word::default();
        loop {
            match self.peek(0).ok_or("a } is missing")? {
                '}' => {
                    self.depth -= 1;
                    self.at += 1;
                    return Ok(());
                }
                '@' if matches!(self.peek(1), Some('P')) => {
                    return Err("a parameter in it is evaluated as a prompt".to_owned());
                }
                '\\' if self.peek(1) == Some('\n') => self.continuation()?,
                '\\' => self.at += 2,
                '\'' if in_quotes => return Err("it has a ' in a parameter between double quotes".to_owned()),
                '$' if self.peek(1) == Some('\'') => return Err("it has \"$'\" in a parameter".to_owned()),
                '<' | '>' if self.peek(1) == Some('(') => {
                    return Err("it has a substitution of a process in a parameter".to_owned());
                }
                '\'' => {
                    self.at += 1;
                    while self.peek(0).ok_or("a ' is missing")? != '\'' {
                        self.at += 1;
                    }
                    self.at += 1;
                }
                '"' => {
                    let start = self.at;
                    self.at += 1;
                    self.double_quoted(&mut ignored, Some('"'))?;
                    if in_quotes && self.chars[start..self.at].contains(&'\'') {
                        return Err("it has a ' in a parameter between double quotes".to_owned());
                    }
                }
                '$' | '`' => self.substitution(&mut ignored, in_quotes)?,
                _ => self.at += 1,
            }
        }
    }

    /// `${PS4:=…}` is an assignment, too.
    fn default_of_setting(&self) -> Result<(), String> {
        let rest = &self.chars[self.at..];
        let indirect = rest.first() == Some(&'!');
        let legal = |c: &&char| **c == '_' || c.is_ascii_alphanumeric();
        let name: String = rest.iter().skip(usize::from(indirect)).take_while(legal).collect();
        let mut operator = rest.iter().skip(usize::from(indirect) + name.len()).skip_while(|c| **c == ':');
        match operator.next() {
            Some('=') if indirect => Err("it isn't clear which variable a parameter sets".to_owned()),
            Some('=') => variable(&name),
            _ => Ok(()),
        }
    }

    /// Where the `))` of a `$((` is, if it is arithmetic and not a group within a substitution.
    fn arithmetic_end(&self) -> Result<Option<usize>, String> {
        let start = self.at + 3;
        let mut open = 0_usize;
        for at in start..self.chars.len() {
            match self.chars[at] {
                '(' => open += 1,
                ')' if open > 0 => open -= 1,
                ')' => {
                    self.work.spend(at - start)?;
                    return Ok((self.chars.get(at + 1) == Some(&')')).then_some(at));
                }
                _ => {}
            }
        }
        Err("a ')' is missing".to_owned())
    }
}

/// Whether every shell counts the same parentheses in arithmetic: none of them may be quoted, or in a parameter or a comment.
fn is_plain_arithmetic(text: &str) -> bool {
    let round = |part: &str| part.contains(['(', ')']);
    let comment = text.split_whitespace().any(|word| word.starts_with('#'));
    let quotes = text.split('"').collect::<Vec<_>>();
    let in_quotes = quotes.iter().skip(1).step_by(2).any(|part| round(part));
    let in_parameter = text.split("${").skip(1).any(|part| part.split('}').next().is_some_and(round));
    !text.contains(['\'', '\\']) && !comment && quotes.len() % 2 == 1 && !in_quotes && !in_parameter
}
