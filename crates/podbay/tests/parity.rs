//! docs/parity.md names tests as proof. Those tests have to exist.

mod named_tests;

use named_tests::{missing, root};

/// The page's states, as its table of counts lists them.
const STATES: [&str; 5] = ["yes", "untested", "partly", "no", "—"];

/// One row: its number, its state and its last cell.
fn rows(page: &str) -> Vec<(u32, &str, &str)> {
    let row = |line: &'static str| -> Option<(u32, &'static str, &'static str)> {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        match cells[..] {
            [number, _, _, state, shown] => Some((number.parse().ok()?, state, shown)),
            [number, _, _, state] => Some((number.parse().ok()?, state, "")),
            _ => None,
        }
    };
    // The page lives as long as the test.
    page.to_owned().leak().lines().filter_map(row).collect()
}

/// The tests that a cell names: `path` or `path::test`.
fn references(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|code| {
        let path = code.split("::").next().unwrap_or(code);
        path.contains('/') && (path.ends_with(".rs") || path.ends_with(".py") || path.ends_with(".ts"))
    })
}

/// Whether a reference names a file of tests and none of the tests in it. Programs have no functions of their own to name.
fn names_only_a_file(reference: &str) -> bool {
    let name = reference.rsplit('/').next().unwrap_or(reference);
    let is_python = name.starts_with("test_") && name.ends_with(".py");
    !reference.contains("::") && (is_python || name.ends_with(".rs") || name.ends_with(".test.ts"))
}

#[test]
fn every_named_test_exists() {
    let page = std::fs::read_to_string(root().join("docs/parity.md")).expect("docs/parity.md");
    let mut wrong = Vec::new();
    let rows = rows(&page);
    for (number, state, shown) in &rows {
        let mut named = 0;
        for reference in references(shown) {
            named += 1;
            wrong.extend(missing(reference).map(|why| format!("row {number}: {why}")));
            if names_only_a_file(reference) {
                wrong.push(format!("row {number}: which of the tests in {reference}?"));
            }
        }
        if matches!(*state, "yes" | "partly") && named == 0 {
            wrong.push(format!("row {number} says {state} and names no test"));
        }
        if matches!(*state, "partly" | "no" | "—") && shown.is_empty() {
            wrong.push(format!("row {number} says {state} and gives no reason"));
        }
    }
    assert!(wrong.is_empty(), "docs/parity.md:\n{}", wrong.join("\n"));
}

#[test]
fn the_counts_are_those_of_the_rows_and_no_row_is_missing() {
    let page = std::fs::read_to_string(root().join("docs/parity.md")).expect("docs/parity.md");
    let rows = rows(&page);
    let numbers: Vec<u32> = rows.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=197).collect::<Vec<_>>(), "rows are numbered without gaps");
    for (number, state, _) in &rows {
        assert!(STATES.contains(state), "row {number}: unknown state {state:?}");
    }
    for state in STATES {
        let count = rows.iter().filter(|(_, of, _)| *of == state).count();
        assert!(
            page.contains(&format!("\n| {state} | {count} |\n")),
            "the table of counts doesn't say {state}: {count}"
        );
    }
}
