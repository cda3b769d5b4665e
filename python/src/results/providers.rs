//! What providers return.

use std::collections::BTreeMap;

use podbay::provider;
use pyo3::prelude::*;

use super::{from_milliseconds, iterable, shown};
use crate::text::PathText;

/// A sandbox in a list.
#[pyclass(frozen, get_all, module = "podbay")]
#[derive(Clone)]
pub struct Listed {
    /// Its id.
    id: String,
    /// Its labels.
    labels: BTreeMap<String, String>,
    /// `pending`, `warm`, `running` or `terminated`.
    phase: &'static str,
    /// When it was made: seconds since 1970.
    created: f64,
    /// When it was last used, where that is known.
    active: Option<f64>,
    /// When it ends at the latest.
    expires: Option<f64>,
}

/// One page of a list.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct Page {
    /// The sandboxes, sorted by id.
    sandboxes: Vec<Listed>,
    /// Where the next page begins; None on the last.
    cursor: Option<String>,
}

impl From<provider::Page> for Page {
    fn from(page: provider::Page) -> Self {
        let sandboxes = page.sandboxes.into_iter().map(|listed| Listed {
            id: listed.id,
            labels: listed.labels,
            phase: listed.phase.as_str(),
            created: from_milliseconds(listed.created_ms),
            active: listed.active_ms.map(from_milliseconds),
            expires: listed.expires_ms.map(from_milliseconds),
        });
        Self { sandboxes: sandboxes.collect(), cursor: page.cursor }
    }
}

/// What a clean-up did.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct Cleaned {
    /// The ids of what was removed.
    deleted: Vec<String>,
    /// How many stay.
    kept: usize,
    /// What couldn't be removed, and why.
    failed: Vec<(String, String)>,
}

impl From<provider::Cleaned> for Cleaned {
    fn from(cleaned: provider::Cleaned) -> Self {
        Self { deleted: cleaned.deleted, kept: cleaned.kept, failed: cleaned.failed }
    }
}

/// Counts.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct Stats {
    /// All sandboxes.
    total: usize,
    /// Those that can be used.
    running: usize,
    /// Those that wait in a pool.
    warm: usize,
    /// Those that weren't used for a while.
    idle: usize,
}

impl From<provider::Stats> for Stats {
    fn from(stats: provider::Stats) -> Self {
        Self { total: stats.total, running: stats.running, warm: stats.warm, idle: stats.idle }
    }
}

/// How full a pool of sandboxes that wait is.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct PoolStatus {
    /// Those that can be had at once.
    available: usize,
    /// Those that came from the pool and are in use.
    active: usize,
    /// All of the pool: available, in use, and still being made.
    total: usize,
    /// How many shall be available.
    target: usize,
}

impl From<provider::PoolStatus> for PoolStatus {
    fn from(status: provider::PoolStatus) -> Self {
        let provider::PoolStatus { available, active, total, target } = status;
        Self { available, active, total, target }
    }
}

/// Who a sandbox's podbayd is.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct Welcome {
    /// Its protocol version.
    version: String,
    /// Its build.
    build: String,
    /// This run of podbayd: another value means that it was restarted.
    instance: String,
    /// The working directory of commands.
    workdir: PathText,
    /// Where it keeps its own files.
    state: PathText,
    /// For how long nothing has been under way, in seconds.
    idle: f64,
    /// How many commands have something alive.
    running: u32,
}

impl From<podbay::Welcome> for Welcome {
    fn from(welcome: podbay::Welcome) -> Self {
        Self {
            version: welcome.version.to_string(),
            build: welcome.build,
            instance: welcome.instance,
            workdir: PathText(welcome.workdir),
            state: PathText(welcome.state),
            idle: from_milliseconds(welcome.idle_ms),
            running: welcome.running,
        }
    }
}

shown! {
    Listed: "id", "phase", "labels";
    Page: "sandboxes", "cursor";
    Cleaned: "deleted", "kept", "failed";
    PoolStatus: "available", "active", "total", "target";
    Stats: "total", "running", "warm", "idle";
    Welcome: "version", "build", "workdir";
}

iterable! {
    Page.sandboxes;
}
