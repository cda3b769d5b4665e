//! Sandboxes by claims, with upstream's own controller on a real cluster, and an account that may do no more than is needed.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod claims;
mod environment;
mod failures;
mod lifetime;
mod place;
mod suspension;
