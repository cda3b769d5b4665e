//! docs/security-tests.md: written by one run, and compared with the table by every other. SECURITY.md, which refers to rows
//! and tests by name, is compared too.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::attack::{Attack, table};
use crate::column::{Column, Outcome};
use crate::confinement::CONFINEMENTS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes the results of a whole run.
pub(crate) fn write(file: &Path, columns: &[Column]) {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split('.').take(2).collect::<Vec<_>>().join(".");
    let mut text = String::from(
        "# Security tests\n\n\
         Written by `cargo xtask security-tests`; don't edit. Each row is an attack from inside a sandbox\n\
         (`crates/podbay/tests/escapes`), run on every provider, isolation and user by `cargo xtask test`. What the classes mean,\n\
         and what isn't protected: [SECURITY.md](../SECURITY.md).\n\n",
    );
    let _ = writeln!(
        text,
        "This run: Linux {kernel}, {}. ✓: the attacker got nothing. open: the attack works there, as noted below the table.\n–: it doesn't apply there. ?: not tried in this run.\n",
        std::env::consts::ARCH
    );
    let mut notes = Vec::new();
    let mut class = None;
    for attack in table() {
        if class != Some(attack.class) {
            class = Some(attack.class);
            let names = CONFINEMENTS.map(crate::confinement::Confinement::name).join(" | ");
            let _ = writeln!(
                text,
                "\n## {}\n\n| attack | {names} |\n|---|{}",
                attack.class.title(),
                "---|".repeat(CONFINEMENTS.len())
            );
        }
        let cells = CONFINEMENTS.map(|confinement| {
            let column = columns.iter().find(|column| column.confinement == confinement);
            match column.and_then(|column| column.results.iter().find(|(id, _)| id == attack.id)) {
                _ if !attack.kinds.contains(&confinement.kind) => "–".to_owned(),
                None => "?".to_owned(),
                Some((_, Outcome::Held)) => "✓".to_owned(),
                Some((_, Outcome::Failed(_))) => "**broken**".to_owned(),
                Some((_, Outcome::Open(why))) => {
                    let note = format!("`{}`: {why}.", attack.id);
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                    "open".to_owned()
                }
            }
        });
        let _ = writeln!(text, "| {} | {} |", title(&attack), cells.join(" | "));
    }
    if !notes.is_empty() {
        let _ = writeln!(text, "\n## What is open\n\n- {}", notes.join("\n- "));
    }
    std::fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

fn title(attack: &Attack) -> String {
    format!("`{}`: {}", attack.id, attack.story)
}

/// Where the documents disagree with the table.
pub(crate) fn check() -> Vec<String> {
    let read = |name: &str| {
        std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("can't read {name}: {error}"))
    };
    let (results, policy) = (read("docs/security-tests.md"), read("SECURITY.md"));
    let table = table();
    let mut wrong = Vec::new();
    let listed: Vec<&str> = results.lines().filter(|line| line.starts_with("| `")).collect();
    for attack in &table {
        if table.iter().filter(|other| other.id == attack.id).count() > 1 {
            wrong.push(format!("two attacks are called {}", attack.id));
        }
        if !listed.iter().any(|line| line.starts_with(&format!("| {} |", title(attack)))) {
            wrong.push(format!("docs/security-tests.md lacks {}: run cargo xtask security-tests", attack.id));
        }
    }
    if listed.len() != table.len() {
        wrong.push(format!(
            "docs/security-tests.md has {} attacks, the table {}: run cargo xtask security-tests",
            listed.len(),
            table.len()
        ));
    }
    if listed.iter().any(|line| line.contains("**broken**")) {
        wrong.push("docs/security-tests.md shows attacks that work".to_owned());
    }
    let named = named_tests(&policy);
    if named.len() < 50 {
        wrong.push(format!("SECURITY.md names only {} tests: is its table still understood?", named.len()));
    }
    for (of, name) in &named {
        let exists = match of.as_str() {
            "escapes" => table.iter().any(|attack| attack.id == name),
            "python" => sources(&root().join("python/tests"), "py").contains(&format!("def {name}(")),
            // Tests that have their own `main` give their cases names as text.
            krate => {
                let krate = root().join("crates").join(krate);
                let source = sources(&krate, "rs");
                source.contains(&format!("fn {name}("))
                    || source.contains(&format!("\"{name}\""))
                    || sources(&krate, "py").contains(&format!("def {name}("))
            }
        };
        if !exists {
            wrong.push(format!("SECURITY.md names a test that doesn't exist: {of}: {name}"));
        }
    }
    for attack in table.iter().filter(|attack| !named.iter().any(|(of, name)| of == "escapes" && name == attack.id)) {
        wrong.push(format!("SECURITY.md doesn't mention {}", attack.id));
    }
    wrong
}

/// The tests that SECURITY.md names in the last column of its tables: `escapes: …` are rows of ours, `jail: …` and the like
/// tests of that crate, `python: …` those of the Python package.
fn named_tests(policy: &str) -> Vec<(String, String)> {
    let mut named = Vec::new();
    for line in policy.lines().filter(|line| line.starts_with('|')) {
        let last = line.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default();
        for (of, names) in last.split(';').filter_map(|group| group.split_once(": `")) {
            let names = names.split('`').step_by(2).filter(|name| !name.trim().is_empty());
            named.extend(names.map(|name| (of.trim().to_owned(), name.to_owned())));
        }
    }
    named
}

/// The text of all files below a directory that have this extension.
fn sources(directory: &Path, extension: &str) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            text += &sources(&path, extension);
        } else if path.extension().is_some_and(|found| found == extension) {
            text += &std::fs::read_to_string(&path).unwrap_or_default();
        }
    }
    text
}
