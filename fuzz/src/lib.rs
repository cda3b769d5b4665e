//! What the fuzz targets do with their bytes, one function each.
//!
//! `crates/podbay/tests/fuzz` drives them on any compiler: for a moment at every `cargo test`, for as long as one likes by
//! `cargo xtask fuzz`. libFuzzer, which knows which code an input reaches, needs a nightly one: `cargo +nightly fuzz run glob`.

mod commands;
mod files;
mod messages;
mod settings;

pub use commands::command;
pub use files::{edit, glob};
pub use messages::{answer, head, path, record};
pub use settings::settings;

/// A target: its name, its function, and pieces of which its input is likely to be made.
pub type Target = (&'static str, fn(&[u8]), &'static [&'static str]);

/// All of them.
pub const TARGETS: &[Target] = &[
    ("glob", glob, files::PATTERNS),
    ("edit", edit, files::TEXTS),
    ("head", head, messages::JSON),
    ("answer", answer, messages::JSON),
    ("record", record, messages::RECORDS),
    ("path", path, messages::PATHS),
    ("settings", settings, settings::TOML),
    ("command", command, commands::SHELL),
];
