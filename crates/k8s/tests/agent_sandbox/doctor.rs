//! The doctor, on a cluster with the controller.

use anyhow::{Result, ensure};
use podbay_k8s::Cluster;
use podbay_k8s::agent_sandbox::{Config, Features, Runtime};
use podbay_k8s::channel::Connection;
use podbay_k8s::doctor::{CheckState, Depth, Doctor, DoctorReport, Finding};
use podbay_k8s::install::Install;
use serde_json::json;

use crate::fixture::{ALL, Fixture, eventually, template};

fn state(report: &DoctorReport, check: &str) -> Option<CheckState> {
    report.findings.iter().filter(|finding| finding.check == check).map(|finding| finding.state).max()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_examines_a_cluster_with_the_controller() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    let cluster = || Cluster::with_client(fixture.namespace.client(), fixture.namespace.name());
    // Nothing is there yet but the controller.
    let report = Doctor::agent_sandbox(cluster(), template("podbay"))?.examine(Depth::Full).await;
    ensure!(!report.usable && state(&report, "crds") == Some(CheckState::Ok), "{report:?}");
    let missing = report.findings.iter().find(|finding| finding.check == "template");
    let fix = missing.and_then(|finding| finding.fix.as_deref()).unwrap_or_default();
    ensure!(fix.starts_with("podbay install agent-sandbox"), "{report:?}");

    // A template that leaves things open works, and says what.
    fixture.template("podbay", rig::DEBIAN, json!({})).await?;
    fixture.pool("podbay", "podbay", 1).await?;
    let doctor = Doctor::agent_sandbox(cluster(), template("podbay"))?;
    let report = doctor.examine(Depth::Full).await;
    ensure!(report.usable && state(&report, "start") == Some(CheckState::Ok), "{report:?}");
    ensure!(
        state(&report, "template") == Some(CheckState::Warning) && state(&report, "pool") == Some(CheckState::Ok),
        "{report:?}"
    );
    ensure!(
        state(&report, "rights") == Some(CheckState::Ok) && state(&report, "neighbours") == Some(CheckState::Ok),
        "{report:?}"
    );
    fixture.only_pools_are_left(1).await
}

/// An account without a right is told which, and how to grant it.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_missing_rights() -> Result<()> {
    let features = Features { suspends: false, ..ALL };
    let Some(fixture) = Fixture::new(features).await? else { return Ok(()) };
    fixture.template("podbay", rig::DEBIAN, json!({})).await?;
    fixture.pool("podbay", "podbay", 0).await?;
    let cluster = Cluster::with_client(fixture.namespace.client(), fixture.namespace.name());
    let report = Doctor::agent_sandbox(cluster, template("podbay"))?.examine(Depth::Quick).await;
    let finding = report.findings.iter().find(|finding| finding.what == "rights: sandboxes");
    ensure!(finding.is_some_and(|finding| finding.detail.contains("may not watch, patch")), "{report:?}");
    Ok(())
}

/// Nobody looked at what the way to the router takes: an account without it passed, and its sandboxes couldn't be reached.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_checks_the_rights_that_the_way_to_the_router_takes() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("podbay", rig::DEBIAN, json!({})).await?;
    fixture.pool("podbay", "podbay", 0).await?;
    // The stock runtime takes no key.
    let by = |connection| Config {
        connection,
        runtime: Runtime::Stock,
        gateway_name: Some("front".into()),
        gateway_namespace: "default".into(),
        ..template("podbay")
    };
    let report = async |config: &Config| -> Result<DoctorReport> {
        let cluster = Cluster::with_client(fixture.namespace.client(), fixture.namespace.name());
        Ok(Doctor::agent_sandbox(cluster, config.clone())?.examine(Depth::Quick).await)
    };
    let about_router = |report: &DoctorReport| -> Vec<Finding> {
        let elsewhere = |finding: &&Finding| finding.check == "rights" && finding.what.contains(" in ");
        report.findings.iter().filter(elsewhere).cloned().collect()
    };
    let tunnel = ["services", "pods", "pods/portforward"].map(|what| format!("rights: {what} in agent-sandbox-system"));
    let gateway = ["rights: gateways in default".to_owned()];
    for (connection, wanted) in [(Connection::Tunnel, &tunnel[..]), (Connection::Gateway, &gateway[..])] {
        let config = by(connection);
        let found = report(&config).await?;
        let missing = about_router(&found);
        ensure!(missing.iter().map(|finding| &finding.what).eq(wanted), "{found:?}");
        ensure!(!found.usable && missing.iter().all(|finding| finding.state == CheckState::Failed), "{found:?}");
        for (finding, what) in missing.iter().zip(wanted) {
            let namespace = what.rsplit(' ').next().unwrap_or_default();
            let fix = finding.fix.as_deref().unwrap_or_default();
            ensure!(fix.contains(&format!(" -n {namespace} --verb=")), "{finding:?}");
        }
        // With what `podbay install` prints for the same settings, nothing is missing.
        let install = Install {
            namespace: fixture.namespace.name().into(),
            account: "test".into(),
            ..Install::new(Features { creates_pools: true, ..Features::of(&config) }.needs())
        };
        fixture.cluster.apply(&install.manifests()?)?;
        eventually("the API server knows the new roles", || async { Ok(report(&config).await?.usable) }).await?;
        let found = report(&config).await?;
        let granted = about_router(&found);
        ensure!(granted.len() == wanted.len(), "{found:?}");
        ensure!(granted.iter().all(|finding| finding.state == CheckState::Ok), "{found:?}");
    }
    // By exec nothing of it is needed.
    let found = report(&template("podbay")).await?;
    ensure!(found.usable && about_router(&found).is_empty(), "{found:?}");
    Ok(())
}
