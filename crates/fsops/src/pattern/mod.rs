//! Glob patterns.
//!
//! The meaning is that of the agent frameworks' shared matcher. A pattern without a `/` is compared with the last name of a
//! path, at any depth; one with a `/` with the whole path. `*`, `?` and `[…]` never match a `/`, nor, where a name begins, a
//! dot. `**` as a whole name stands for any number of names that don't begin with a dot. `{a,b}` and `{1..3}` are alternatives.
//! A backslash takes the next character literally.

mod brace;
mod segment;

use podbay_proto::{Error, ErrorCode, RawPath, Result};
use segment::Segment;

/// The most alternatives that the braces of a pattern may expand to.
pub const MAX_ALTERNATIVES: usize = 1000;

/// The longest pattern, in bytes.
pub const MAX_LENGTH: usize = 16 << 10;

/// How a pattern is to be understood.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Wildcards match a dot at the beginning of a name too.
    pub dots: bool,
    /// A pattern without `/` is compared with the whole path as well.
    pub whole_path: bool,
}

/// A glob pattern, ready to be compared with paths.
#[derive(Debug, Clone)]
pub struct Pattern {
    alternatives: Vec<Alternative>,
    whole_path: bool,
    dots: bool,
}

#[derive(Debug, Clone)]
enum Part {
    /// `**`
    AnyNames,
    /// One name.
    Name(Segment),
}

/// One way in which a path can match.
type Alternative = Vec<Part>;

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// `invalid_pattern` when a name in it is `..` or it is longer than [`MAX_LENGTH`], `pattern_too_broad` when its braces expand to more than
    /// [`MAX_ALTERNATIVES`]. Everything else is a pattern, even if it matches nothing.
    pub fn new(pattern: &RawPath, style: Style) -> Result<Self> {
        let bytes = pattern.as_bytes();
        if bytes.split(|&byte| byte == b'/' || byte == b'\\').any(|name| name == b"..") {
            let message = "a glob pattern can't contain '..': it only matches paths below its start";
            return Err(Error::at(ErrorCode::InvalidPattern, pattern, message));
        }
        if bytes.len() > MAX_LENGTH {
            let message = format!("the pattern has {} bytes, and at most {MAX_LENGTH} are allowed", bytes.len());
            return Err(Error::new(ErrorCode::InvalidPattern, message));
        }
        let start = bytes.iter().position(|&byte| byte != b'/').unwrap_or(bytes.len());
        let expanded = brace::expand(&bytes[start..], MAX_ALTERNATIVES).ok_or_else(|| {
            let message = format!("the braces of this pattern expand to more than {MAX_ALTERNATIVES} alternatives");
            Error::at(ErrorCode::PatternTooBroad, pattern, message)
        })?;
        let alternatives = expanded.iter().filter_map(|text| alternative(text)).collect();
        Ok(Self { alternatives, whole_path: style.whole_path || bytes.contains(&b'/'), dots: style.dots })
    }

    /// Whether a path below the start matches.
    pub fn matches(&self, path: &[u8]) -> bool {
        let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        if !self.whole_path {
            names.drain(..names.len().saturating_sub(1));
        }
        !names.is_empty() && self.alternatives.iter().any(|parts| self.parts_match(parts, &names, false))
    }

    /// Whether anything below the directory at this path could match, so that it is worth entering.
    pub fn may_match_below(&self, dir: &[u8]) -> bool {
        if !self.whole_path {
            return !self.alternatives.is_empty();
        }
        let names: Vec<&[u8]> = dir.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        self.alternatives.iter().any(|parts| self.parts_match(parts, &names, true))
    }

    /// Compares names with parts. With `below`, whether names that continue these could match.
    ///
    /// One row of a table after the other, so that no pattern takes more than names × parts steps.
    fn parts_match(&self, parts: &[Part], names: &[&[u8]], below: bool) -> bool {
        // reached[p]: the names so far can be matched by the first p parts.
        let mut reached = vec![false; parts.len() + 1];
        reached[0] = true;
        self.skip_any_names(parts, &mut reached);
        for name in names {
            let mut next = vec![false; parts.len() + 1];
            for (index, part) in parts.iter().enumerate().filter(|(index, _)| reached[*index]) {
                match part {
                    Part::AnyNames if self.dots || !name.starts_with(b".") => next[index] = true,
                    Part::AnyNames => {}
                    Part::Name(segment) => next[index + 1] |= segment.matches(name, self.dots),
                }
            }
            self.skip_any_names(parts, &mut next);
            reached = next;
        }
        if below {
            return reached[..parts.len()].contains(&true);
        }
        reached[parts.len()]
    }

    /// `**` can stand for no name at all.
    fn skip_any_names(&self, parts: &[Part], reached: &mut [bool]) {
        for index in 0..parts.len() {
            if reached[index] && matches!(parts[index], Part::AnyNames) {
                reached[index + 1] = true;
            }
        }
    }
}

/// Reads one alternative. None when it can match nothing.
fn alternative(text: &[u8]) -> Option<Alternative> {
    // Paths below the start don't begin with a slash.
    if text.is_empty() || text.starts_with(b"/") {
        return None;
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut ended = false;
    for (raw, has_slash) in segment::split(text) {
        if raw.is_empty() {
            continue;
        }
        ended = has_slash;
        match raw {
            b"**" if matches!(parts.last(), Some(Part::AnyNames)) => {}
            b"**" => parts.push(Part::AnyNames),
            raw => parts.push(Part::Name(Segment::new(raw))),
        }
    }
    // A slash at the end asks for a directory, and paths don't have one there; behind `**` it means nothing.
    match parts.last() {
        None => None,
        Some(Part::Name(_)) if ended => None,
        Some(Part::Name(_)) => Some(parts),
        // At the end, `**` stands for at least one name.
        Some(Part::AnyNames) => {
            parts.push(Part::Name(Segment::new(b"*")));
            Some(parts)
        }
    }
}
