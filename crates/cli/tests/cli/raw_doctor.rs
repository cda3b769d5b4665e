//! What `podbay doctor --mode raw` finds on a real cluster, and that its remedies are remedies.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cluster::Site;
use crate::home::text;

/// The first finding of a check, and the exit code.
fn found(site: &Site, check: &str, words: &[&str]) -> Result<(Value, Option<i32>)> {
    let mut all = vec!["--json", "doctor"];
    all.extend(words);
    let output = site.output(&all);
    let report: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{words:?}: {}", text(&output.stderr)))?;
    let findings = report["findings"].as_array().context("no findings")?;
    // What is worst stands for a check that looks at several things.
    let rank =
        |finding: &&Value| ["ok", "skipped", "warning", "failed"].iter().position(|state| finding["state"] == *state);
    let finding = findings.iter().filter(|finding| finding["check"] == check).max_by_key(rank);
    Ok((finding.cloned().unwrap_or(Value::Null), output.status.code()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_well_is_found_well_and_left_as_it_was() -> Result<()> {
    let Some(site) = Site::new("well", &[]).await? else { return Ok(()) };
    for image in [rig::DEBIAN, rig::BUSYBOX] {
        let report = site.output(&["--json", "doctor", "--set", &format!("raw.image={image}")]);
        let report: Value = serde_json::from_slice(&report.stdout)?;
        let findings = report["findings"].as_array().context("no findings")?;
        for finding in findings {
            ensure!(["ok", "skipped"].iter().any(|state| finding["state"] == *state), "{image}: {finding}");
        }
        for check in ["start", "network", "rights", "admission"] {
            let one = findings.iter().find(|finding| finding["check"] == check).context(check)?;
            ensure!(one["state"] == "ok", "{image}: {one}");
        }
        ensure!(report["usable"] == true);
    }
    ensure!(site.leases()?.is_empty() && site.pods().await?.is_empty());
    let shown = site.says(&["doctor", "--quick"])?;
    ensure!(shown.contains("Sandboxes work in namespace"), "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_trial_leaves_nothing_behind() -> Result<()> {
    let Some(site) = Site::new("interrupted", &[]).await? else { return Ok(()) };
    let mut child = site.podbay(&["doctor"]).stdout(std::process::Stdio::null()).spawn()?;
    let begun = std::time::Instant::now();
    while site.pods().await?.is_empty() {
        ensure!(begun.elapsed().as_secs() < 60, "no pod");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)?;
    let status = child.wait()?;
    ensure!(status.code() == Some(130), "{status}");
    ensure!(site.leases()?.is_empty() && site.pods().await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_dont_hold_are_noticed() -> Result<()> {
    let Some(site) = Site::new("rules", &[]).await? else { return Ok(()) };
    let policy = |name: &str, spec: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: {name}\n  namespace: {}\nspec:\n{spec}",
            site.namespace
        )
    };
    // Policies add up: one that allows everything takes away what the others forbid.
    let all = "  podSelector: {}\n  policyTypes: [Ingress, Egress]\n  ingress: [{}]\n  egress: [{}]\n";
    site.kubectl(&["apply", "-f", "-"], &policy("all", all))?;
    let (network, code) = found(&site, "network", &[])?;
    ensure!(network["state"] == "failed" && code == Some(1), "{network}");
    ensure!(network["detail"].as_str().unwrap_or_default().contains("out of a sandbox and one into"), "{network}");
    ensure!(network["fix"].as_str().unwrap_or_default().contains("kubectl get networkpolicy"), "{network}");
    site.kubectl(&["delete", "networkpolicy", "all", "-n", &site.namespace], "")?;
    // Where nothing can be reached anyway, a connection that fails proves nothing.
    site.kubectl(&["apply", "-f", "-"], &policy("none", "  podSelector: {}\n  policyTypes: [Ingress]\n"))?;
    let (network, _) = found(&site, "network", &[])?;
    ensure!(network["state"] == "warning", "{network}");
    let (open, _) = found(&site, "network", &["--set", "raw.block_network=false"])?;
    ensure!(open["detail"].as_str().unwrap_or_default().contains("raw.block_network is false"), "{open}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_with_its_remedy() -> Result<()> {
    let Some(site) = Site::new("missing", &[]).await? else { return Ok(()) };
    let (start, code) = found(&site, "start", &["--set", "raw.image=localhost/nowhere:1"])?;
    ensure!(start["state"] == "failed" && code == Some(1), "{start}");
    ensure!(start["fix"].as_str().unwrap_or_default().contains("the nodes can't get the image localhost/nowhere:1"));
    let (start, _) = found(&site, "start", &["--set", "raw.cpu_request=900", "--set", "raw.cpu_limit=900"])?;
    ensure!(start["fix"].as_str().unwrap_or_default().contains("raw.cpu_request"), "{start}");

    let admission = |words: &[&str]| found(&site, "admission", words).map(|(finding, _)| finding);
    let root = admission(&["--quick", "--set", "raw.run_as_user=0", "--set", "raw.run_as_non_root=false"])?;
    ensure!(root["state"] == "failed" && root["fix"].as_str().unwrap_or_default().contains("Pod Security"), "{root}");
    let class = admission(&["--quick", "--set", "raw.runtime_class=nothing"])?;
    ensure!(class["fix"].as_str().unwrap_or_default().contains("runtime class"), "{class}");

    site.kubectl(
        &["run", "stranger", "--image", rig::DEBIAN, "-n", &site.namespace, "--overrides", STRANGER, "--", "true"],
        "",
    )?;
    let (neighbours, code) = found(&site, "neighbours", &["--quick"])?;
    ensure!(neighbours["state"] == "warning" && code == Some(0), "{neighbours}");
    ensure!(neighbours["detail"].as_str().unwrap_or_default().contains("stranger"), "{neighbours}");

    let nowhere = site.podbay(&["doctor", "--set", "cluster.kubeconfig=/nonexistent"]).output()?;
    ensure!(nowhere.status.code() == Some(125), "{nowhere:?}");
    Ok(())
}

const STRANGER: &str = r#"{"spec":{"securityContext":{"runAsNonRoot":true,"runAsUser":1000,"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"stranger","image":"localhost/debian:1","imagePullPolicy":"Never","command":["sleep","60"],"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_and_its_remedy_grants_it() -> Result<()> {
    let Some(site) = Site::new("rights", &[]).await? else { return Ok(()) };
    let (rights, code) = found(&site, "rights", &["--quick", "--set", "raw.warm_pool_size=1"])?;
    ensure!(rights["state"] == "failed" && code == Some(1), "{rights}");
    ensure!(rights["detail"].as_str().unwrap_or_default().contains("may not patch"), "{rights}");
    let fix = rights["fix"].as_str().context("no remedy")?;
    // As it stands there, by whoever runs the cluster.
    let commands = fix.split_once("for this one: ").context("no commands")?.1;
    for command in commands.split(" && ") {
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        site.kubectl(&words, "")?;
    }
    let (rights, code) = found(&site, "rights", &["--quick", "--set", "raw.warm_pool_size=1"])?;
    ensure!(rights["state"] == "ok" && code == Some(0), "{rights}");

    site.kubectl(&["create", "role", "much", "-n", &site.namespace, "--verb=get", "--resource=secrets"], "")?;
    let account = format!("--serviceaccount={}:podbay", site.namespace);
    site.kubectl(&["create", "rolebinding", "much", "-n", &site.namespace, "--role=much", &account], "")?;
    let (excess, _) = found(&site, "excess", &["--quick"])?;
    ensure!(excess["detail"].as_str().unwrap_or_default().contains("secrets"), "{excess}");
    Ok(())
}
