//! Every command on a real cluster, with the account that `podbay install raw` prints.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cluster::Site;
use crate::home::text;

#[tokio::test(flavor = "multi_thread")]
async fn every_command_works_with_the_account_that_install_prints() -> Result<()> {
    let Some(site) = Site::new("every", &[]).await? else { return Ok(()) };
    std::fs::create_dir(site.dir().join("tree"))?;
    std::fs::write(site.dir().join("tree/one"), "needle\n")?;

    ensure!(
        site.says(&["create", "--name", "box", "--label", "task=42", "--memory", "64M", "--ttl", "1h"])? == "box\n"
    );
    let again = site.output(&["create", "--name", "box"]);
    ensure!(text(&again.stderr).contains("a sandbox \"box\" already exists"), "{}", text(&again.stderr));
    let listed = site.says(&["list", "--label", "task=42"])?;
    ensure!(listed.contains("box   running") && listed.contains("task=42"), "{listed}");
    let described: serde_json::Value = serde_json::from_str(&site.says(&["--json", "describe", "box"])?)?;
    ensure!(described["phase"] == "running" && described["ttl_ms"] == 3_600_000, "{described}");
    ensure!(described["idle_ttl_ms"] == 86_400_000 && described["running_commands"] == 0, "{described}");
    ensure!(described["limits"][0]["limit"] == "memory" && described["limits"][0]["by"] == "the node", "{described}");
    let protections = described["protection"]["protections"].as_array().context("no protections")?;
    ensure!(
        protections.iter().any(|protection| protection["what"] == "system_calls" && protection["in_force"] == true),
        "{described}"
    );
    let events = described["events"].as_array().context("no events")?;
    ensure!(events.iter().any(|event| event["reason"] == "Started" && event["at_ms"].is_u64()), "{described}");
    let shown = site.says(&["describe", "box"])?;
    ensure!(shown.contains(&site.namespace) && shown.contains("Started") && shown.contains("task=42"), "{shown}");
    let nobody = site.output(&["describe", "nobody"]);
    ensure!(text(&nobody.stderr).contains("there is no sandbox \"nobody\""), "{nobody:?}");
    ensure!(site.says(&["exec", "box", "--", "sh", "-c", "id -u; pwd"])? == "1000\n/workspace\n");
    ensure!(site.says(&["write", "box", "a", "--text", "hello"])? == "/workspace/a (5 B)\n");
    ensure!(site.says(&["edit", "box", "a", "--old", "hello", "--new", "bye"])?.contains("line 1"));
    ensure!(site.says(&["read", "box", "a"])? == "bye");
    ensure!(site.says(&["cp", "tree", "box:tree"])?.contains("(1 file, 7 B)"));
    ensure!(site.says(&["ls", "box"])?.contains("tree"));
    ensure!(site.says(&["glob", "box", "**/one"])? == "tree/one\n");
    ensure!(site.says(&["grep", "box", "needle"])? == "/workspace/tree/one:1:needle\n");
    site.says(&["cp", "box:tree", "back"])?;
    ensure!(std::fs::read_to_string(site.dir().join("back/one"))? == "needle\n");

    let id = site.says(&["exec", "box", "--detach", "--", "sh", "-c", "echo begun; sleep 600"])?;
    let id = id.trim();
    ensure!(site.says(&["ps", "box"])?.contains(id));
    site.says(&["kill", "box", id])?;
    let attached = site.output(&["attach", "box", id]);
    ensure!(attached.status.code() == Some(137) && text(&attached.stdout) == "begun\n", "{attached:?}");

    for (words, code) in [
        (&["run", "--", "sh", "-c", "exit 7"][..], 7),
        (&["exec", "box", "--", "nonexistent"], 127),
        (&["exec", "box", "--", "/etc/passwd"], 126),
        (&["exec", "box", "--timeout", "300ms", "--", "sleep", "60"], 124),
        (&["exec", "nobody", "--", "true"], 125),
        (&["exec", "box", "--set", "policy.deny_commands=curl", "--", "curl", "x"], 125),
    ] {
        let output = site.output(words);
        ensure!(output.status.code() == Some(code), "{words:?}: {output:?}");
    }
    ensure!(site.says(&["config"])?.contains("raw.image"));
    ensure!(site.says(&["--json", "pool"])?.contains("\"available\""));
    ensure!(site.says(&["--json", "reap"])?.contains("\"kept\":1"));
    ensure!(site.says(&["delete", "box"])? == "box\n");
    ensure!(site.says(&["--json", "list"])? == "[]\n");
    ensure!(site.pods().await?.is_empty());
    Ok(())
}

