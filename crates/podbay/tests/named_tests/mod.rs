//! Tests that pages and tables name as `path` or `path::test`: they have to exist.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Why a test that is named somewhere can't be found; nothing if it is there.
pub fn missing(reference: &str) -> Option<String> {
    let (path, test) = reference.split_once("::").unwrap_or((reference, ""));
    let Ok(source) = std::fs::read_to_string(root().join(path)) else { return Some(format!("there is no {path}")) };
    let found = match path.ends_with(".rs") {
        _ if test.is_empty() => true,
        true => is_rust_test(&source, test),
        false => ["def ", "class ", "test(\"", "it(\"", ")(\""].iter().any(|before| defines(&source, before, test)),
    };
    (!found).then(|| format!("{path} has no test {test}"))
}

/// A function with an attribute of tests, or a case of a test program with a harness of its own.
fn is_rust_test(source: &str, test: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let mut functions = lines.iter().enumerate().filter(|(_, line)| defines(line, "fn ", test)).map(|(at, _)| at);
    functions.any(|at| {
        let mut above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        let is_case = source.contains(&format!("\", {test})"));
        is_case || above.any(|line| line.starts_with("#[") && line.contains("test"))
    })
}

fn defines(source: &str, before: &str, test: &str) -> bool {
    source.match_indices(&format!("{before}{test}")).any(|(at, found)| {
        let after = source[at + found.len()..].chars().next();
        !after.is_some_and(|next| next.is_alphanumeric() || next == '_')
    })
}
