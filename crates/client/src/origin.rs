//! Where a sandbox comes from, for those that a provider has found or made.

use std::any::Any;
use std::sync::Arc;

use podbay_proto::ErrorCode;

use crate::Sandbox;
use crate::error::Result;
use crate::provider::{Launch, Pending};

/// Deletes the sandboxes that came from it.
pub trait Owner: Send + Sync {
    /// Deletes a sandbox and everything that belongs to it. Returns whether it existed.
    fn delete<'a>(&'a self, id: &'a str) -> Pending<'a, bool>;
}

/// Where a sandbox comes from.
pub struct Origin {
    /// Its id, by which it is found again.
    pub id: String,
    /// Whether it was created for this caller; otherwise it existed.
    pub created: bool,
    /// Whether it replaces one of the same id that the owner gave out before and that has ended: that one's files and processes
    /// are gone.
    pub replaced: bool,
    /// Whether it came from a warm pool, if that is known.
    pub launch: Option<Launch>,
    /// Who deletes it.
    pub owner: Arc<dyn Owner>,
    /// What keeps a leashed sandbox alive. It lives as long as the last handle to the sandbox or to one of its commands.
    pub leash: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Origin")
            .field("id", &self.id)
            .field("created", &self.created)
            .field("replaced", &self.replaced)
            .field("leashed", &self.leash.is_some())
            .finish_non_exhaustive()
    }
}

impl Sandbox {
    /// The same sandbox, which knows where it comes from.
    #[must_use]
    pub fn with_origin(&self, origin: Origin) -> Self {
        Self { session: self.session.with_origin(origin) }
    }

    /// The sandbox's id, by which it is found again. Empty for a sandbox that was reached by a channel and no provider.
    pub fn id(&self) -> &str {
        self.session.origin().map_or("", |origin| &origin.id)
    }

    /// Whether it came from a warm pool; nothing where that isn't known.
    pub fn launch(&self) -> Option<Launch> {
        self.session.origin().and_then(|origin| origin.launch)
    }

    /// Whether the call that returned this sandbox created it; otherwise it existed.
    pub fn created(&self) -> bool {
        self.session.origin().is_some_and(|origin| origin.created)
    }

    /// Whether it replaces one of the same id that was given out before and that has ended: that one's files and processes are
    /// gone.
    pub fn replaced(&self) -> bool {
        self.session.origin().is_some_and(|origin| origin.replaced)
    }

    /// Deletes the sandbox and everything that belongs to it. Returns whether it still existed.
    ///
    /// # Errors
    /// When something of it can't be removed; `unsupported` for a sandbox that was reached by a channel and no provider.
    pub async fn destroy(&self) -> Result<bool> {
        match self.session.origin() {
            Some(origin) => origin.owner.delete(&origin.id).await,
            None => {
                let message = "this handle was opened from a channel and has no provider: delete the sandbox through \
                               the provider that created it";
                Err(podbay_proto::Error::new(ErrorCode::Unsupported, message).into())
            }
        }
    }
}
