//! One table of attacks on sandboxes, run on every provider, isolation and user.
//!
//! ```text
//! cargo test -p podbay --test escapes                      # what can run here: pods with PODBAY_RIG=1
//! cargo test -p podbay --test escapes -- io-uring pod      # rows and columns by name
//! cargo xtask security-tests                               # everything, and docs/security-tests.md
//! ```
//!
//! To add a row: one entry in the table of its class (`escape.rs`, `leak.rs`, …), with a Python program that puts what it
//! got into `loot`, or a function where the caller takes part. Then `cargo xtask security-tests`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod attack;
mod bait;
mod column;
mod confinement;
mod escape;
mod host_denial;
mod leak;
mod peer_denial;
mod podbayd;
mod report;
mod sandbox_denial;
mod site;

use std::path::Path;
use std::process::ExitCode;

use confinement::{CONFINEMENTS, Confinement};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--column", name, scratch, ref filters @ ..] => {
            let confinement = Confinement::named(name).unwrap_or_else(|| panic!("there is no confinement {name:?}"));
            column::run(confinement, Path::new(scratch), filters)
        }
        ["--list", ..] => {
            attack::table().iter().for_each(|attack| println!("{}: test", attack.id));
            ExitCode::SUCCESS
        }
        ["--report", file] => all(&[], Some(Path::new(file))),
        ref words => all(&words.iter().filter(|word| !word.starts_with('-')).copied().collect::<Vec<_>>(), None),
    }
}

/// Runs all columns, and writes the report if one is wanted.
fn all(filters: &[&str], report: Option<&Path>) -> ExitCode {
    // A filter names columns by words of theirs, everything else rows.
    let of_columns = |filter: &&&str| {
        CONFINEMENTS.iter().any(|confinement| confinement.name().split(", ").any(|word| word == **filter))
    };
    let (columns, rows): (Vec<&str>, Vec<&str>) = (
        filters.iter().filter(of_columns).copied().collect(),
        filters.iter().filter(|f| !of_columns(f)).copied().collect(),
    );
    let chosen = CONFINEMENTS
        .into_iter()
        .filter(|confinement| columns.iter().all(|word| confinement.name().split(", ").any(|w| w == *word)));
    let results: Vec<column::Column> = chosen.map(|confinement| column::start(confinement, &rows)).collect();
    let mut failed: Vec<String> = results.iter().flat_map(column::Column::failures).collect();
    let passed = results.iter().map(|column| column.results.len()).sum::<usize>() - failed.len();
    match report {
        Some(file) => report::write(file, &results),
        None if filters.is_empty() => failed.extend(report::check().into_iter().chain(column::check())),
        None => {}
    }
    for failure in &failed {
        println!("FAILED {failure}");
    }
    println!("{passed} passed, {} failed", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
