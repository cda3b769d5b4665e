//! The account for a namespace per sandbox, as `podbay install raw` prints it: its rights hold in the whole cluster, and a
//! policy keeps it in its own namespaces.

use std::io::Write;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podbay_client::provider::{Provider, Query};
use podbay_k8s::install::Install;
use podbay_k8s::raw::{Config, Features, Raw};
use podbay_k8s::{Access, Cluster};

use crate::provider::{config, wanted};

/// The manifests, applied. They go with this value.
struct Installed {
    cluster: rig::TestCluster,
    manifests: String,
    dir: tempfile::TempDir,
}

impl Installed {
    fn apply(cluster: &rig::TestCluster, install: &Install) -> Result<Self> {
        let manifests = install.manifests()?;
        let installed = Self { cluster: cluster.clone(), manifests: manifests.clone(), dir: tempfile::tempdir()? };
        cluster.apply(&manifests)?;
        Ok(installed)
    }

    /// A kubeconfig of one of the accounts.
    fn kubeconfig(&self, home: &str, account: &str) -> Result<std::path::PathBuf> {
        let made = self.cluster.kubectl().args(["create", "token", account, "-n", home]).output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let token = String::from_utf8(made.stdout)?;
        let file = self.dir.path().join(account);
        std::fs::write(&file, self.cluster.access(token.trim(), home)?.kubeconfig())?;
        Ok(file)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let mut kubectl = self.cluster.kubectl();
        kubectl.args(["delete", "--wait=false", "--ignore-not-found", "-f", "-"]).stdin(Stdio::piped());
        if let Ok(mut child) = kubectl.stdout(Stdio::null()).spawn() {
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(self.manifests.as_bytes()));
            let _ = child.wait();
        }
    }
}

/// What `kubectl` says as an account. Nothing is changed: admission is asked, and that is all.
fn tried(cluster: &rig::Cluster, kubeconfig: &std::path::Path, words: &[&str], manifest: &str) -> Result<Output> {
    let mut kubectl = std::process::Command::new(cluster.programs().join("kubectl"));
    kubectl.arg("--kubeconfig").arg(kubeconfig).args(words);
    let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no pipe")?.write_all(manifest.as_bytes())?;
    Ok(child.wait_with_output()?)
}

fn pod(namespace: &str) -> String {
    let container =
        "{name: a, image: x, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}";
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, namespace: {namespace}}}\nspec: {{containers: [{container}], \
         securityContext: {{runAsNonRoot: true, seccompProfile: {{type: RuntimeDefault}}}}}}\n"
    )
}

fn space(name: &str, labels: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n")
}

