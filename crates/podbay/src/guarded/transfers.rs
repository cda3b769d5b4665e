//! Many files and whole directories, behind the same rules and in the same record.

use std::path::Path;

use bytes::Bytes;
use podbay_client::files::{Download, Scope};
use podbay_client::{Meter, RawPath, Result, Transferred};

use super::Guarded;
use crate::audit::Effect;

impl Guarded {
    /// Fetches many files, one entry of the record for each. The results stand in the order of the requests.
    pub async fn download_all(&self, requests: Vec<Download>) -> Vec<Result<Bytes>> {
        let mut results: Vec<Option<Result<Bytes>>> = Vec::with_capacity(requests.len());
        let (mut begun, mut allowed) = (Vec::new(), Vec::new());
        for request in requests {
            match self.audit.begin(&self.id, "download", request.path.to_string()) {
                Ok(operation) => {
                    begun.push((results.len(), operation));
                    allowed.push(Download { scope: self.policy.narrow(&request.scope), ..request });
                    results.push(None);
                }
                Err(error) => results.push(Some(Err(error))),
            }
        }
        for ((at, operation), result) in begun.into_iter().zip(self.sandbox.download_all(allowed).await) {
            let effect = result.as_ref().map(|content| Effect { bytes: Some(content.len() as u64), exit: None });
            let told = self.audit.end(operation, effect);
            results[at] = Some(told.and(result));
        }
        results.into_iter().flatten().collect()
    }

    /// Sends a directory of this machine and all below it. The rules hold for each file; the record has one entry.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn upload_tree(&self, local: &Path, remote: &RawPath, meter: &Meter<'_>) -> Result<Transferred> {
        let scope = self.policy.narrow(&Scope::default());
        let work = self.sandbox.upload_tree_in(&scope, local, remote, meter);
        self.recorded("upload_tree", format!("{} -> {remote}", local.display()), work, |_| Effect::default()).await
    }

    /// Fetches a directory and all below it into a directory of this machine. The rules hold for each file; the record has one
    /// entry.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn download_tree(&self, remote: &RawPath, local: &Path, meter: &Meter<'_>) -> Result<Transferred> {
        let scope = self.policy.narrow(&Scope::default());
        let work = self.sandbox.download_tree_in(&scope, remote, local, meter);
        self.recorded("download_tree", format!("{remote} -> {}", local.display()), work, |_| Effect::default()).await
    }
}
