//! The part of a pattern that is compared with one name.

/// One element of a segment.
#[derive(Debug, Clone)]
enum Token {
    /// This character.
    Char(u32),
    /// `?`
    Any,
    /// `*`
    Star,
    /// `[…]`
    Class(Class),
}

#[derive(Debug, Clone, Default)]
struct Class {
    negated: bool,
    ranges: Vec<(u32, u32)>,
    named: Vec<Named>,
}

/// A class with a name, like `[:alpha:]`. They know only ASCII.
#[derive(Debug, Clone, Copy)]
struct Named(fn(char) -> bool);

/// A pattern for one name.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    tokens: Vec<Token>,
}

/// Splits a pattern at its slashes: each piece, and whether a slash follows. A slash inside of `[…]` ends the class as it
/// ends the name; an escaped slash is a slash.
pub(super) fn split(text: &[u8]) -> impl Iterator<Item = (&[u8], bool)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        match text.iter().position(|&byte| byte == b'/') {
            None => {
                rest = None;
                Some((text, false))
            }
            Some(at) => {
                rest = Some(&text[at + 1..]);
                // A backslash before the slash protects nothing, unless it is itself protected.
                let backslashes = text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
                Some((&text[..at - backslashes % 2], true))
            }
        }
    })
}

/// The next character of a name and its length in bytes. A byte that isn't UTF-8 is a character of its own.
fn character(text: &[u8]) -> Option<(u32, usize)> {
    let first = *text.first()?;
    let length = match first {
        0..0x80 => return Some((u32::from(first), 1)),
        0xc2..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf5 => 4,
        _ => 1,
    };
    let decoded =
        text.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok()).and_then(|text| text.chars().next());
    // Outside of Unicode, so that no class can contain it by accident.
    Some(decoded.map_or((0x11_0000 + u32::from(first), 1), |decoded| (decoded as u32, length)))
}

fn characters(mut text: &[u8]) -> Vec<u32> {
    let mut out = Vec::with_capacity(text.len());
    while let Some((code, length)) = character(text) {
        out.push(code);
        text = &text[length..];
    }
    out
}

impl Segment {
    pub(super) fn new(text: &[u8]) -> Self {
        let text = characters(text);
        let mut tokens = Vec::new();
        let mut at = 0;
        // Once a class has no end, no further one has.
        let mut classes = true;
        while at < text.len() {
            let code = text[at];
            at += 1;
            match u8::try_from(code) {
                Ok(b'*') => {
                    if !matches!(tokens.last(), Some(Token::Star)) {
                        tokens.push(Token::Star);
                    }
                }
                Ok(b'?') => tokens.push(Token::Any),
                Ok(b'\\') => {
                    // At the end it protects nothing, and means nothing.
                    if let Some(&next) = text.get(at) {
                        tokens.push(Token::Char(next));
                        at += 1;
                    }
                }
                Ok(b'[') if classes => match class(&text, at) {
                    Some((class, end)) => {
                        tokens.push(Token::Class(class));
                        at = end;
                    }
                    None => {
                        classes = false;
                        tokens.push(Token::Char(code));
                    }
                },
                _ => tokens.push(Token::Char(code)),
            }
        }
        Self { tokens }
    }

    /// Whether a name matches. Without `dots`, a wildcard at the beginning doesn't match a dot there.
    pub(super) fn matches(&self, name: &[u8], dots: bool) -> bool {
        let mut rest = name;
        let mut at = 0;
        let leading_dot = !dots && name.first() == Some(&b'.');
        // Where to go back to: the token behind the last star, and the name behind what that star has taken so far.
        let mut retry: Option<(usize, &[u8])> = None;
        loop {
            let begins = rest.len() == name.len();
            match self.tokens.get(at) {
                Some(Token::Star) => {
                    at += 1;
                    retry = Some((at, rest));
                    continue;
                }
                None if rest.is_empty() => return true,
                Some(token) => {
                    if let Some((code, length)) = character(rest) {
                        let protected = at == 0 && begins && leading_dot;
                        let fits = match token {
                            Token::Char(wanted) => *wanted == code,
                            Token::Any => !protected,
                            Token::Class(class) => !protected && class.contains(code),
                            Token::Star => false,
                        };
                        if fits {
                            at += 1;
                            rest = &rest[length..];
                            continue;
                        }
                    }
                }
                None => {}
            }
            // The star takes one character more. One at the very beginning can't take a dot.
            let Some((token, taken)) = retry else { return false };
            let Some((_, length)) = character(taken) else { return false };
            if token == 1 && taken.len() == name.len() && leading_dot {
                return false;
            }
            retry = Some((token, &taken[length..]));
            at = token;
            rest = &taken[length..];
        }
    }
}