/// The account's ClusterRole let it make pods and run commands in every namespace: as good as cluster-admin.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_with_rights_in_the_whole_cluster_is_kept_in_its_own_namespaces() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let other = cluster.namespace(vec![]).await?;
    let home = format!("{}-boxes", other.name());
    let features = Features { network_rules: true, namespace_per_sandbox: true, ..Features::default() };
    let install =
        Install { namespace: home.clone(), reaper_image: Some("podbay:0".into()), ..Install::new(features.needs()) };
    let installed = Installed::apply(&cluster, &install)?;
    let file = installed.kubeconfig(&home, "podbay")?;
    let dry = ["create", "--dry-run=server", "-f", "-"];
    let refused = |words: &[&str], manifest: &str, word: &str| -> Result<()> {
        let output = tried(&cluster, &file, words, manifest)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && said.contains(word), "{words:?} {manifest}: {said}");
        Ok(())
    };

    // A policy holds a moment after it was made.
    let begun = Instant::now();
    while refused(&dry, &pod(other.name()), "ValidatingAdmissionPolicy").is_err() {
        ensure!(begun.elapsed() < Duration::from_secs(30), "a pod can be made in another namespace");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("the policy holds after {:?}", begun.elapsed());
    let lease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: a, namespace: kube-system}\n";
    refused(&dry, lease, "only in")?;
    let rules = format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: a, namespace: {}}}\nspec: {{podSelector: {{}}}}\n",
        other.name()
    );
    refused(&dry, &rules, "only in")?;
    let ours = format!("podbay.dev/home: {home}, app.kubernetes.io/managed-by: podbay");
    let level = "pod-security.kubernetes.io/enforce: restricted";
    refused(&dry, &space("a", ""), "podbay.dev/home")?;
    refused(&dry, &space("a", &format!("podbay.dev/home: other, {level}")), "podbay.dev/home")?;
    refused(&dry, &space("a", &ours), "pod-security")?;
    refused(&dry, &space("a", &format!("{ours}, pod-security.kubernetes.io/enforce: privileged")), "pod-security")?;
    let old = format!("{ours}, {level}, pod-security.kubernetes.io/enforce-version: v1.0");
    refused(&dry, &space("a", &old), "pod-security")?;
    refused(&["delete", "--dry-run=server", "namespace", other.name()], "", "podbay.dev/home")?;
    refused(&["delete", "--dry-run=server", "namespace", &home], "", "podbay.dev/home")?;

    // Neither into a pod of somebody else's, nor away with it.
    crate::pods::channel_as(&cluster.admin(), other.name(), "victim", serde_json::json!({"image": rig::BUSYBOX}))
        .await?;
    refused(&["exec", "-n", other.name(), "victim", "--", "true"], "", "only in")?;
    refused(&["delete", "--dry-run=server", "pod", "-n", other.name(), "victim"], "", "only in")?;
    for verb in ["get", "list", "watch"] {
        let may = tried(&cluster, &file, &["auth", "can-i", verb, "secrets", "--all-namespaces"], "")?;
        ensure!(!may.status.success(), "may {verb} secrets everywhere");
    }

    // What it is for, it does.
    let fine = tried(&cluster, &file, &dry, &space("a", &format!("{ours}, {level}")))?;
    ensure!(fine.status.success(), "{}", String::from_utf8_lossy(&fine.stderr));
    let own = Config { namespace_per_sandbox: true, ..config(rig::BUSYBOX) };
    let raw = |file| {
        let (own, access) =
            (own.clone(), Access { kubeconfig: Some(file), namespace: Some(home.clone()), ..Access::default() });
        async move { anyhow::Ok(Raw::new(Cluster::connect(&access).await?, own)?) }
    };
    let user = raw(file.clone()).await?;
    for id in ["pb-one", "pb-two"] {
        let made = user.get_or_create(&wanted(id)).await?;
        ensure!(made.sandbox.run("echo hello").await?.text() == "hello\n");
    }
    ensure!(user.list(&Query::default()).await?.sandboxes.len() == 2);
    ensure!(user.delete("pb-one").await?);
    // So does the reaper, as an account that can't make anything.
    let reaper = installed.kubeconfig(&format!("{home}-reaper"), "podbay-reaper")?;
    let cleaned = raw(reaper.clone()).await?.cleanup(Some(Duration::ZERO)).await?;
    ensure!(cleaned.failed.is_empty() && !cleaned.deleted.is_empty(), "{cleaned:?}");
    let output = tried(&cluster, &reaper, &dry, &pod(&home))?;
    ensure!(String::from_utf8_lossy(&output.stderr).contains("cannot create resource"), "the reaper makes pods");
    Ok(())
}

/// In one namespace no policy is needed: a Role reaches no further.
#[tokio::test(flavor = "multi_thread")]
async fn the_reapers_account_removes_sandboxes_and_makes_none() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let other = cluster.namespace(vec![]).await?;
    let home = format!("{}-boxes", other.name());
    let needs = Features { network_rules: true, ..Features::default() }.needs();
    let install = Install { namespace: home.clone(), reaper_image: Some("podbay:0".into()), ..Install::new(needs) };
    let installed = Installed::apply(&cluster, &install)?;
    let raw = |file| {
        let access = Access { kubeconfig: Some(file), namespace: Some(home.clone()), ..Access::default() };
        async move { anyhow::Ok(Raw::new(Cluster::connect(&access).await?, config(rig::BUSYBOX))?) }
    };
    let user = raw(installed.kubeconfig(&home, "podbay")?).await?;
    let made = user.get_or_create(&wanted("pb-one")).await?;
    ensure!(made.sandbox.run("true").await?.success());
    let reaper = raw(installed.kubeconfig(&format!("{home}-reaper"), "podbay-reaper")?).await?;
    let cleaned = reaper.cleanup(Some(Duration::ZERO)).await?;
    ensure!(cleaned.failed.is_empty() && cleaned.deleted == ["pb-one"], "{cleaned:?}");
    ensure!(reaper.get_or_create(&wanted("pb-two")).await.is_err(), "the reaper makes sandboxes");
    Ok(())
}
