//! Real sandboxes on this machine: made, found, listed, ended and killed, as this user and, where that is root, as an
//! ordinary one.
#![allow(clippy::unwrap_used)]

mod bombs;
mod commands;
mod confinement;
mod full_disk;
mod harness;
mod kills;
mod lifetime;
mod listing;
mod options;
mod races;
mod remains;
mod walls;

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
        walls::CASES,
    ])
}
