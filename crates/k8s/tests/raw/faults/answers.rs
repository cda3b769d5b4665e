//! The API server is busy, broken, or in conflict.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use podbay_client::provider::Provider;
use rig::faults::{Answer, ApiProxy};

use super::{nothing_is_left, through, wanted};
use crate::pods::rules;
use crate::provider::config;

fn answer(status: u16) -> Result<Answer> {
    Ok(Answer::new(StatusCode::from_u16(status)?))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_waited_for() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let raw = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    let post = |status| Ok::<_, anyhow::Error>(answer(status)?.to(Method::POST));
    for (name, answer) in [
        ("lease-429", post(429)?.on("/leases").retry_after(1)),
        ("lease-409", post(409)?.on("/leases")),
        ("pod-429", post(429)?.on("/pods").retry_after(1)),
        ("pod-409", post(409)?.on("/pods")),
        ("pod-503", post(503)?.on("/pods")),
        ("watch-410", answer(410)?.on("watch=true")),
        ("watch-429", answer(429)?.on("watch=true")),
        ("watch-500", answer(500)?.on("watch=true")),
        ("lease-patch-409", answer(409)?.to(Method::PATCH).on("/leases")),
        ("exec-429", answer(429)?.on("/exec").retry_after(1)),
        ("exec-409", answer(409)?.on("/exec")),
        ("exec-410", answer(410)?.on("/exec")),
        ("exec-500", answer(500)?.on("/exec")),
    ] {
        let start = Instant::now();
        proxy.answer(answer.times(2));
        let made = raw.get_or_create(&wanted(&format!("pb-{name}"))).await.with_context(|| name.to_owned())?;
        ensure!(made.created, "{name}: somebody else made it");
        ensure!(made.sandbox.run("echo yes").await?.text() == "yes\n");
        println!("{name}: {:?}", start.elapsed());
        proxy.step_aside();
        ensure!(raw.delete(&made.id).await?);
    }
    nothing_is_left(&cluster, &namespace).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_is_an_error_in_time_and_leaves_nothing() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let raw = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    let post = |status| Ok::<_, anyhow::Error>(answer(status)?.to(Method::POST));
    for (name, answer, words) in [
        ("policy-500", post(500)?.on("/networkpolicies"), "network policy"),
        ("lease-500", post(500)?.on("/leases"), "Lease"),
        ("lease-409", post(409)?.on("/leases"), "Lease"),
        ("lease-429", post(429)?.on("/leases"), "Lease"),
        ("pod-500", post(500)?.on("/pods"), "pod"),
        ("pod-429", post(429)?.on("/pods"), "pod"),
        ("uid-500", answer(500)?.to(Method::PATCH).on("/leases"), "Lease"),
        ("exec-500", answer(500)?.on("/exec"), "can't be reached"),
    ] {
        let start = Instant::now();
        proxy.answer(answer);
        let error = raw.get_or_create(&wanted(&format!("pb-{name}"))).await.err().context(name)?.to_string();
        println!("{name}: after {:?}: {error}", start.elapsed());
        ensure!(error.contains(words) && error.contains(&name[name.len() - 3..]), "{name}: {error}");
        ensure!(start.elapsed() < Duration::from_secs(45), "{name}: after {:?}", start.elapsed());
        proxy.step_aside();
    }
    nothing_is_left(&cluster, &namespace).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_sandbox_needs_the_api_server_only_to_connect() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let raw = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    let made = raw.get_or_create(&wanted("pb-open")).await?;
    proxy.answer(answer(500)?);
    ensure!(made.sandbox.run("echo yes").await?.text() == "yes\n");
    let error = raw.delete("pb-open").await.err().context("deleted by a broken API server")?.to_string();
    ensure!(error.contains("500"), "{error}");
    proxy.step_aside();
    ensure!(raw.delete("pb-open").await?);
    nothing_is_left(&cluster, &namespace).await
}
