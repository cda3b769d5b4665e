//! Podbay's sandboxes as a server of the Model Context Protocol: every agent that speaks it gets a sandbox.
//!
//! The tools follow from the table of operations ([`tools`]); everything else is `podbay`'s: settings, rules, audit, providers.
//! Each MCP session has one sandbox, created with its first tool call and deleted at its end, or all share a named one.

mod arguments;
mod failure;
pub mod http;
mod options;
mod progress;
mod reply;
mod resources;
mod server;
mod session;
mod stdio;
pub mod tools;

pub use options::Options;
pub use stdio::serve as serve_stdio;
