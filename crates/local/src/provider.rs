//! Local sandboxes as every provider's: found, made, listed, deleted.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use podbay_client::provider::{Cleaned, Listed, Page, Pending, Phase, Provided, Provider, Query, Stats, Wanted};
use podbay_client::{Protection, Sandbox, UnixChannel, Welcome, description};
use podbay_jail::InForce;
use podbay_jail::supervision::SOCKET;

use crate::error::{Error, Result};
use crate::home::Home;
use crate::options::Options;
use crate::record::{Record, check_length, check_name};
use crate::remains;
use crate::{create, describe};

/// How long one that is found may take to answer: it may only just be made, on a busy machine.
const ANSWER: Duration = Duration::from_secs(30);

/// How long one in a list may take to say when it was last used.
const LISTED: Duration = Duration::from_secs(1);

/// Sandboxes on one page of a list, when the caller doesn't say.
const PAGE: usize = 100;

/// The sandboxes of one home: makes them, finds them, ends them.
#[derive(Debug, Clone)]
pub struct Local {
    home: Home,
    options: Options,
}

/// A sandbox in full.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Description {
    /// What a list says of it.
    pub listed: Listed,
    /// Which limits were asked for, and by what they hold.
    pub limits: Vec<InForce>,
    /// The process id of its supervisor, once there is one.
    pub supervisor: Option<u32>,
    /// The process id of its first process, as seen from outside.
    pub first: Option<u32>,
    /// How many of its commands have something alive, if it says.
    pub running: Option<u32>,
    /// What it may see and use.
    pub jail: Option<podbay_jail::Jail>,
    /// What keeps its commands away from podbayd, or why it doesn't say; nothing unless it is running.
    pub protection: Option<Result<Protection, String>>,
    /// How long it may live, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// How long it may go unused, in milliseconds.
    pub idle_ttl_ms: Option<u64>,
}

impl Local {
    /// The sandboxes of this user.
    ///
    /// # Errors
    /// When their directory can't be made.
    pub fn new() -> Result<Self> {
        Home::of_user().map(Self::at)
    }

    /// The sandboxes of a home.
    pub fn at(home: Home) -> Self {
        Self { home, options: Options::default() }
    }

