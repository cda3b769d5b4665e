//! Lists of sandboxes, as far as they are the same in every mode.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use podbay_client::provider::{Listed, Page, Phase, Query, Stats};

use crate::error::{Error, Result};
use crate::lifetime::millis;
use crate::names::{self, TENANT, THREAD};
use crate::sandbox_object::SandboxObject;

/// A label selector with a user's labels added to it.
pub(crate) fn selector(base: String, prefix: &str, labels: &BTreeMap<String, String>) -> Result<String> {
    let mut selector = base;
    for (key, value) in labels {
        let key = names::prefixed(prefix, key)?;
        selector += &format!(",{key}={}", names::label_value(value));
    }
    Ok(selector)
}

/// A user's labels as the user set them: without the prefix, and unhashed.
pub(crate) fn user_labels(
    prefix: &str,
    labels: Option<&BTreeMap<String, String>>,
    annotations: Option<&BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let original = |key: &String| annotations.and_then(|annotations| annotations.get(key)).cloned();
    let own = labels.into_iter().flatten().filter_map(|(key, value)| {
        let short = match key.as_str() {
            THREAD | TENANT => key,
            // Without a prefix, only labels without a domain are a user's.
            key => key.strip_prefix(prefix).filter(|short| !short.contains('/'))?,
        };
        Some((short.to_owned(), original(key).unwrap_or_else(|| value.clone())))
    });
    own.collect()
}

/// A sandbox as lists show it.
pub(crate) fn listed(object: &impl SandboxObject, phase: Phase, prefix: &str) -> Option<Listed> {
    let meta = object.meta();
    let created_ms = millis(object.began()?);
    let active_ms = object.last_used().map(millis);
    let limits = object.limits();
    let milliseconds = |seconds: u64| seconds.saturating_mul(1000);
    Some(Listed {
        id: meta.name.clone()?,
        namespace: meta.namespace.clone(),
        labels: user_labels(prefix, meta.labels.as_ref(), meta.annotations.as_ref()),
        phase,
        created_ms,
        active_ms,
        expires_ms: limits.expires_ms(created_ms, active_ms),
        ttl_ms: limits.ttl.map(milliseconds),
        idle_ttl_ms: limits.idle_ttl.map(milliseconds),
    })
}

/// Parameters for one page of a list. An empty token means the first page.
pub(crate) fn page_parameters(selector: &str, limit: usize, token: &str) -> ListParams {
    let parameters = ListParams::default().labels(selector).limit(u32::try_from(limit).unwrap_or(u32::MAX));
    if token.is_empty() { parameters } else { parameters.continue_token(token) }
}

/// What is wrong with a list that a cursor was given for.
pub(crate) fn page_error(what: &'static str) -> impl Fn(kube::Error) -> Error {
    move |error| match Error::code(&error) {
        Some(410) => Error::Cursor("has expired"),
        _ => Error::api(what)(error),
    }
}

/// Counts sandboxes, page by page. One that wasn't used for `idle` counts as idle.
pub(crate) async fn count<F: Future<Output = Result<Page>>>(
    now: Timestamp,
    idle: Duration,
    mut page: impl FnMut(Query) -> F,
) -> Result<Stats> {
    let (now, idle) = (millis(now), u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
    let (mut stats, mut query) = (Stats::default(), Query::default());
    loop {
        let page = page(query.clone()).await?;
        for listed in page.sandboxes {
            stats.total += 1;
            stats.running += usize::from(listed.phase == Phase::Running);
            stats.warm += usize::from(listed.phase == Phase::Warm);
            stats.idle += usize::from(listed.active_ms.is_some_and(|active| now.saturating_sub(active) >= idle));
        }
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(stats),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With an empty prefix, Podbay's own labels and the controller's were shown as the user's.
    #[test]
    fn only_a_users_own_labels_are_shown() {
        let labels = |prefix: &str| -> BTreeMap<String, String> {
            let own =
                [(names::MANAGED_BY, "podbay"), (names::SANDBOX, "pb-1"), ("agents.x-k8s.io/created-by", "podbay")];
            let own = own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
            own.chain([(format!("{prefix}team"), "blue".to_owned()), (THREAD.to_owned(), "0a".to_owned())]).collect()
        };
        let expected = BTreeMap::from([("team".to_owned(), "blue".to_owned()), (THREAD.to_owned(), "0a".to_owned())]);
        for prefix in ["", "user.podbay.dev/"] {
            assert_eq!(user_labels(prefix, Some(&labels(prefix)), None), expected, "{prefix:?}");
        }
    }
}
