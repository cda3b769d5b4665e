//! Braces: `{a,b}` and `{1..3}`.

/// All alternatives that the braces of a pattern stand for. None when there are more than `most`.
///
/// As in a shell: braces nest; `{a}` and a brace without its partner are themselves; a backslash protects what follows.
pub(super) fn expand(pattern: &[u8], most: usize) -> Option<Vec<Vec<u8>>> {
    let mut done = Vec::new();
    // Each begins with text in which nothing is left to expand, up to the index.
    let mut open = vec![(pattern.to_vec(), 0)];
    while let Some((text, from)) = open.pop() {
        match find(&text, from) {
            None => done.push(text),
            Some(group) => {
                let (head, tail) = (&text[..group.start], &text[group.end + 1..]);
                for choice in group.choices.iter().rev() {
                    open.push(([head, choice, tail].concat(), group.start));
                }
            }
        }
        if done.len() + open.len() > most {
            return None;
        }
    }
    Some(done)
}

struct Group {
    /// The opening brace.
    start: usize,
    /// The closing one.
    end: usize,
    choices: Vec<Vec<u8>>,
}

/// The first group from `from` on that stands for alternatives.
fn find(text: &[u8], from: usize) -> Option<Group> {
    let groups = Groups::new(text, from);
    groups.0.iter().find_map(|group| {
        let commas = [&[group.start][..], &group.commas, &[group.end?]].concat();
        let choices = match group.commas.is_empty() {
            true => range(&text[group.start + 1..group.end?])?,
            false => commas.windows(2).map(|pair| text[pair[0] + 1..pair[1]].to_vec()).collect(),
        };
        Some(Group { start: group.start, end: group.end?, choices })
    })
}

/// Every opening brace with its partner, in one pass: a pattern of nothing but braces takes no longer than another.
struct Groups(Vec<Braces>);

struct Braces {
    start: usize,
    end: Option<usize>,
    /// The commas that are directly between the two.
    commas: Vec<usize>,
}

impl Groups {
    fn new(text: &[u8], from: usize) -> Self {
        let mut groups: Vec<Braces> = Vec::new();
        // The open ones. A shell's variable, `${`, has a partner and is no group.
        let mut open: Vec<Option<usize>> = Vec::new();
        let mut at = from;
        while at < text.len() {
            match text[at] {
                b'\\' => at += 1,
                b'$' if text.get(at + 1) == Some(&b'{') => {
                    at += 1;
                    open.push(None);
                }
                b'{' => {
                    open.push(Some(groups.len()));
                    groups.push(Braces { start: at, end: None, commas: Vec::new() });
                }
                b'}' => {
                    if let Some(Some(group)) = open.pop() {
                        groups[group].end = Some(at);
                    }
                }
                b',' => {
                    if let Some(Some(group)) = open.last() {
                        groups[*group].commas.push(at);
                    }
                }
                _ => {}
            }
            at += 1;
        }
        Self(groups)
    }
}

/// The members of a range like `1..5`, `01..10..2` or `a..e`. At most one more than can be used are made.
fn range(inner: &[u8]) -> Option<Vec<Vec<u8>>> {
    let inner = std::str::from_utf8(inner).ok()?;
    let mut terms = inner.split("..");
    let (first, last, step) = (terms.next()?, terms.next()?, terms.next());
    if terms.next().is_some() {
        return None;
    }
    let step = step.map_or(Some(1), |step| number(step).map(i64::unsigned_abs))?.max(1);
    let most = super::MAX_ALTERNATIVES + 1;
    let between = |one: i64, other: i64| {
        let count = one.abs_diff(other) / step;
        let direction = if one <= other { 1 } else { -1 };
        (0..=count).take(most).map(move |index| one + direction * (index.saturating_mul(step)).cast_signed())
    };
    if let (Some(one), Some(other)) = (number(first), number(last)) {
        let padded = [first, last].iter().any(|term| {
            let digits = term.trim_start_matches(['-', '+']);
            digits.len() > 1 && digits.starts_with('0')
        });
        let width = if padded { first.len().max(last.len()) } else { 0 };
        return Some(between(one, other).map(|value| format!("{value:0width$}").into_bytes()).collect());
    }
    match (first.as_bytes(), last.as_bytes()) {
        ([one], [other]) if one.is_ascii_alphabetic() && other.is_ascii_alphabetic() => Some(
            between(i64::from(*one), i64::from(*other))
                .filter_map(|code| u8::try_from(code).ok())
                .map(|byte| vec![byte])
                .collect(),
        ),
        _ => None,
    }
}

fn number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let plain = !digits.is_empty() && digits.len() <= 15 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(pattern: &str) -> Vec<String> {
        expand(pattern.as_bytes(), 1000).unwrap().into_iter().map(|text| String::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn groups_nest_and_what_is_no_group_stays() {
        assert_eq!(expanded("a{b,c{d,e}}f"), ["abf", "acdf", "acef"]);
        assert_eq!(expanded("{a}"), ["{a}"]);
        assert_eq!(expanded("{a,{b,c}"), ["{a,b", "{a,c"]);
        assert_eq!(expanded("x{1..3}"), ["x1", "x2", "x3"]);
        assert_eq!(expanded("{08..10}"), ["08", "09", "10"]);
        assert_eq!(expanded("{c..a}"), ["c", "b", "a"]);
        assert_eq!(expanded(r"\{a,b}"), [r"\{a,b}"]);
        assert_eq!(expanded("{,a}"), ["", "a"]);
    }

    #[test]
    fn too_many_are_refused_without_being_made() {
        assert!(expand("{0..9}{0..9}{0..9}".as_bytes(), 1000).is_some());
        assert!(expand("{0..9}{0..9}{0..9}{a,b}".as_bytes(), 1000).is_none());
        assert!(expand("{1..9999999999}".as_bytes(), 1000).is_none());
        assert!(expand("{a,b}".repeat(60).as_bytes(), 1000).is_none());
        let started = std::time::Instant::now();
        assert_eq!(expand(("{".repeat(8000) + &"{a,b}".repeat(9)).as_bytes(), 1000).unwrap().len(), 512);
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }
}
