//! The heartbeat of a sandbox: records its use in its object, for those who see only that.

use std::time::Duration;

use podbay_client::WeakSandbox;

use crate::sandbox_object::SandboxObjects;

/// How often activity is recorded at most.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);

/// Records activity every `interval`, for as long as anybody in this process has the sandbox open. podbayd says whether it
/// was used: a command that prints nothing for hours is activity too.
pub(crate) fn start(objects: impl SandboxObjects, name: String, sandbox: WeakSandbox, interval: Duration) {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(interval).await;
            if !sandbox.in_use() {
                return;
            }
            let Some(welcome) = sandbox.glance().await else { continue };
            if welcome.running > 0 || Duration::from_millis(welcome.idle_ms) < interval {
                objects.renew(&name).await;
            }
        }
    });
}
