//! Patterns, and edits of text.

use podbay_fsops::pattern::{Pattern, Style};
use podbay_fsops::{Files, Settings};
use podbay_proto::files::Edit;
use podbay_proto::{ErrorCode, RawPath};

pub const PATTERNS: &[&str] = &[
    "*",
    "**",
    "?",
    "/",
    "{a,b}",
    "{",
    "}",
    ",",
    "[",
    "]",
    "!",
    "-",
    "\\",
    ".",
    "a",
    "é",
    "\0",
    "{1..9}",
    "[:alpha:]",
];

pub const TEXTS: &[&str] = &["a", "b", "\n", "\r\n", "\r", "\0", "aa", "é"];

/// A pattern and a path, with a NUL between them.
///
/// # Panics
/// When a path matches below a directory that was said not to be worth entering.
pub fn glob(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let (pattern, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // Below a start, no name is empty.
    if path.split(|&byte| byte == b'/').any(<[u8]>::is_empty) {
        return;
    }
    for style in [Style::default(), Style { dots: true, whole_path: true }] {
        let Ok(pattern) = Pattern::new(&RawPath::from(pattern), style) else { continue };
        if !pattern.matches(path) {
            continue;
        }
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            assert!(pattern.may_match_below(&path[..at]), "{pattern:?} matches {path:?} and yet wouldn't enter");
        }
    }
}

/// A file, an old and a new text, with NULs between them.
///
/// # Panics
/// When the edit differs from the plain way to do it.
pub fn edit(data: &[u8]) {
    let mut parts = data.splitn(3, |&byte| byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (content, old, new) = (part(), part(), part());
    let dir = std::env::temp_dir();
    let file = dir.join(format!("podbay-fuzz-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::write(&file, content).expect("a temporary file");
    let files = Files::new(Settings::default());
    for replace_all in [false, true] {
        let (request, payload) = Edit::new(std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str()), old, new);
        let outcome = files.edit(&Edit { replace_all, ..request }, &payload);
        let now = std::fs::read(&file).expect("the file is still there");
        let texts = [content, old, new].map(|text| std::str::from_utf8(text).ok());
        match (outcome, texts) {
            (Ok(output), [Some(content), Some(old), Some(new)]) => {
                let forms = [
                    (old.to_owned(), new.to_owned()),
                    (crlf(old), crlf(new)),
                    (old.replace("\r\n", "\n"), new.replace("\r\n", "\n")),
                ];
                let (old, new) = forms.iter().find(|(old, _)| content.contains(old)).expect("a form that occurs");
                assert_eq!(String::from_utf8_lossy(&now), content.replace(old, new));
                assert_eq!(output.occurrences, content.matches(old.as_str()).count() as u64);
                std::fs::write(&file, content).expect("a temporary file");
            }
            (Ok(_), _) => panic!("something that isn't text was edited"),
            (Err(error), _) => {
                assert_ne!(error.code, ErrorCode::Internal, "{error}");
                assert_eq!(now, content, "a failed edit changed the file");
            }
        }
    }
    std::fs::remove_file(&file).expect("the temporary file goes");
}

fn crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}
