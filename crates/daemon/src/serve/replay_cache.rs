//! The replay cache: requests that may be sent twice and must take effect once.
//!
//! A client whose connection broke doesn't know whether its request was served, and sends it again with the same id. The
//! answer to the first is kept and given to the second, even while the first is still being served.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use podbay_proto::Result;
use tokio::sync::watch;

use super::reply::Reply;

/// How many answers are kept.
const KEEP: usize = 4_096;

/// How long an answer is kept.
const KEEP_FOR: Duration = Duration::from_secs(600);

type Outcome = watch::Receiver<Option<Arc<Reply>>>;

/// The answers to recent requests that changed something.
#[derive(Default)]
pub struct ReplayCache {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    outcomes: HashMap<String, Outcome>,
    order: VecDeque<(Instant, String)>,
}

impl ReplayCache {
    /// Serves a request once. It is finished even if the caller goes away: the caller will ask for the outcome again.
    ///
    /// `complete` decides from the answer whether the request was served. One that was cut off wasn't, and may come again.
    pub async fn once(
        self: &Arc<Self>,
        id: String,
        serve: impl Future<Output = Result<Reply>> + Send + 'static,
        complete: impl Fn(&Result<Reply>) -> bool + Send + 'static,
    ) -> Reply {
        let (sender, mine) = watch::channel(None);
        let (mut outcome, fresh) = self.kept().enter(&id, mine);
        if fresh {
            let replay_cache = self.clone();
            tokio::spawn(async move {
                let result = serve.await;
                if !complete(&result) {
                    replay_cache.kept().outcomes.remove(&id);
                }
                let _ = sender.send(Some(Arc::new(Reply::from(result))));
            });
        }
        match outcome.wait_for(Option::is_some).await.map(|reply| reply.as_ref().and_then(|reply| reply.copy())) {
            Ok(Some(reply)) => reply,
            _ => Reply::error(&podbay_proto::Error::new(
                podbay_proto::ErrorCode::Internal,
                "podbayd lost the outcome of this request; check what it changed before trying again",
            )),
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn enter(&mut self, id: &str, mine: Outcome) -> (Outcome, bool) {
        if let Some(outcome) = self.outcomes.get(id) {
            return (outcome.clone(), false);
        }
        let now = Instant::now();
        while let Some((time, _)) = self.order.front()
            && (self.order.len() >= KEEP || now - *time > KEEP_FOR)
        {
            if let Some((_, old)) = self.order.pop_front() {
                self.outcomes.remove(&old);
            }
        }
        self.order.push_back((now, id.to_owned()));
        self.outcomes.insert(id.to_owned(), mine.clone());
        (mine, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podbay_proto::{Error, ErrorCode};
    use std::sync::atomic::{AtomicU32, Ordering};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_second_request_gets_the_answer_of_the_first_even_when_that_caller_has_gone() {
        runtime().block_on(async {
            let replay_cache = Arc::new(ReplayCache::default());
            let served = Arc::new(AtomicU32::new(0));
            let serve = || {
                let served = served.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Reply::new(&served.fetch_add(1, Ordering::SeqCst))
                }
            };
            let first =
                tokio::time::timeout(Duration::from_millis(5), replay_cache.once("a".into(), serve(), Result::is_ok));
            assert!(first.await.is_err(), "the first caller gave up");
            replay_cache.once("a".into(), serve(), Result::is_ok).await;
            replay_cache.once("b".into(), serve(), Result::is_ok).await;
            assert_eq!(served.load(Ordering::SeqCst), 2);
        });
    }

    #[test]
    fn a_request_that_was_cut_may_come_again() {
        runtime().block_on(async {
            let replay_cache = Arc::new(ReplayCache::default());
            let cut = async { Err(Error::new(ErrorCode::BadMessage, "cut")) };
            replay_cache.once("a".into(), cut, |result| result.is_ok()).await;
            let reply = replay_cache.once("a".into(), async { Reply::new(&7) }, |result| result.is_ok()).await;
            assert!(format!("{reply:?}").contains("200"), "{reply:?}");
        });
    }

    #[test]
    fn only_so_many_are_kept() {
        let mut kept = Kept::default();
        for id in 0..KEEP + 10 {
            let (_, mine) = watch::channel(None);
            assert!(kept.enter(&id.to_string(), mine).1);
        }
        assert_eq!(kept.outcomes.len(), KEEP);
        assert_eq!(kept.order.len(), KEEP);
        let (_, mine) = watch::channel(None);
        assert!(!kept.enter("4100", mine).1);
    }
}