/// What `podbay install` grants is for the client's account. A sandbox's pod runs with one that may do what everybody may.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxs_service_account_has_no_rights() -> Result<()> {
    let Some(site) = Site::new("rights", &["--pool"]).await? else { return Ok(()) };
    site.says(&["create", "--name", "box"])?;
    let pod = site.pods().await?.pop().context("no pod")?.spec.context("no spec")?;
    let own = pod.service_account_name.context("no account")?;
    let rights = |account: &str| {
        let user = format!("--as=system:serviceaccount:{}:{account}", site.namespace);
        site.kubectl(&["auth", "can-i", "--list", "--no-headers", "-n", &site.namespace, &user], "")
    };
    let everybodys = rights("nobody")?;
    ensure!(rights(&own)? == everybodys, "{own}: {}", rights(&own)?);
    ensure!(!everybodys.contains("leases") && rights("podbay")?.contains("leases"), "{everybodys}");
    ensure!(site.says(&["delete", "box"])? == "box\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_leaves_nothing_behind_however_it_ends() -> Result<()> {
    let Some(site) = Site::new("run", &[]).await? else { return Ok(()) };
    // While its pod starts, while its command runs, and with a name that was given. From the Lease on there is something to delete.
    for (after, words) in [
        (Duration::ZERO, &["run", "--", "sleep", "600"][..]),
        (Duration::from_millis(150), &["run", "--name", "mine", "--", "sleep", "600"]),
        (Duration::from_secs(3), &["run", "--", "sleep", "600"]),
    ] {
        let mut child = site.podbay(words).stdout(Stdio::null()).spawn()?;
        let begun = Instant::now();
        while site.leases()?.is_empty() {
            ensure!(begun.elapsed() < Duration::from_secs(30), "{words:?}: no Lease");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(after).await;
        let begun = Instant::now();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)?;
        let status = child.wait()?;
        ensure!(status.code() == Some(130), "{words:?} after {after:?}: {status}");
        // After 15 seconds `run` gives up deleting.
        ensure!(begun.elapsed() < Duration::from_secs(15), "{words:?}: {:?}", begun.elapsed());
        ensure!(site.leases()?.is_empty() && site.pods().await?.is_empty(), "{words:?} after {after:?}");
    }
    let failed = site.output(&["run", "--image", "localhost/nowhere:1", "--", "true"]);
    ensure!(failed.status.code() == Some(125) && text(&failed.stderr).contains("\n    Warning"), "{failed:?}");
    ensure!(site.leases()?.is_empty() && site.pods().await?.is_empty());
    // One whose process can't clean up any more ends by itself.
    let mut child = site.podbay(&["run", "--timeout", "1h", "--", "sleep", "600"]).stdout(Stdio::null()).spawn()?;
    let begun = Instant::now();
    while site.pods().await?.is_empty() {
        ensure!(begun.elapsed() < Duration::from_secs(30), "no pod");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    child.kill()?;
    child.wait()?;
    let pods = site.pods().await?;
    let deadline = pods[0].spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    ensure!(deadline == Some(3600 + 600), "{deadline:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reap_goes_on_until_it_is_told_to_end() -> Result<()> {
    let Some(site) = Site::new("reap", &[]).await? else { return Ok(()) };
    site.says(&["create", "--name", "short"])?;
    let mut child =
        site.podbay(&["--json", "reap", "--every", "300ms", "--idle", "1s"]).stdout(Stdio::piped()).spawn()?;
    let begun = Instant::now();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut printed = Vec::new();
    // A line each round, so that this doesn't wait forever.
    while !printed.last().is_some_and(|line: &String| line.contains("\"deleted\":[\"short\"]")) {
        ensure!(begun.elapsed() < Duration::from_secs(20), "it wasn't reaped: {printed:?}");
        printed.push(lines.next().context("it ended by itself")??);
    }
    ensure!(site.leases()?.is_empty());
    // It goes on, with nothing left to do.
    let next = lines.next().context("it ended by itself")??;
    ensure!(next.contains("\"deleted\":[]"), "{next}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)?;
    ensure!(child.wait()?.code() == Some(143));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_filled_and_used_with_the_account_that_install_prints_for_it() -> Result<()> {
    let Some(site) = Site::new("pool", &["--pool"]).await? else { return Ok(()) };
    let pooled = |words: &[&str]| {
        let mut command = site.podbay(words);
        command.env("PODBAY_RAW_WARM_POOL_SIZE", "1");
        command.output().unwrap()
    };
    let filled = pooled(&["--json", "pool", "--fill"]);
    ensure!(text(&filled.stdout).contains("\"available\":1"), "{filled:?}");
    let taken = pooled(&["create", "--name", "taken"]);
    ensure!(text(&taken.stdout) == "taken\n", "{taken:?}");
    let status = pooled(&["--json", "pool"]);
    ensure!(text(&status.stdout).contains("\"active\":1"), "{status:?}");
    let ran = pooled(&["exec", "taken", "--", "pwd"]);
    ensure!(text(&ran.stdout) == "/workspace\n", "{ran:?}");
    ensure!(pooled(&["delete", "taken"]).status.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_sandbox_has_a_namespace_with_the_account_that_install_prints_for_it() -> Result<()> {
    let Some(site) = Site::new("apart", &["--namespace-per-sandbox", "--set", "raw.namespace_quota=pods=1"]).await?
    else {
        return Ok(());
    };
    let apart = |words: &[&str]| -> Result<String> {
        let mut command = site.podbay(words);
        command.env("PODBAY_RAW_NAMESPACE_PER_SANDBOX", "true").env("PODBAY_RAW_NAMESPACE_QUOTA", "pods=1");
        let output = command.output()?;
        ensure!(output.status.success(), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
        Ok(text(&output.stdout))
    };
    let doctor = apart(&["doctor", "--quick"])?;
    ensure!(doctor.contains("rights: namespaces"), "{doctor}");
    apart(&["create", "--name", "alone"])?;
    ensure!(apart(&["exec", "alone", "--", "pwd"])? == "/workspace\n");
    ensure!(apart(&["list"])?.contains("alone"));
    let home = format!("podbay.dev/home={}", site.namespace);
    let own = || site.kubectl(&["get", "namespaces", "-l", &home, "-o", "name"], "");
    let (namespace, name) = (own()?, own()?.trim().trim_start_matches("namespace/").to_owned());
    ensure!(namespace.lines().count() == 1, "{namespace}");
    let quota =
        site.kubectl(&["get", "resourcequotas", "-n", &name, "-o", "jsonpath={.items[*].spec.hard.pods}"], "")?;
    ensure!(quota == "1", "{quota:?}");
    apart(&["delete", "alone"])?;
    site.kubectl(&["wait", "--for=delete", "namespaces", "-l", &home, "--timeout=60s"], "")?;
    ensure!(own()?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reaper_that_install_prints_reaps() -> Result<()> {
    const IMAGE: &str = "localhost/podbay-reaper:1";
    let Some(site) = Site::new("reaper", &["--reaper-image", IMAGE]).await? else { return Ok(()) };
    let podbay = rig::File::new("/usr/bin/podbay", std::fs::read(env!("CARGO_BIN_EXE_podbay"))?).mode(0o755);
    let image = rig::Image::new(IMAGE).layer(rig::Layer::debian()).layer(rig::Layer::files("cli-reaper", [podbay]));
    let cluster = site.cluster.clone();
    tokio::task::spawn_blocking(move || cluster.add_images(&[image])).await??;
    // Each build has another, and nobody needs the last one's again.
    for layer in std::fs::read_dir(rig::Cache::place()?.join("layers"))? {
        let layer = layer?;
        if layer.file_name().to_string_lossy().starts_with("cli-reaper-") {
            std::fs::remove_dir_all(layer.path())?;
        }
    }
    // One whose time was up a while ago, and that couldn't end by itself.
    site.says(&["create", "--name", "over"])?;
    let here = &site.namespace;
    site.kubectl(&["annotate", "lease", "over", "podbay.dev/ttl-seconds=1", "--overwrite", "-n", here], "")?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Away from the sandboxes, so that nobody who may run commands in those finds its token.
    let home = format!("{here}-reaper");
    site.kubectl(&["create", "job", "now", "--from=cronjob/podbay-reaper", "-n", &home], "")?;
    let done = site.kubectl(&["wait", "--for=condition=complete", "job/now", "-n", &home, "--timeout=60s"], "");
    let log = site.kubectl(&["logs", "job/now", "-n", &home], "")?;
    site.kubectl(&["delete", "namespace", &home, "--wait=false"], "")?;
    ensure!(done.is_ok() && log.contains("\"deleted\":[\"over\"]"), "{done:?} {log}");
    ensure!(site.leases()?.is_empty());
    Ok(())
}
