//! Lists of everything, page by page, however long that takes.

use std::collections::HashMap;

use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::retry::patiently;

/// How many objects are read at once.
const PAGE: u32 = 500;

/// How often a list is taken up again whose place the API server has forgotten.
const RESUMPTIONS: usize = 20;

/// All objects with these labels.
///
/// The API server forgets where a list was after some minutes (410). It then says where to go on, or a new list begins. What
/// was read is kept either way, and what is met twice is there once, as it was last.
pub(crate) async fn all<K>(api: &Api<K>, labels: &str, what: &'static str) -> Result<Vec<K>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut all: HashMap<String, K> = HashMap::new();
    let (mut token, mut resumptions) = (None::<String>, 0);
    loop {
        let mut parameters = ListParams::default().labels(labels).limit(PAGE);
        parameters.continue_token = token.take();
        match patiently(|| api.list(&parameters)).await {
            Ok(list) => {
                for mut item in list.items {
                    // Who wrote which field is most of an object, and nobody here asks.
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
                tracing::debug!(what, resumed = token.is_some(), "a list took so long that it was forgotten");
            }
            Err(error) => return Err(Error::api(what)(error)),
        }
    }
}
