//! Attacks from inside a jail, which must fail, as root and as an ordinary user; what a jail leaves behind; and normal work, which
//! must succeed.

#![allow(clippy::unwrap_used)] // a case fails by panicking

#[path = "../support/case_process.rs"]
mod case_process;
mod descriptors;
mod fallback;
mod files;
mod harness;
mod kernel;
mod limits;
mod links;
mod network;
mod privileges;
mod processes;
mod raw;
mod remains;
mod set_id;
mod work;

fn main() -> std::process::ExitCode {
    harness::main(&[
        files::CASES,
        set_id::CASES,
        links::CASES,
        descriptors::CASES,
        privileges::CASES,
        processes::CASES,
        kernel::CASES,
        network::CASES,
        limits::CASES,
        fallback::CASES,
        remains::CASES,
        work::CASES,
    ])
}
