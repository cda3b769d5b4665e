//! The `podbay` command, from outside.
// Helpers of tests, where the lint doesn't see that they are.
#![allow(clippy::unwrap_used)]

mod audit;
mod cluster;
mod deploy;
mod describe;
mod documents;
mod home;
mod hostile;
mod install;
mod people;
mod raw;
mod raw_doctor;
mod router_only;
mod sessions;
mod settings;
mod terminal;
mod trust;
