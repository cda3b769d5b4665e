//! What finds, makes, lists and deletes sandboxes.

use std::any::Any;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use podbay_proto::ErrorCode;

use crate::Sandbox;
use crate::description::Description;
use crate::error::Result;

/// An answer that a provider is working on.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Which sandbox is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The id of one that may exist. One that doesn't is made, under this id where the provider can.
    pub id: Option<String>,
    /// Labels for one that has to be made.
    pub labels: BTreeMap<String, String>,
    /// How long one that has to be made may live; the provider's own setting when there is none.
    pub ttl: Option<Duration>,
    /// How long it may be idle; the provider's own setting when there is none.
    pub idle_ttl: Option<Duration>,
    /// It shall end with this process.
    pub leashed: bool,
}

/// The sandbox of that id.
impl From<&str> for Wanted {
    fn from(id: &str) -> Self {
        Self { id: Some(id.to_owned()), ..Self::default() }
    }
}

/// The sandbox of that id.
impl From<String> for Wanted {
    fn from(id: String) -> Self {
        Self { id: Some(id), ..Self::default() }
    }
}

/// A sandbox that a provider has found or made.
#[derive(Debug)]
pub struct Provided {
    /// Its id, by which it is found again.
    pub id: String,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Whether it was made just now.
    pub created: bool,
    /// What has to live as long as a leashed sandbox.
    pub leash: Option<Box<dyn Any + Send + Sync>>,
}

/// What a sandbox is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// It is being made.
    Pending,
    /// It waits in a pool for someone to want it.
    Warm,
    /// It can be used.
    Running,
    /// It has ended, and what it left hasn't been removed.
    Terminated,
}

impl Phase {
    /// As text: `pending`, `warm`, `running`, `terminated`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Warm => "warm",
            Self::Running => "running",
            Self::Terminated => "terminated",
        }
    }
}

/// A sandbox in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it is doing.
    pub phase: Phase,
    /// When it was made: milliseconds since 1970.
    pub created_ms: u64,
    /// When it was last used, where that is known.
    pub active_ms: Option<u64>,
    /// When it ends at the latest.
    pub expires_ms: Option<u64>,
}

/// Which sandboxes to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only those that have all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only those that do this.
    pub phase: Option<Phase>,
    /// At most so many; the provider's own page size when there is none.
    pub limit: Option<usize>,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The sandboxes, sorted by id.
    pub sandboxes: Vec<Listed>,
    /// Where the next page begins; nothing on the last.
    pub cursor: Option<String>,
}

/// What a clean-up did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// The ids of what was removed.
    pub deleted: Vec<String>,
    /// How many stay.
    pub kept: usize,
    /// What couldn't be removed, and why.
    pub failed: Vec<(String, String)>,
}

/// Counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// All sandboxes.
    pub total: usize,
    /// Those that can be used.
    pub running: usize,
    /// Those that wait in a pool.
    pub warm: usize,
    /// Those that weren't used for a while.
    pub idle: usize,
}

/// How full a pool of sandboxes that wait is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// Those that can be had at once.
    pub available: usize,
    /// Those that came from the pool and are in use.
    pub active: usize,
    /// All of the pool: available, in use, and still being made.
    pub total: usize,
    /// How many shall be available.
    pub target: usize,
}

/// Finds, makes, lists and deletes sandboxes. State lives where the sandboxes live, so any number of processes may use
/// providers of the same kind at once.
pub trait Provider: Send + Sync {
    /// The mode's name: `local`, `raw`, `agent-sandbox`.
    fn mode(&self) -> &'static str;

    /// Finds the wanted sandbox, or makes it. Two callers that want the same id get the same sandbox.
    fn get_or_create<'a>(&'a self, wanted: &'a Wanted) -> Pending<'a, Provided>;

    /// Finds a sandbox that must exist.
    fn reconnect<'a>(&'a self, id: &'a str) -> Pending<'a, Provided>;

    /// Lists one page of sandboxes.
    fn list<'a>(&'a self, query: &'a Query) -> Pending<'a, Page>;

    /// Describes a sandbox in full. This doesn't count as using it.
    fn describe<'a>(&'a self, id: &'a str) -> Pending<'a, Description>;

    /// Deletes a sandbox and all that belongs to it; whether there was one.
    fn delete<'a>(&'a self, id: &'a str) -> Pending<'a, bool>;

    /// Deletes what is over, and what was idle for longer than `max_idle`.
    fn cleanup(&self, max_idle: Option<Duration>) -> Pending<'_, Cleaned>;

    /// Counts; a sandbox that wasn't used for `idle` counts as idle.
    fn stats(&self, idle: Duration) -> Pending<'_, Stats>;

    /// How full the pool is: all zero where there is none.
    fn pool_status(&self) -> Pending<'_, PoolStatus> {
        Box::pin(async { Ok(PoolStatus::default()) })
    }

    /// Fills the pool once, and returns when it is full.
    ///
    /// A provider without a pool answers [`Unsupported`](ErrorCode::Unsupported).
    fn refill(&self) -> Pending<'_, PoolStatus> {
        let message = format!("mode {} keeps no pool of sandboxes: use mode raw with warm_pool_size set", self.mode());
        Box::pin(async move { Err(podbay_proto::Error::new(ErrorCode::Unsupported, message).into()) })
    }
}
