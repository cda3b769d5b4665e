//! Whole lists, page by page, however long that takes.

use std::collections::HashMap;

use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::api::retry::with_retry;
use crate::error::{Error, Result};

/// How many objects are read at once.
const PAGE: u32 = 500;

/// How often a list is resumed whose position the API server has forgotten.
const RESUMPTIONS: usize = 20;

/// All objects with these labels.
///
/// The API server forgets the position of a list after some minutes (410). It then says where to continue, or a new list
/// begins. What was read is kept either way; of objects that are read twice the later version counts.
pub(crate) async fn list_all<K>(api: &Api<K>, labels: &str, what: &'static str) -> Result<Vec<K>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut all: HashMap<String, K> = HashMap::new();
    let (mut token, mut resumptions) = (None::<String>, 0);
    loop {
        let mut parameters = ListParams::default().labels(labels).limit(PAGE);
        parameters.continue_token = token.take();
        match with_retry(|| api.list(&parameters)).await {
            Ok(list) => {
                for mut item in list.items {
                    // The managed fields are most of an object, and nobody here needs them.
                    item.meta_mut().managed_fields = None;
                    all.insert(item.meta().uid.clone().unwrap_or_default(), item);
                }
                token = list.metadata.continue_.filter(|token| !token.is_empty());
                if token.is_none() {
                    return Ok(all.into_values().collect());
                }
            }
            Err(kube::Error::Api(status)) if status.code == 410 && resumptions < RESUMPTIONS => {
                resumptions += 1;
                token = status.metadata.and_then(|list| list.continue_).filter(|token| !token.is_empty());
                tracing::debug!(what, resumed = token.is_some(), "the continue token of a list has expired");
            }
            Err(error) => return Err(Error::api(what)(error)),
        }
    }
}
