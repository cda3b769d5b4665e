//! Environment, containers and pod metadata.

use anyhow::{Context, Result, ensure};
use podbay_client::Command;
use podbay_client::provider::{Launch, Provider, Wanted};
use podbay_k8s::agent_sandbox::Config;
use serde_json::json;

use crate::fixture::{ALL, Fixture, template};

/// Variables that Podbay sets keep the warm start; those of the claim cost it.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_the_environment_that_was_asked_for() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({"envVarsInjectionPolicy": "Allowed"})).await?;
    fixture.pool("debian", "debian", 1).await?;
    let env = [("A".to_owned(), "from the settings".to_owned()), ("B".to_owned(), "weak".to_owned())];
    let warm = Config { env: env.into(), ..template("debian") };
    let provider = fixture.provider(warm.clone())?;
    let made = provider.get_or_create(&Wanted::default()).await?;
    ensure!(made.launch == Some(Launch::Warm));
    let output = made.sandbox.run(Command::shell("echo $A $B").env("B", "strong")).await?;
    ensure!(output.text() == "from the settings strong\n", "{}", output.text());
    let mut streamed = made.sandbox.spawn("test \"$A\" = 'from the settings'").await?;
    let ended = streamed.wait().await?;
    ensure!(matches!(&ended.state, podbay_client::State::Exited(exit) if exit.code == 0), "{ended:?}");
    provider.delete(&made.id).await?;

    let claim_env = [("C".to_owned(), "in the pod".to_owned())].into();
    let cold = Config { claim_env, workdir: Some("/usr".into()), ..warm };
    let provider = fixture.provider(cold)?;
    let made = provider.get_or_create(&Wanted::default()).await?;
    ensure!(made.launch == Some(Launch::Cold), "{made:?}");
    let output = made.sandbox.run("echo $A, $C; tr '\\0' '\\n' </proc/1/environ | grep ^C=; pwd").await?;
    ensure!(output.text() == "from the settings, in the pod\nC=in the pod\n/usr\n", "{}", output.text());
    provider.delete(&made.id).await?;
    Ok(())
}

/// A template may forbid it, and the controller's reason comes at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_template_forbids_fails_at_once_and_leaves_nothing() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("strict", rig::DEBIAN, json!({})).await?;
    let config = Config { claim_env: [("C".to_owned(), "x".to_owned())].into(), ..template("strict") };
    let start = std::time::Instant::now();
    let error = fixture.provider(config)?.get_or_create(&Wanted::default()).await.err().context("it was allowed")?;
    ensure!(error.to_string().contains("EnvVarsInjectionRejected"), "{error}");
    let labels = [("other.example/team".to_owned(), "blue".to_owned())];
    let config = Config { pod_labels: labels.into(), ..template("strict") };
    let error = fixture.provider(config)?.get_or_create(&Wanted::default()).await.err().context("it was allowed")?;
    ensure!(error.to_string().contains("InvalidMetadata"), "{error}");
    ensure!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    fixture.only_pools_are_left(0).await
}

/// In a pod with several containers, the wanted one is used (row 87 of the replaced packages' features).
#[tokio::test(flavor = "multi_thread")]
async fn the_container_can_be_chosen() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    let wait = json!(["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"]);
    let container = |name: &str, image: &str| json!({"name": name, "image": image, "imagePullPolicy": "Never", "command": wait, "env": [{"name": "WHO", "value": name}]});
    let containers = json!([container("sidecar", rig::BUSYBOX), container("main", rig::DEBIAN)]);
    let pod =
        json!({"spec": {"terminationGracePeriodSeconds": 1, "containers": containers}, "metadata": {"labels": {}}});
    fixture.template("two", rig::DEBIAN, json!({"podTemplate": pod})).await?;
    fixture.pool("two", "two", 1).await?;
    for (container, expected) in [(None, "sidecar\n"), (Some("main"), "main\n")] {
        let config = Config { container: container.map(str::to_owned), ..template("two") };
        let provider = fixture.provider(config)?;
        let made = provider.get_or_create(&Wanted::default()).await?;
        let output = made.sandbox.run("echo $WHO").await?;
        ensure!(output.text() == expected, "{}", output.text());
        provider.delete(&made.id).await?;
    }
    let config = Config { container: Some("nope".into()), ..template("two") };
    let error = fixture.provider(config)?.get_or_create(&Wanted::default()).await.err().context("there is none")?;
    ensure!(error.to_string().contains("one of sidecar, main"), "{error}");
    fixture.only_pools_are_left(1).await
}
