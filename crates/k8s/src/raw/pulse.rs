//! Writes down that a sandbox is used, for those who only see its Lease.

use std::time::Duration;

use podbay_client::WeakSandbox;

use super::lease::Leases;

/// How often at most the last activity is written down.
pub(crate) const EVERY: Duration = Duration::from_secs(60);

/// Looks at a sandbox once a minute, for as long as anybody here has it open. podbayd says whether it was used: a command
/// that prints nothing for hours is as good as one that does.
pub(crate) fn watch(leases: Leases, name: String, sandbox: WeakSandbox) {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(EVERY).await;
            if !sandbox.in_use() {
                return;
            }
            let Some(welcome) = sandbox.glance().await else { continue };
            if welcome.running > 0 || Duration::from_millis(welcome.idle_ms) < EVERY {
                leases.renew(&name).await;
            }
        }
    });
}
