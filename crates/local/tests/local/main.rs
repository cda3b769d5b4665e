//! Real sandboxes on this machine, as this user and, if that is root, as an ordinary user too.
#![allow(clippy::unwrap_used)]

mod bombs;
#[path = "../../../jail/tests/support/case_process.rs"]
mod case_process;
mod commands;
mod confinement;
mod full_disk;
mod harness;
mod kills;
mod lifetime;
mod listing;
mod options;
mod protection;
mod races;
mod remains;

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::main(&[
        bombs::CASES,
        commands::CASES,
        confinement::CASES,
        full_disk::CASES,
        kills::CASES,
        lifetime::CASES,
        listing::CASES,
        options::CASES,
        races::CASES,
        remains::CASES,
        protection::CASES,
    ])
}
