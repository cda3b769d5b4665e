//! Finding text in files: one thread walks the tree in order, others search the files.

mod collect;
mod search;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use podbay_proto::files::{FileMatches, Grep, GrepOutput, Kind};
use podbay_proto::{Error, ErrorCode, RawPath, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::Files;
use crate::budget::{Cancel, Deadline, Gaps};
use crate::errno::error_at;
use crate::identity::kind_of;
use crate::pattern::{Pattern, Style};
use crate::resolve::{Access, Lookup};
use crate::visibility::Visibility;
use crate::walk::{Order, Walk, join};
use collect::Collector;
use search::{Search, Searched};

/// How many files go to a searching thread at a time.
const BATCH: usize = 64;

/// The most threads that search. More aren't faster on the machines that sandboxes run on.
const MAX_THREADS: usize = 8;

/// Files of one directory, in order.
struct Batch {
    number: u64,
    dir: Arc<OwnedFd>,
    /// Each path below the start, and where the name begins in it.
    files: Vec<(Vec<u8>, usize)>,
}

/// What all threads of one search share.
struct Shared<'a> {
    request: &'a Grep,
    start: &'a RawPath,
    deadline: &'a Deadline,
    cancel: &'a Cancel,
    collector: Mutex<Collector>,
    searched: AtomicU64,
}

