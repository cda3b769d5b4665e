//! The `podbay` command, from outside.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod documents;
mod home;
mod hostile;
mod sessions;
