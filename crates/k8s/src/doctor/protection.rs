//! Whether commands are kept away from podbayd.

use podbay_client::Sandbox;

use super::report::{CheckState, Finding};

/// Whether podbayd is protected from commands on the sandbox's node.
pub(super) async fn protection(sandbox: &Sandbox) -> Finding {
    let finding = |state, detail: String| Finding::new("protection", "commands and podbayd", state, detail);
    match sandbox.protection().await {
        Err(error) => finding(CheckState::Warning, format!("can't ask podbayd how it is protected: {error}"))
            .fix("use an image whose podbayd is as new as this client, or one without podbayd"),
        Ok(report) => {
            let missing: Vec<String> =
                report.missing().map(|protection| format!("{} ({})", protection.what, protection.detail)).collect();
            match missing.is_empty() {
                true => finding(
                    CheckState::Ok,
                    format!("commands can't reach podbayd (Landlock ABI {})", report.landlock_abi),
                ),
                false => finding(CheckState::Warning, format!("not protected from commands: {}", missing.join("; ")))
                    .fix("SECURITY.md says what each means and which kernel or setting fixes it"),
            }
        }
    }
}