impl Files {
    /// Finds the lines that contain a text.
    ///
    /// # Errors
    /// When the start can't be read, or the pattern is empty. What can't be read further down makes the result partial.
    pub fn grep(&self, request: &Grep, cancel: &Cancel) -> Result<GrepOutput> {
        if request.pattern.is_empty() {
            let message = "the text to search for is empty, so every line would match";
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        let glob = request.glob.as_ref().map(|glob| Pattern::new(glob, Style::default())).transpose()?;
        let deadline = Deadline::after(request.budget_ms);
        let resolver = self.resolver(&request.scope)?;
        let path = request.path.clone().unwrap_or_else(|| resolver.start());
        let resolved = resolver.allowed(&path, Lookup { follow: true, parents: false }, Access::Read)?;
        let collector = Mutex::new(Collector::new(request.max_count));
        let shared = Shared {
            request,
            start: &resolved.shown,
            deadline: &deadline,
            cancel,
            collector,
            searched: AtomicU64::new(0),
        };
        let mut gaps = Gaps::default();
        match kind_of(&resolved.stat()?) {
            // No line has a line break in it.
            _ if request.pattern.contains('\n') => {}
            Kind::Dir => {
                let dir = resolved.open_dir()?;
                let visibility = resolver.visibility(&dir)?;
                let workdir = resolver.workdir_below(&dir);
                let mut walk = Walk::new(dir, &resolved.shown, Order::Path, &visibility, &deadline, cancel)?;
                if let Some(workdir) = &workdir {
                    walk.begin_with(workdir, |path| shared.enters(path, glob.as_ref()));
                }
                gaps = shared.tree(walk, &visibility, glob.as_ref())?;
            }
            Kind::File => {
                let file = resolved.open(OFlags::RDONLY | OFlags::NONBLOCK)?;
                let wanted = glob.is_none_or(|glob| glob.matches(resolved.name().unwrap_or_default()));
                if wanted {
                    let mut search = Search::new(request);
                    shared.searched.fetch_add(1, Ordering::Relaxed);
                    let outcome = search.file(&file, shared.most(), &|| shared.is_over());
                    let lines = match outcome.map_err(|error| resolved.error(error))? {
                        Searched::Lines(lines) => lines,
                        Searched::Binary => Vec::new(),
                        Searched::Stopped => {
                            gaps.limit(deadline.detail());
                            Vec::new()
                        }
                        Searched::LineTooLong => return Err(too_long(&resolved.asked)),
                    };
                    let found = (!lines.is_empty()).then(|| FileMatches { path: resolved.shown.clone(), lines });
                    lock(&shared.collector).add(0, found.into_iter().collect());
                }
            }
            _ => return Err(resolved.error(Errno::NXIO)),
        }
        cancel.check()?;
        let searched = shared.searched.into_inner();
        let collector = shared.collector.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (files, count, more) = collector.finish();
        gaps.merge(more);
        Ok(GrepOutput { path: resolved.shown, files, count, searched, partial: gaps.into_partial() })
    }
}

impl Shared<'_> {
    /// Searches a tree.
    fn tree(&self, mut walk: Walk<'_>, visibility: &Visibility<'_>, glob: Option<&Pattern>) -> Result<Gaps> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from).min(MAX_THREADS);
        // Few batches are queued, because each keeps a directory open.
        let (sender, receiver) = sync_channel(threads * 4);
        let receiver = Mutex::new(receiver);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.work(&receiver))).collect();
            let walked = self.walk(&mut walk, visibility, glob, sender);
            let mut gaps = std::mem::take(&mut walk.gaps);
            for worker in workers {
                match worker.join() {
                    Ok(found) => gaps.merge(found),
                    Err(_) => {
                        return Err(Error::new(
                            ErrorCode::Internal,
                            "podbayd failed while searching; please report this bug",
                        ));
                    }
                }
            }
            walked.map(|()| gaps)
        })
    }

    /// Whether the directory at this path below the start is to be searched.
    fn enters(&self, path: &[u8], glob: Option<&Pattern>) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let excluded = self.request.exclude_dirs.iter().any(|excluded| excluded.as_bytes() == name);
        !excluded && glob.is_none_or(|glob| glob.may_match_below(path))
    }

    /// Distributes the files of a tree to the searching threads.
    fn walk(
        &self,
        walk: &mut Walk<'_>,
        visibility: &Visibility<'_>,
        glob: Option<&Pattern>,
        sender: SyncSender<Batch>,
    ) -> Result<()> {
        let mut batch: Option<Batch> = None;
        let mut number = 0;
        while let Some(found) = walk.next()? {
            match found.kind {
                Kind::Dir if self.enters(&found.path, glob) => walk.enter(&found),
                Kind::File
                    if glob.is_none_or(|glob| glob.matches(&found.path)) && visibility.allows_reading(&found.path) =>
                {
                    let full =
                        batch.take_if(|batch| batch.files.len() >= BATCH || !Arc::ptr_eq(&batch.dir, &found.dir));
                    if let Some(full) = full
                        && (sender.send(full).is_err() || lock(&self.collector).is_full())
                    {
                        return Ok(());
                    }
                    let batch = batch.get_or_insert_with(|| {
                        number += 1;
                        Batch { number: number - 1, dir: Arc::clone(&found.dir), files: Vec::with_capacity(BATCH) }
                    });
                    batch.files.push((found.path, found.name_at));
                }
                _ => {}
            }
        }
        if let Some(batch) = batch {
            // The other side is gone only if it has failed, which its join reports.
            let _ = sender.send(batch);
        }
        Ok(())
    }

    /// Searches batches until there are no more.
    fn work(&self, receiver: &Mutex<Receiver<Batch>>) -> Gaps {
        let mut search = Search::new(self.request);
        let mut gaps = Gaps::default();
        loop {
            // The lock is held while waiting: its holder gets the next batch.
            let Ok(batch) = lock(receiver).recv() else { return gaps };
            let mut found = Vec::new();
            for (path, name_at) in &batch.files {
                if self.is_over() || lock(&self.collector).is_full() {
                    break;
                }
                self.searched.fetch_add(1, Ordering::Relaxed);
                match self.file(&mut search, &batch.dir, &path[*name_at..]) {
                    Ok(Searched::Lines(lines)) if lines.is_empty() => {}
                    Ok(Searched::Lines(lines)) => found.push(FileMatches { path: join(self.start, path), lines }),
                    Ok(Searched::Binary | Searched::Stopped) => {}
                    Ok(Searched::LineTooLong) => gaps.unreadable(&too_long(&join(self.start, path))),
                    // It was removed or replaced since it was listed.
                    Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::AGAIN) => {}
                    Err(error) => gaps.unreadable(&error_at(&join(self.start, path), error)),
                }
            }
            if self.deadline.is_over() {
                gaps.limit(self.deadline.detail());
            }
            lock(&self.collector).add(batch.number, found);
        }
    }

    fn file(&self, search: &mut Search, dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<Searched> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        search.file(&file, self.most(), &|| self.is_over())
    }

    /// How many lines of one file are needed: one more than asked for shows that there are more.
    fn most(&self) -> u64 {
        self.request.max_count.map_or(u64::MAX, |most| most.saturating_add(1))
    }

    fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || self.deadline.is_over()
    }
}

fn too_long(path: &RawPath) -> Error {
    Error::at(
        ErrorCode::TooLarge,
        path,
        format!("has a line of more than {} bytes and wasn't searched", search::MAX_LINE),
    )
}

/// A panic elsewhere leaves nothing half-done behind a lock: there is only ever something added.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