impl Class {
    fn contains(&self, code: u32) -> bool {
        let listed = self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&code));
        let named = || char::from_u32(code).is_some_and(|char| self.named.iter().any(|class| class.0(char)));
        (listed || named()) != self.negated
    }
}

/// Reads a class whose `[` stands before `at`: the class, and where it ends.
fn class(text: &[u32], mut at: usize) -> Option<(Class, usize)> {
    const HYPHEN: u32 = b'-' as u32;
    const END: u32 = b']' as u32;
    let mut class = Class::default();
    if text.get(at).is_some_and(|&code| code == u32::from(b'!') || code == u32::from(b'^')) {
        class.negated = true;
        at += 1;
    }
    // The member that may become the first of a range.
    let mut last: Option<u32> = None;
    let mut first = true;
    loop {
        let code = *text.get(at)?;
        at += 1;
        if code == END && !first {
            class.ranges.extend(last.map(|code| (code, code)));
            return Some((class, at));
        }
        if code == u32::from(b'[')
            && let Some((named, end)) = named(text, at)
        {
            class.ranges.extend(last.take().map(|code| (code, code)));
            class.named.push(named);
            at = end;
            first = false;
            // A hyphen behind a named class is itself.
            if text.get(at) == Some(&HYPHEN) {
                last = Some(HYPHEN);
                at += 1;
            }
            continue;
        }
        if code == HYPHEN
            && let Some(start) = last.filter(|_| !first)
            && text.get(at).is_some_and(|&next| next != END)
        {
            // `[a-[:digit:]]`: no range, but three members.
            if text[at] == u32::from(b'[') && named(text, at + 1).is_some() {
                class.ranges.extend([(start, start), (HYPHEN, HYPHEN)]);
                last = None;
                continue;
            }
            let mut end = text[at];
            at += 1;
            if end == u32::from(b'\\') {
                end = *text.get(at)?;
                at += 1;
            }
            // A range that runs backwards has no members.
            class.ranges.push((start, end));
            last = None;
            // A hyphen directly behind a range is itself.
            if text.get(at) == Some(&HYPHEN) {
                last = Some(HYPHEN);
                at += 1;
                if text.get(at) == Some(&HYPHEN) && text.get(at + 1).is_some_and(|&next| next != END) {
                    continue;
                }
            }
            first = false;
            continue;
        }
        first = false;
        let member = if code == u32::from(b'\\') {
            let member = *text.get(at)?;
            at += 1;
            member
        } else {
            code
        };
        class.ranges.extend(last.replace(member).map(|code| (code, code)));
    }
}

/// A named class whose `[` stands before `at`: `:alpha:]`.
fn named(text: &[u32], at: usize) -> Option<(Named, usize)> {
    let rest: String = text.get(at..)?.iter().take(12).filter_map(|&code| char::from_u32(code)).collect();
    let name = rest.strip_prefix(':')?.split_once(":]")?.0;
    let class: fn(char) -> bool = match name {
        "alnum" => |char| char.is_ascii_alphanumeric(),
        "alpha" => |char| char.is_ascii_alphabetic(),
        "ascii" => |char| char.is_ascii(),
        "blank" => |char| char == ' ' || char == '\t',
        "cntrl" => |char| char.is_ascii_control(),
        "digit" => |char| char.is_ascii_digit(),
        "graph" => |char| char.is_ascii_graphic(),
        "lower" => |char| char.is_ascii_lowercase(),
        "print" => |char| char.is_ascii_graphic() || char == ' ',
        "punct" => |char| char.is_ascii_punctuation(),
        "space" => |char| char.is_ascii_whitespace() || char == '\x0b',
        "upper" => |char| char.is_ascii_uppercase(),
        "word" => |char| char.is_ascii_alphanumeric() || char == '_',
        "xdigit" => |char| char.is_ascii_hexdigit(),
        _ => return None,
    };
    Some((Named(class), at + name.len() + 3))
}
