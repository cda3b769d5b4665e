//! Listing sandboxes, and asking each when it was last used.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use podbay_client::Welcome;
use podbay_client::provider::{Listed, Page, Phase, Query, Stats};
use podbay_supervision::is_supervised;

use crate::error::{Error, Result};
use crate::provider::{Local, connect};
use crate::sandbox_dir::{SandboxDir, check_name};
use crate::teardown;

/// How long a listed sandbox may take to answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);

/// Sandboxes on one page of a list, unless the caller sets a limit.
const PAGE: usize = 100;

impl Local {
    /// The ids of all directories of sandboxes, sorted.
    fn ids(&self) -> Result<Vec<String>> {
        let sandboxes = self.home().sandboxes();
        let entries = std::fs::read_dir(&sandboxes).map_err(Error::home(&sandboxes, "can't list it"))?;
        let mut ids: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        ids.retain(|id| check_name(id).is_ok());
        ids.sort();
        Ok(ids)
    }

    /// Removes dead sandboxes whose supervisors were killed. It looks at a few at random, so that it costs a creator next to
    /// nothing.
    pub(crate) async fn sweep_some(&self) {
        const FEW: usize = 128;
        let swept = async {
            let mut ids = self.ids()?;
            if ids.len() > FEW {
                let at = rand::random::<u32>() as usize % ids.len();
                ids.rotate_left(at);
                ids.truncate(FEW);
            }
            for id in ids {
                self.sweep(&id).await?;
            }
            Ok::<(), Error>(())
        };
        // The caller asked for something else. Deleting and cleaning up report such errors.
        if let Err(error) = swept.await {
            tracing::warn!(%error, "can't remove the remains of killed supervisors");
        }
    }

    /// Removes a sandbox if it is dead and its supervisor was killed.
    async fn sweep(&self, id: &str) -> Result<()> {
        let sandboxes = self.home().sandboxes();
        // Looking at the lock wakes no process.
        if !is_supervised(&sandboxes.join(id))
            && let Some(sandbox) = SandboxDir::read(&sandboxes, id)?
        {
            teardown::sweep(&sandbox).await?;
        }
        Ok(())
    }

    /// A page of a list as users see it: without dead sandboxes, which it removes.
    pub(crate) async fn swept_page(&self, query: &Query) -> Result<Page> {
        for id in self.ids()? {
            if let Err(error) = self.sweep(&id).await {
                tracing::warn!(id, %error, "can't remove the remains of a killed supervisor");
            }
        }
        self.page(query).await
    }

    async fn page(&self, query: &Query) -> Result<Page> {
        let limit = query.limit.unwrap_or(PAGE).max(1);
        let after = query.cursor.as_deref().unwrap_or_default();
        let mut found = Vec::new();
        for id in self.ids()?.into_iter().filter(|id| id.as_str() > after) {
            let Some(sandbox) = SandboxDir::read(&self.home().sandboxes(), &id)? else { continue };
            let phase = sandbox.phase();
            if query.phase.is_some_and(|wanted| wanted != phase) || !has_labels(&sandbox, query) {
                continue;
            }
            // One more than fits shows that there is a next page.
            found.push((sandbox, phase));
            if found.len() > limit {
                break;
            }
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let cursor = found.last().filter(|_| more).map(|(sandbox, _)| sandbox.id.clone());
        Ok(Page { sandboxes: list(found).await, cursor })
    }

    pub(crate) async fn all(&self) -> Result<Vec<Listed>> {
        let query = Query { limit: Some(usize::MAX - 1), ..Query::default() };
        Ok(self.page(&query).await?.sandboxes)
    }

    pub(crate) async fn count(&self, idle: Duration) -> Result<Stats> {
        let now = now_ms();
        let mut stats = Stats::default();
        for listed in self.all().await? {
            stats.total += 1;
            stats.running += usize::from(listed.phase == Phase::Running);
            let quiet = listed.active_ms.map(|active| Duration::from_millis(now.saturating_sub(active)));
            stats.idle += usize::from(quiet.is_some_and(|quiet| quiet >= idle));
        }
        Ok(stats)
    }
}

fn has_labels(sandbox: &SandboxDir, query: &Query) -> bool {
    let labels = sandbox.spec.as_ref().map(|spec| &spec.labels);
    query.labels.iter().all(|(name, value)| labels.is_some_and(|labels| labels.get(name) == Some(value)))
}

/// Asks a sandbox for its state. A hostile sandbox may not answer.
pub(crate) async fn ask(sandbox: &SandboxDir) -> Option<Welcome> {
    let connection = connect(&sandbox.root());
    tokio::time::timeout(ANSWER, connection.hello()).await.ok()?.ok()
}

async fn list(found: Vec<(SandboxDir, Phase)>) -> Vec<Listed> {
    let mut asked = tokio::task::JoinSet::new();
    let mut list = Vec::with_capacity(found.len());
    for (sandbox, phase) in found {
        if phase != Phase::Running {
            list.push(listed(&sandbox, phase, None));
            continue;
        }
        asked.spawn(async move {
            let welcome = ask(&sandbox).await;
            listed(&sandbox, phase, welcome.as_ref())
        });
        // Each connection takes a few descriptors.
        if asked.len() >= 64
            && let Some(Ok(listed)) = asked.join_next().await
        {
            list.push(listed);
        }
    }
    list.extend(asked.join_all().await);
    list.sort_by(|a, b| a.id.cmp(&b.id));
    list
}

pub(crate) fn listed(sandbox: &SandboxDir, phase: Phase, welcome: Option<&Welcome>) -> Listed {
    let spec = sandbox.spec.as_ref();
    let created_ms = spec.map_or(0, |spec| spec.created_ms);
    // A sandbox may claim to have been idle since before its creation.
    let active_ms = welcome.map(|welcome| now_ms().saturating_sub(welcome.idle_ms).max(created_ms));
    let at_latest = spec.and_then(|spec| spec.ttl_ms).map(|ttl| created_ms.saturating_add(ttl));
    let idle = spec.and_then(|spec| spec.idle_ttl_ms).zip(active_ms).map(|(ttl, active)| active.saturating_add(ttl));
    Listed {
        id: sandbox.id.clone(),
        namespace: None,
        labels: spec.map(|spec| spec.labels.clone()).unwrap_or_default(),
        phase,
        created_ms,
        active_ms,
        expires_ms: at_latest.into_iter().chain(idle).min(),
        ttl_ms: spec.and_then(|spec| spec.ttl_ms),
        idle_ttl_ms: spec.and_then(|spec| spec.idle_ttl_ms),
    }
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
