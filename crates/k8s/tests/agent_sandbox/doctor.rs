//! The doctor, on a cluster with the controller.

use anyhow::{Result, ensure};
use podbay_k8s::Cluster;
use podbay_k8s::doctor::{Depth, Doctor, Report, State};
use serde_json::json;

use crate::fixture::{ALL, Fixture, template};

fn state(report: &Report, check: &str) -> Option<State> {
    report.findings.iter().filter(|finding| finding.check == check).map(|finding| finding.state).max()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_examines_a_cluster_with_the_controller() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    let cluster = || Cluster::with_client(fixture.namespace.client(), fixture.namespace.name());
    // Nothing is there yet but the controller.
    let report = Doctor::agent_sandbox(cluster(), template("podbay"))?.examine(Depth::Full).await;
    ensure!(!report.usable && state(&report, "crds") == Some(State::Ok), "{report:?}");
    let missing = report.findings.iter().find(|finding| finding.check == "template");
    let fix = missing.and_then(|finding| finding.fix.as_deref()).unwrap_or_default();
    ensure!(fix.starts_with("podbay install agent-sandbox"), "{report:?}");

    // A template that leaves things open works, and says what.
    fixture.template("podbay", rig::DEBIAN, json!({})).await?;
    fixture.pool("podbay", "podbay", 1).await?;
    let doctor = Doctor::agent_sandbox(cluster(), template("podbay"))?;
    let report = doctor.examine(Depth::Full).await;
    ensure!(report.usable && state(&report, "start") == Some(State::Ok), "{report:?}");
    ensure!(
        state(&report, "template") == Some(State::Warning) && state(&report, "pool") == Some(State::Ok),
        "{report:?}"
    );
    ensure!(
        state(&report, "rights") == Some(State::Ok) && state(&report, "neighbours") == Some(State::Ok),
        "{report:?}"
    );
    fixture.only_pools_are_left(1).await
}

/// An account without a right is told which, and how to grant it.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_missing_rights() -> Result<()> {
    let features = podbay_k8s::agent_sandbox::Features { suspends: false, ..ALL };
    let Some(fixture) = Fixture::new(features).await? else { return Ok(()) };
    fixture.template("podbay", rig::DEBIAN, json!({})).await?;
    fixture.pool("podbay", "podbay", 0).await?;
    let cluster = Cluster::with_client(fixture.namespace.client(), fixture.namespace.name());
    let report = Doctor::agent_sandbox(cluster, template("podbay"))?.examine(Depth::Quick).await;
    let finding = report.findings.iter().find(|finding| finding.what == "rights: sandboxes");
    ensure!(finding.is_some_and(|finding| finding.detail.contains("may not watch, patch")), "{report:?}");
    Ok(())
}
