//! Providers create, find, list and delete sandboxes.

use std::any::Any;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use podbay_proto::ErrorCode;

use crate::Sandbox;
use crate::description::Description;
use crate::error::Result;

/// A provider's pending answer.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Which sandbox a caller wants, and how a new one should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The id of a sandbox that may exist. Otherwise it is created with this id; a random one when none is given.
    pub id: Option<String>,
    /// Labels of a new sandbox.
    pub labels: BTreeMap<String, String>,
    /// How long a new sandbox may live; the provider's setting when not given.
    pub ttl: Option<Duration>,
    /// How long a new sandbox may be idle; the provider's setting when not given.
    pub idle_ttl: Option<Duration>,
    /// Whether a new sandbox ends with this process.
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

/// A sandbox that a provider found or created.
#[derive(Debug)]
pub struct Provided {
    /// Its id, by which it is found again.
    pub id: String,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Whether it was created by this call.
    pub created: bool,
    /// Whether it was suspended, and this call resumed it.
    pub resumed: bool,
    /// Whether it came from a warm pool, if that is known.
    pub launch: Option<Launch>,
    /// What keeps a leashed sandbox alive: the sandbox ends when this is dropped.
    pub leash: Option<Box<dyn Any + Send + Sync>>,
}

/// How a sandbox was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Launch {
    /// It was started for whoever asked for it.
    Cold,
    /// It was ready in a warm pool.
    Warm,
}

impl Launch {
    /// As text: `cold`, `warm`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

/// What a sandbox is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// It is being created.
    Pending,
    /// It is ready in a warm pool.
    Warm,
    /// It can be used.
    Running,
    /// It has no processes until it is resumed.
    Suspended,
    /// It has ended, and its remains haven't been removed.
    Terminated,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Warm, Self::Running, Self::Suspended, Self::Terminated];

    /// As text: `pending`, `warm`, `running`, `suspended`, `terminated`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Warm => "warm",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Terminated => "terminated",
        }
    }
}

/// A sandbox in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// The Kubernetes namespace that it is in; none for a local sandbox.
    pub namespace: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it is doing.
    pub phase: Phase,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it was last used, if that is known.
    pub active_ms: Option<u64>,
    /// When it ends at the latest.
    pub expires_ms: Option<u64>,
    /// How long it may live, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// How long it may be idle, in milliseconds.
    pub idle_ttl_ms: Option<u64>,
}

/// Which sandboxes to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only sandboxes with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only sandboxes in this phase.
    pub phase: Option<Phase>,
    /// At most so many per page; the provider's page size when not given.
    pub limit: Option<usize>,
    /// The cursor of the page before.
    pub cursor: Option<String>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The sandboxes, sorted by id.
    pub sandboxes: Vec<Listed>,
    /// The cursor for the next page; none on the last page.
    pub cursor: Option<String>,
}

/// The result of a clean-up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// The ids of the sandboxes that were deleted.
    pub deleted: Vec<String>,
    /// How many sandboxes were kept.
    pub kept: usize,
    /// The ids of sandboxes that couldn't be deleted, and why.
    pub failed: Vec<(String, String)>,
}

/// How many sandboxes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// All sandboxes.
    pub total: usize,
    /// Those that are running.
    pub running: usize,
    /// Those that are ready in a warm pool.
    pub warm: usize,
    /// Those that haven't been used for a while.
    pub idle: usize,
}

/// How full a warm pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// Sandboxes that are ready.
    pub available: usize,
    /// Sandboxes from the pool that are in use.
    pub active: usize,
    /// All sandboxes of the pool: ready, in use, and being created.
    pub total: usize,
    /// How many should be ready.
    pub target: usize,
}

/// Creates, finds, lists and deletes sandboxes. State lives where the sandboxes live, so any number of processes may use
/// providers of the same kind at once.
pub trait Provider: Send + Sync {
    /// The mode's name: `local`, `raw`, `agent-sandbox`.
    fn mode(&self) -> &'static str;

    /// Finds a sandbox or creates it. Two callers that want the same id get the same sandbox.
    fn get_or_create<'a>(&'a self, wanted: &'a Wanted) -> Pending<'a, Provided>;

    /// Finds a sandbox that exists.
    fn reconnect<'a>(&'a self, id: &'a str) -> Pending<'a, Provided>;

    /// Lists one page of sandboxes.
    fn list<'a>(&'a self, query: &'a Query) -> Pending<'a, Page>;

    /// Describes a sandbox in full. This doesn't count as using it.
    fn describe<'a>(&'a self, id: &'a str) -> Pending<'a, Description>;

    /// Deletes a sandbox and everything that belongs to it. Returns whether it existed.
    fn delete<'a>(&'a self, id: &'a str) -> Pending<'a, bool>;

    /// Ends a sandbox's processes and keeps what is on its persistent volumes. Its memory and all other files are lost.
    ///
    /// A provider that can't answers [`Unsupported`](ErrorCode::Unsupported).
    fn suspend<'a>(&'a self, _id: &'a str) -> Pending<'a, ()> {
        Box::pin(async { Err(unsupported(self.mode(), "can't suspend sandboxes")) })
    }

    /// Makes a suspended sandbox usable again.
    ///
    /// A provider that can't answers [`Unsupported`](ErrorCode::Unsupported).
    fn resume<'a>(&'a self, _id: &'a str) -> Pending<'a, ()> {
        Box::pin(async { Err(unsupported(self.mode(), "can't resume sandboxes")) })
    }

    /// Deletes what ended sandboxes left behind, and sandboxes that were idle for longer than `max_idle`.
    fn cleanup(&self, max_idle: Option<Duration>) -> Pending<'_, Cleaned>;

    /// Counts sandboxes. One that wasn't used for `idle` counts as idle.
    fn stats(&self, idle: Duration) -> Pending<'_, Stats>;

    /// How full the warm pool is; all zero where there is none.
    fn pool_status(&self) -> Pending<'_, PoolStatus> {
        Box::pin(async { Ok(PoolStatus::default()) })
    }

    /// Fills the warm pool and returns when it is full.
    ///
    /// A provider without a pool answers [`Unsupported`](ErrorCode::Unsupported).
    fn refill(&self) -> Pending<'_, PoolStatus> {
        Box::pin(async { Err(unsupported(self.mode(), "has no warm pool")) })
    }
}

fn unsupported(mode: &str, what: &str) -> crate::Error {
    podbay_proto::Error::new(ErrorCode::Unsupported, format!("mode {mode} {what}")).into()
}
