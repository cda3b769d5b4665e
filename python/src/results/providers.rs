//! Results of providers.

use std::collections::BTreeMap;

use podbay::provider;

use super::{from_milliseconds, iterable, result_class};

result_class! {
    /// A sandbox in a list.
    Listed(provider::Listed) as listed, repr(id, phase, labels) {
        /// Its id.
        id: &str = &listed.id,
        /// The Kubernetes namespace that it is in; None for a local sandbox.
        namespace: Option<&str> = listed.namespace.as_deref(),
        /// Its labels.
        labels: BTreeMap<String, String> = listed.labels.clone(),
        /// `pending`, `warm`, `running` or `terminated`.
        phase: &'static str = listed.phase.as_str(),
        /// When it was created: seconds since 1970.
        created: f64 = from_milliseconds(listed.created_ms),
        /// When it was last used, if that is known.
        active: Option<f64> = listed.active_ms.map(from_milliseconds),
        /// When it expires at the latest.
        expires: Option<f64> = listed.expires_ms.map(from_milliseconds),
        /// How many seconds it may live.
        ttl: Option<f64> = listed.ttl_ms.map(from_milliseconds),
        /// How many seconds it may be idle.
        idle_ttl: Option<f64> = listed.idle_ttl_ms.map(from_milliseconds),
    }

    /// One page of a list.
    Page(provider::Page) as page, repr(sandboxes, cursor) {
        /// The sandboxes, sorted by id.
        sandboxes: Vec<Listed> = page.sandboxes.iter().cloned().map(Listed).collect(),
        /// Where the next page begins; None on the last page.
        cursor: Option<&str> = page.cursor.as_deref(),
    }

    /// The outcome of a cleanup.
    Cleaned(provider::Cleaned) as cleaned, repr(deleted, kept, failed) {
        /// The ids of the deleted sandboxes.
        deleted: Vec<String> = cleaned.deleted.clone(),
        /// How many sandboxes were kept.
        kept: usize = cleaned.kept,
        /// Which sandboxes couldn't be deleted, and why.
        failed: Vec<(String, String)> = cleaned.failed.clone(),
    }

    /// How many sandboxes there are.
    Stats(provider::Stats) as stats, repr(total, running, warm, idle) {
        /// All sandboxes.
        total: usize = stats.total,
        /// Those that are ready for use.
        running: usize = stats.running,
        /// Those waiting in a warm pool.
        warm: usize = stats.warm,
        /// Those that haven't been used for a while.
        idle: usize = stats.idle,
    }

    /// How full the warm pool is.
    PoolStatus(provider::PoolStatus) as pool, repr(available, active, total, target) {
        /// Sandboxes that can be claimed right away.
        available: usize = pool.available,
        /// Sandboxes from the pool that are in use.
        active: usize = pool.active,
        /// All sandboxes of the pool: available, in use or still starting.
        total: usize = pool.total,
        /// How many sandboxes should be available.
        target: usize = pool.target,
    }
}

iterable! {
    Page.sandboxes: |page| page.sandboxes.len();
}
