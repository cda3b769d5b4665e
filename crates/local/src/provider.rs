//! The local provider: finds, creates, lists and deletes sandboxes.

use std::path::Path;
use std::time::{Duration, Instant};

use podbay_client::provider::{Cleaned, Page, Pending, Phase, Provided, Provider, Query, Stats, Wanted};
use podbay_client::{Sandbox, UnixChannel, description};
use podbay_supervision::SOCKET;

use crate::error::{Error, Result};
use crate::home::Home;
use crate::listing::now_ms;
use crate::options::Options;
use crate::sandbox_dir::{SandboxDir, check_length, check_name};
use crate::{create, describe, teardown};

/// How long an existing sandbox may take to answer: it may have been created just now, on a busy machine.
const ANSWER: Duration = Duration::from_secs(30);

/// The sandboxes of one [`Home`].
#[derive(Debug, Clone)]
pub struct Local {
    home: Home,
    options: Options,
}

impl Local {
    /// The current user's sandboxes.
    ///
    /// # Errors
    /// When the user's home for sandboxes can't be created or isn't safe.
    pub fn new() -> Result<Self> {
        Home::of_user().map(Self::at)
    }

    /// The sandboxes of a home.
    pub fn at(home: Home) -> Self {
        Self { home, options: Options::default() }
    }

    /// Sets the options of sandboxes that are created from now on.
    #[must_use]
    pub fn with(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// The directory in which the sandboxes live.
    pub fn home(&self) -> &Home {
        &self.home
    }

    async fn find_or_make(&self, wanted: &Wanted) -> Result<Provided> {
        let id = wanted.id.clone().unwrap_or_else(|| format!("pb-{:016x}", rand::random::<u64>()));
        check_name(&id)?;
        let dir = self.home.sandboxes().join(&id);
        check_length(&dir)?;
        let until = Instant::now() + ANSWER;
        loop {
            if let Some(sandbox) = self.find(&id).await? {
                return Ok(Provided { id, sandbox, created: false, resumed: false, launch: None, leash: None });
            }
            let (made, ()) =
                tokio::join!(create::create(&self.home, &self.options, &id, &dir, wanted), self.sweep_some());
            if let Some((leash, _)) = made? {
                let sandbox = connect(&dir);
                let leash = wanted.leashed.then(|| Box::new(leash) as _);
                tracing::debug!(id, "created a sandbox");
                return Ok(Provided { id, sandbox, created: true, resumed: false, launch: None, leash });
            }
            if Instant::now() > until {
                return Err(Error::Create(format!("other processes keep creating and deleting {id}; try again")));
            }
        }
    }

    /// The running sandbox with an id, once it answers. Removes a dead one.
    async fn find(&self, id: &str) -> Result<Option<Sandbox>> {
        let Some(found) = SandboxDir::read(&self.home.sandboxes(), id)? else { return Ok(None) };
        if found.phase() != Phase::Terminated {
            let sandbox = connect(&found.dir);
            match tokio::time::timeout(ANSWER, sandbox.hello()).await {
                Ok(Ok(_)) => return Ok(Some(sandbox)),
                // It ended while it was asked.
                Ok(Err(_)) if found.phase() == Phase::Terminated => {}
                Ok(Err(error)) => return Err(Error::Create(error.to_string())),
                Err(_) => {
                    let why = format!("it didn't answer within {} s; delete it", ANSWER.as_secs());
                    return Err(Error::Stuck { id: id.to_owned(), why });
                }
            }
        }
        teardown::delete(&found).await?;
        Ok(None)
    }

    async fn find_existing(&self, id: &str) -> Result<Provided> {
        check_name(id).map_err(|_| Error::SandboxNotFound(id.chars().take(100).collect()))?;
        match self.find(id).await? {
            Some(sandbox) => {
                Ok(Provided { id: id.to_owned(), sandbox, created: false, resumed: false, launch: None, leash: None })
            }
            None => Err(Error::SandboxNotFound(id.to_owned())),
        }
    }

    async fn remove(&self, id: &str) -> Result<bool> {
        if check_name(id).is_err() {
            return Ok(false);
        }
        match SandboxDir::read(&self.home.sandboxes(), id)? {
            Some(found) => {
                teardown::delete(&found).await?;
                tracing::debug!(id, "deleted a sandbox");
                Ok(true)
            }
            None => Ok(false),
        }
    }

    async fn clean(&self, max_idle: Option<Duration>) -> Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        let now = now_ms();
        for listed in self.all().await? {
            let idle = listed.active_ms.map(|active| Duration::from_millis(now.saturating_sub(active)));
            let over =
                listed.phase == Phase::Terminated || max_idle.is_some_and(|most| idle.is_some_and(|idle| idle > most));
            if !over {
                cleaned.kept += 1;
                continue;
            }
            match self.remove(&listed.id).await {
                Ok(_) => cleaned.deleted.push(listed.id),
                Err(error) => cleaned.failed.push((listed.id, error.to_string())),
            }
        }
        if let Err(error) = teardown::sweep_unfinished(&self.home) {
            cleaned.failed.push(("unfinished sandboxes".to_owned(), error.to_string()));
        }
        if let Err(failure) = podbay_jail::sweep() {
            cleaned.failed.push(("control groups".to_owned(), failure.to_string()));
        }
        Ok(cleaned)
    }
}

impl Provider for Local {
    fn mode(&self) -> &'static str {
        "local"
    }

    fn get_or_create<'a>(&'a self, wanted: &'a Wanted) -> Pending<'a, Provided> {
        Box::pin(async move { Ok(self.find_or_make(wanted).await?) })
    }

    fn reconnect<'a>(&'a self, id: &'a str) -> Pending<'a, Provided> {
        Box::pin(async move { Ok(self.find_existing(id).await?) })
    }

    fn list<'a>(&'a self, query: &'a Query) -> Pending<'a, Page> {
        Box::pin(async move { Ok(self.swept_page(query).await?) })
    }

    fn describe<'a>(&'a self, id: &'a str) -> Pending<'a, description::Description> {
        Box::pin(async move { Ok(describe::to_common(Local::describe(self, id).await?)) })
    }

    fn delete<'a>(&'a self, id: &'a str) -> Pending<'a, bool> {
        Box::pin(async move { Ok(self.remove(id).await?) })
    }

    fn cleanup(&self, max_idle: Option<Duration>) -> Pending<'_, Cleaned> {
        Box::pin(async move { Ok(self.clean(max_idle).await?) })
    }

    fn stats(&self, idle: Duration) -> Pending<'_, Stats> {
        Box::pin(async move { Ok(self.count(idle).await?) })
    }
}

/// Connects to the podbayd of a sandbox's directory, when it is first used.
pub(crate) fn connect(dir: &Path) -> Sandbox {
    Sandbox::new(UnixChannel::new(dir.join(SOCKET)))
}
