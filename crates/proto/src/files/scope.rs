//! How a request's paths are interpreted, and what they may reach.

use serde::{Deserialize, Serialize};

use crate::RawPath;

/// How a request's paths are interpreted, and what they may reach. The default is the whole file system of the sandbox.
///
/// The kernel enforces the confinement (`root`): everything is opened beneath the root's descriptor. Which directory that
/// is, its path decides anew for each operation, links followed: a command that can put a link in the root's place, or in
/// that of a directory above it, chooses another root. Where commands may be hostile, confine files to a root whose parent
/// directories they can't change. The prefix rules are guardrails in front of it. They are checked against the directory
/// that was actually opened, so neither `..` nor a symbolic link gets around them; a second hard link to a file does.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Scope {
    /// Base of relative paths and default start of glob and grep. In the same view as all paths: with `virtual_paths`
    /// it is below the root, and `/` when absent; otherwise the daemon's working directory stands in when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<RawPath>,
    /// Confines the operation to this directory. A path, `..` or link that leads out of it, and every absolute link, is
    /// an `escapes_root` error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<RawPath>,
    /// Paths in the request and in the result are relative to the root: `/a` is `<root>/a`. Needs `root`.
    #[serde(skip_serializing_if = "super::is_false")]
    pub virtual_paths: bool,
    /// When not empty, only paths at or below one of these may be touched; an empty list allows all. Compared component by
    /// component, in the same view as all paths. They are taken literally: an allowed prefix that is itself a link opens
    /// nothing elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_prefixes: Vec<RawPath>,
    /// Paths at or below one of these may not be touched, even if an allowed prefix covers them. A prefix that is a
    /// link, or is below one, covers both its own name and the path to which it leads, whether that exists or not. While
    /// one can't be followed, because links form a loop or the directory of a link is closed, what the rules limit is
    /// refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny_prefixes: Vec<RawPath>,
    /// Applies the prefix rules to reading too. By default they apply only to operations that change something. If set,
    /// ls, glob, grep and tree neither enter nor name what is forbidden.
    #[serde(skip_serializing_if = "super::is_false")]
    pub rules_for_reads: bool,
}
