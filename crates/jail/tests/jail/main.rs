//! Attempts to get out of a jail, each of which must fail, as root and as an ordinary user; what a
//! jail leaves behind; and the normal work that must go on in it.

#![allow(clippy::unwrap_used)] // a case fails by panicking

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
