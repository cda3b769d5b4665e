//! Results of providers. `src/results.ts` documents their fields.

use std::collections::HashMap;

use napi_derive::napi;
use podbay::provider;

use crate::conversions::number;

fn count(value: usize) -> i64 {
    number(value as u64)
}

/// A sandbox in a list.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct Listed {
    pub id: String,
    pub labels: HashMap<String, String>,
    pub phase: String,
    pub created: f64,
    pub active: Option<f64>,
    pub expires: Option<f64>,
}

impl From<provider::Listed> for Listed {
    fn from(listed: provider::Listed) -> Self {
        Self {
            id: listed.id,
            labels: listed.labels.into_iter().collect(),
            phase: listed.phase.as_str().to_owned(),
            created: listed.created_ms as f64,
            active: listed.active_ms.map(|active| active as f64),
            expires: listed.expires_ms.map(|expires| expires as f64),
        }
    }
}

/// One page of a list.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct Page {
    pub sandboxes: Vec<Listed>,
    pub cursor: Option<String>,
}

impl From<provider::Page> for Page {
    fn from(page: provider::Page) -> Self {
        Self { sandboxes: page.sandboxes.into_iter().map(Into::into).collect(), cursor: page.cursor }
    }
}

/// A sandbox that couldn't be deleted.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct FailedCleanup {
    pub id: String,
    pub reason: String,
}

/// The outcome of a cleanup.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct Cleaned {
    pub deleted: Vec<String>,
    pub kept: i64,
    pub failed: Vec<FailedCleanup>,
}

impl From<provider::Cleaned> for Cleaned {
    fn from(cleaned: provider::Cleaned) -> Self {
        let failed = cleaned.failed.into_iter().map(|(id, reason)| FailedCleanup { id, reason }).collect();
        Self { deleted: cleaned.deleted, kept: count(cleaned.kept), failed }
    }
}

/// How many sandboxes there are.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct Stats {
    pub total: i64,
    pub running: i64,
    pub warm: i64,
    pub idle: i64,
}

impl From<provider::Stats> for Stats {
    fn from(stats: provider::Stats) -> Self {
        let [total, running, warm, idle] = [stats.total, stats.running, stats.warm, stats.idle].map(count);
        Self { total, running, warm, idle }
    }
}

/// How full the warm pool is.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct PoolStatus {
    pub available: i64,
    pub active: i64,
    pub total: i64,
    pub target: i64,
}

impl From<provider::PoolStatus> for PoolStatus {
    fn from(pool: provider::PoolStatus) -> Self {
        let [available, active, total, target] = [pool.available, pool.active, pool.total, pool.target].map(count);
        Self { available, active, total, target }
    }
}
