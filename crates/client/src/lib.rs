//! A sandbox as a Rust value: typed, asynchronous operations over one connection.
//!
//! A [`Sandbox`] is a handle. It opens its connection when it is first needed, shares it among all clones and tasks, and reopens
//! it when it breaks; nothing is lost and nothing happens twice. Transfers of more than a megabyte go over a second
//! connection, so that other operations don't wait for them. Dropping a future cancels its operation.

mod channel;
mod connection;
mod deadline;
pub mod description;
mod error;
mod exec;
mod file_operations;
mod guard;
mod links;
pub mod mount;
mod origin;
mod plain_operations;
pub mod provider;
pub mod quantity;
mod session;
pub mod tcp;
mod transfer;
mod trees;

pub use channel::{ByteStream, Channel, Credential, Opening, TcpChannel, UnixChannel};
pub use error::{Error, Result};
pub use exec::{Control, Event, Exec, Output};
pub use guard::{Content, Effect, Ending, Guard, Ticket};
pub use origin::{Origin, Owner};
pub use plain_operations::PlainRequest;
pub use podbay_proto::exec::{
    Command, CommandLimits, Cut, DEFAULT_OUTPUT_CAP, DEFAULT_TIMEOUT_MS, ExecId, Exit, Info, Process, Program, State,
    Stream, Target, Usage,
};
pub use podbay_proto::files;
pub use podbay_proto::session::{Lifetime, Protection, ProtectionKind, ProtectionReport, Welcome};
pub use podbay_proto::utf8;
pub use podbay_proto::{Error as OperationError, ErrorCode, Group, OPERATIONS, Operation, RawPath, Subject};

pub use transfer::{Meter, Progress};
pub use trees::Transferred;

use podbay_proto::session::Protections;
use session::{Session, WeakSession};

/// One sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox {
    session: Session,
}

impl Sandbox {
    /// The sandbox at the other end of a channel. Nothing is opened yet.
    pub fn new(channel: impl Channel + 'static) -> Self {
        Self { session: Session::new(std::sync::Arc::new(channel)) }
    }

    /// The same sandbox, in which every command has these environment variables unless it sets them itself.
    #[must_use]
    pub fn with_env(&self, env: std::collections::BTreeMap<String, String>) -> Self {
        Self { session: self.session.with_env(env) }
    }

    /// The same sandbox over the same connections, with a guard that decides on every operation. A sandbox that has a guard
    /// already keeps it: rules can be added, never removed.
    #[must_use]
    pub fn guarded(&self, guard: std::sync::Arc<dyn Guard>) -> Self {
        Self { session: self.session.guarded(guard) }
    }

    /// Asks the sandbox for its version, working directory and activity.
    ///
    /// # Errors
    /// When it can't be reached or speaks another version of the protocol.
    pub async fn hello(&self) -> Result<Welcome> {
        self.session.welcome().await
    }

    /// Sets how long the sandbox may live, counted from now.
    ///
    /// # Errors
    /// When it can't be reached, or its podbayd is too old for this.
    pub async fn set_lifetime(&self, lifetime: &Lifetime) -> Result<()> {
        self.session.ask(*lifetime).await.map(drop)
    }

    /// How podbayd is protected from the sandbox's commands, and what isn't protected.
    ///
    /// # Errors
    /// When it can't be reached, or its podbayd is too old for this.
    pub async fn protection(&self) -> Result<ProtectionReport> {
        self.session.ask(Protections {}).await
    }

    /// Whether the sandbox was restarted since the last call: its files are there, its processes are gone, and operations that
    /// were under way ended as [`Error::SandboxRestarted`].
    pub fn take_restarted(&self) -> bool {
        self.session.take_restarted()
    }

    /// A handle that doesn't keep the connection open.
    pub fn downgrade(&self) -> WeakSandbox {
        WeakSandbox { session: self.session.downgrade() }
    }
}

/// A handle to a sandbox that lives only as long as others use it.
#[derive(Debug, Clone)]
pub struct WeakSandbox {
    session: WeakSession,
}

impl WeakSandbox {
    /// Whether anybody still has a handle.
    pub fn in_use(&self) -> bool {
        self.session.upgrade().is_some()
    }

    /// Asks the sandbox for its activity over the connection that is open. Returns nothing when none is open, or it breaks.
    pub async fn glance(&self) -> Option<Welcome> {
        self.session.upgrade()?.glance().await
    }
}
