//! podbayd as a runtime: what upstream's SDKs and strangers get from the port without authentication.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod commands;
mod files;
mod hostile;
mod support;