    /// How sandboxes shall be that are made from now on.
    #[must_use]
    pub fn with(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// Where its sandboxes live.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Tells all about a sandbox.
    ///
    /// # Errors
    /// When there is none of that id.
    pub async fn describe(&self, id: &str) -> Result<Description> {
        let missing = || Error::SandboxNotFound(id.chars().take(100).collect());
        check_name(id).map_err(|_| missing())?;
        let record = Record::read(&self.home.sandboxes(), id)?.ok_or_else(missing)?;
        let phase = record.phase();
        let welcome = if phase == Phase::Running { ask(&record).await } else { None };
        let protection = match welcome {
            Some(_) => Some(ask_protection(&record).await),
            None => None,
        };
        Ok(Description {
            protection,
            listed: listed(&record, phase, welcome.as_ref()),
            limits: record.started.as_ref().map(|started| started.limits.clone()).unwrap_or_default(),
            supervisor: record.started.as_ref().map(|started| started.supervisor),
            first: record.started.as_ref().map(|started| started.first),
            running: welcome.map(|welcome| welcome.running),
            ttl_ms: record.spec.as_ref().and_then(|spec| spec.ttl_ms),
            idle_ttl_ms: record.spec.as_ref().and_then(|spec| spec.idle_ttl_ms),
            jail: record.spec.map(|spec| spec.jail),
        })
    }

    async fn find_or_make(&self, wanted: &Wanted) -> Result<Provided> {
        let id = wanted.id.clone().unwrap_or_else(|| format!("pb-{:016x}", rand::random::<u64>()));
        check_name(&id)?;
        let dir = self.home.sandboxes().join(&id);
        check_length(&dir)?;
        let until = Instant::now() + ANSWER;
        loop {
            if let Some(sandbox) = self.find(&id).await? {
                return Ok(Provided { id, sandbox, created: false, leash: None });
            }
            let (made, ()) =
                tokio::join!(create::create(&self.home, &self.options, &id, &dir, wanted), self.sweep_some());
            if let Some((leash, _)) = made? {
                let sandbox = sandbox(&dir);
                let leash = wanted.leashed.then(|| Box::new(leash) as _);
                tracing::debug!(id, "a sandbox was made");
                return Ok(Provided { id, sandbox, created: true, leash });
            }
            if Instant::now() > until {
                return Err(Error::Create(format!("others make and end {id} all the time; try again")));
            }
        }
    }

    /// The living sandbox of an id, once it answers. A dead one is cleared away.
    async fn find(&self, id: &str) -> Result<Option<Sandbox>> {
        let Some(record) = Record::read(&self.home.sandboxes(), id)? else { return Ok(None) };
        if record.phase() != Phase::Terminated {
            let sandbox = sandbox(&record.dir);
            match tokio::time::timeout(ANSWER, sandbox.hello()).await {
                Ok(Ok(_)) => return Ok(Some(sandbox)),
                // It died while being asked.
                Ok(Err(_)) if record.phase() == Phase::Terminated => {}
                Ok(Err(error)) => return Err(Error::Create(error.to_string())),
                Err(_) => {
                    let why = format!("it doesn't answer within {} s; delete it", ANSWER.as_secs());
                    return Err(Error::Stuck { id: id.to_owned(), why });
                }
            }
        }
        remains::delete(&record).await?;
        Ok(None)
    }

    async fn find_existing(&self, id: &str) -> Result<Provided> {
        check_name(id).map_err(|_| Error::SandboxNotFound(id.chars().take(100).collect()))?;
        match self.find(id).await? {
            Some(sandbox) => Ok(Provided { id: id.to_owned(), sandbox, created: false, leash: None }),
            None => Err(Error::SandboxNotFound(id.to_owned())),
        }
    }

    /// The ids of everything that has a directory, sorted.
    fn ids(&self) -> Result<Vec<String>> {
        let sandboxes = self.home.sandboxes();
        let entries = std::fs::read_dir(&sandboxes).map_err(Error::home(&sandboxes, "it can't be listed"))?;
        let mut ids: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        ids.retain(|id| check_name(id).is_ok());
        ids.sort();
        Ok(ids)
    }

    /// Clears away dead sandboxes whose supervisors were killed: a few, so that it costs a creator next to nothing, and not
    /// always the same.
    async fn sweep_some(&self) {
        const FEW: usize = 128;
        let swept = async {
            let mut ids = self.ids()?;
            if ids.len() > FEW {
                let at = rand::random::<u32>() as usize % ids.len();
                ids.rotate_left(at);
                ids.truncate(FEW);
            }
            for id in ids {
                // A lock tells without waking anybody.
                if podbay_jail::supervision::is_held(&self.home.sandboxes().join(&id)) {
                    continue;
                }
                if let Some(record) = Record::read(&self.home.sandboxes(), &id)? {
                    remains::sweep(&record).await?;
                }
            }
            Ok::<(), Error>(())
        };
        // It is not what the caller has asked for; whoever deletes or cleans up hears of it.
        if let Err(error) = swept.await {
            tracing::warn!(%error, "what killed supervisors left can't be cleared away");
        }
    }

    /// A page of a list as users see it: without the dead, which are cleared away.
    async fn swept_page(&self, query: &Query) -> Result<Page> {
        for id in self.ids()? {
            if !podbay_jail::supervision::is_held(&self.home.sandboxes().join(&id))
                && let Some(record) = Record::read(&self.home.sandboxes(), &id)?
                && let Err(error) = remains::sweep(&record).await
            {
                tracing::warn!(id, %error, "what a killed supervisor left can't be cleared away");
            }
        }
        self.page(query).await
    }

    async fn page(&self, query: &Query) -> Result<Page> {
        let limit = query.limit.unwrap_or(PAGE).max(1);
        let after = query.cursor.as_deref().unwrap_or_default();
        let mut records = Vec::new();
        for id in self.ids()?.into_iter().filter(|id| id.as_str() > after) {
            let Some(record) = Record::read(&self.home.sandboxes(), &id)? else { continue };
            let phase = record.phase();
            if query.phase.is_some_and(|wanted| wanted != phase) || !has_labels(&record, query) {
                continue;
            }
            // One more than fits tells that there is a next page.
            records.push((record, phase));
            if records.len() > limit {
                break;
            }
        }
        let more = records.len() > limit;
        records.truncate(limit);
        let cursor = records.last().filter(|_| more).map(|(record, _)| record.id.clone());
        Ok(Page { sandboxes: ask_all(records).await, cursor })
    }

    async fn all(&self) -> Result<Vec<Listed>> {
        let query = Query { limit: Some(usize::MAX - 1), ..Query::default() };
        Ok(self.page(&query).await?.sandboxes)
    }

    async fn remove(&self, id: &str) -> Result<bool> {
        if check_name(id).is_err() {
            return Ok(false);
        }
        match Record::read(&self.home.sandboxes(), id)? {
            Some(record) => {
                remains::delete(&record).await?;
                tracing::debug!(id, "a sandbox was deleted");
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
        if let Err(error) = remains::sweep_workshop(&self.home) {
            cleaned.failed.push(("unfinished sandboxes".to_owned(), error.to_string()));
        }
        if let Err(failure) = podbay_jail::sweep() {
            cleaned.failed.push(("control groups".to_owned(), failure.to_string()));
        }
        Ok(cleaned)
    }

    async fn count(&self, idle: Duration) -> Result<Stats> {
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
        Box::pin(async move { Ok(describe::describe(Local::describe(self, id).await?)) })
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

fn sandbox(dir: &std::path::Path) -> Sandbox {
    Sandbox::new(UnixChannel::new(dir.join(SOCKET)))
}

fn has_labels(record: &Record, query: &Query) -> bool {
    let labels = record.spec.as_ref().map(|spec| &spec.labels);
    query.labels.iter().all(|(name, value)| labels.is_some_and(|labels| labels.get(name) == Some(value)))
}

/// Asks a sandbox how it is. It may be hostile, and say nothing.
async fn ask(record: &Record) -> Option<Welcome> {
    let sandbox = sandbox(&record.root());
    tokio::time::timeout(LISTED, sandbox.hello()).await.ok()?.ok()
}

async fn ask_protection(record: &Record) -> Result<Protection, String> {
    let sandbox = sandbox(&record.root());
    match tokio::time::timeout(LISTED, sandbox.protection()).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", LISTED.as_secs())),
    }
}

async fn ask_all(records: Vec<(Record, Phase)>) -> Vec<Listed> {
    let mut asked = tokio::task::JoinSet::new();
    let mut list = Vec::with_capacity(records.len());
    for (record, phase) in records {
        if phase != Phase::Running {
            list.push(listed(&record, phase, None));
            continue;
        }
        asked.spawn(async move {
            let welcome = ask(&record).await;
            listed(&record, phase, welcome.as_ref())
        });
        // Each takes a few descriptors.
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

fn listed(record: &Record, phase: Phase, welcome: Option<&Welcome>) -> Listed {
    let spec = record.spec.as_ref();
    let created_ms = spec.map_or(0, |spec| spec.created_ms);
    // A sandbox that says it was idle before it was made says nothing.
    let active_ms = welcome.map(|welcome| now_ms().saturating_sub(welcome.idle_ms).max(created_ms));
    let at_latest = spec.and_then(|spec| spec.ttl_ms).map(|ttl| created_ms.saturating_add(ttl));
    let idle = spec.and_then(|spec| spec.idle_ttl_ms).zip(active_ms).map(|(ttl, active)| active.saturating_add(ttl));
    Listed {
        id: record.id.clone(),
        labels: spec.map(|spec| spec.labels.clone()).unwrap_or_default(),
        phase,
        created_ms,
        active_ms,
        expires_ms: at_latest.into_iter().chain(idle).min(),
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
