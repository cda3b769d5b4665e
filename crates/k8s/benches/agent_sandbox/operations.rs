//! Operations through exec, at the pod's own address, and over the stock runtime's HTTP API at its pod's address.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use podbay_client::files::{Ls, Read, Write};
use podbay_client::provider::{Provider, Wanted};
use podbay_client::{Command, Sandbox};
use podbay_k8s::channel::Connection;
use serde_json::json;

use crate::measure::{Samples, Table};
use crate::stock_http::StockConnection;
use crate::{Inside, MEMORY, RUNTIME, STOCK, transfers};

/// How often each operation is measured.
const ROUNDS: usize = 300;

/// How many commands each of sixteen runs.
const EACH: usize = 60;

/// A sandbox, and how it is reached.
pub struct Way<'a>(pub &'a str, pub &'a Sandbox);

pub async fn measure(inside: &Inside) {
    let provider = inside.provider(RUNTIME, Connection::InCluster).await;
    let made = provider.get_or_create(&Wanted::default()).await.unwrap();
    let by = async |connection| inside.provider(RUNTIME, connection).await.reconnect(&made.id).await.unwrap().sandbox;
    let (exec, router, tunnel) =
        (by(Connection::Exec).await, by(Connection::Direct).await, by(Connection::Tunnel).await);
    let named = inside.by_router_alone(&made.id).await;
    let raw = inside.raw().await;
    let pod = raw.get_or_create(&Wanted::default()).await.unwrap();
    let by_stock = inside.by_stock_runtime().await;
    let stock = by_stock.get_or_create(&Wanted::default()).await.unwrap();
    let ways = [
        Way("**at the pod's address**", &made.sandbox),
        Way("in raw mode, at the pod's address", &pod.sandbox),
        Way("through the router", &router),
        Way("through the router, without rights on the cluster", &named),
        Way("through a tunnel to the router", &tunnel),
        Way("through exec", &exec),
        Way("through the router, over the stock runtime's API", &stock.sandbox),
    ];
    let address = start_stock(inside).await;
    let text = "line of text\n".repeat(300);
    StockConnection::open(&address).await.upload("file", text.as_bytes()).await;
    for Way(_, sandbox) in &ways {
        sandbox.write(&Write::new("file"), text.clone()).await.unwrap();
    }

    let table = Table::times("Operations");
    let mut factors = Vec::new();
    let rows = |what: &str, name: &str, most: &str, theirs: &Samples, ours: Vec<Samples>| {
        table.row(&format!("baseline: the stock runtime's `{name}`: {what}"), theirs);
        for (Way(way, _), ours) in ways.iter().zip(&ours) {
            table.row(&format!("{what}, {way}"), ours);
        }
        let factor = ours[0].p50().as_secs_f64() / theirs.p50().as_secs_f64();
        (format!("{what} / the stock runtime's `{name}` (at most {most})"), format!("{factor:.2}"))
    };

    let (theirs, ours) = in_turn(
        &ways,
        &address,
        async |stock| stock.run_true().await,
        async |sandbox| assert!(sandbox.run(Command::argv(["true"])).await.unwrap().success()),
    )
    .await;
    factors.push(rows("`true`", "/execute", "0.7", &theirs, ours));
    for Way(way, sandbox) in &ways {
        let run = |_| async { assert!(sandbox.run("true").await.unwrap().success()) };
        table.row(&format!("`sh -c true`, {way}"), &Samples::of(ROUNDS, run).await);
    }

    let (theirs, ours) = in_turn(
        &ways,
        &address,
        async |stock| assert_eq!(stock.download("file").await.len(), text.len()),
        async |sandbox| drop(sandbox.read(&Read::new("file")).await.unwrap()),
    )
    .await;
    factors.push(rows("read 4 KB", "/download", "0.25", &theirs, ours));

    let (theirs, ours) = in_turn(
        &ways,
        &address,
        async |stock| stock.upload("other", text.as_bytes()).await,
        async |sandbox| drop(sandbox.write(&Write::new("other"), text.clone()).await.unwrap()),
    )
    .await;
    factors.push(rows("write 4 KB", "/upload", "0.25", &theirs, ours));
    for Way(way, sandbox) in &ways {
        let ls = |_| async { drop(sandbox.ls(&Ls::new(".")).await.unwrap()) };
        table.row(&format!("ls, {way}"), &Samples::of(ROUNDS, ls).await);
    }

    let figures = Table::figures("Compared with the stock runtime (p50)");
    for (what, factor) in factors {
        figures.figure(&what, factor);
    }
    many(&ways, &address).await;
    let measured = [
        Way("**at the pod's address**", &made.sandbox),
        Way("through the router", &router),
        Way("through the router, without rights on the cluster", &named),
        Way("through a tunnel to the router", &tunnel),
        Way("through exec", &exec),
    ];
    transfers::measure(&measured, &address, &stock.sandbox).await;
    provider.delete(&made.id).await.unwrap();
    by_stock.delete(&stock.id).await.unwrap();
    raw.delete(&pod.id).await.unwrap();
    pods(inside).delete(STOCK, &DeleteParams::default()).await.unwrap();
}

/// The times of an operation by the stock runtime and by Podbay in each way. They take turns, so that whatever else the machine does
/// meets all of them alike.
async fn in_turn(
    ways: &[Way<'_>],
    stock: &str,
    mut theirs: impl AsyncFnMut(&mut StockConnection),
    mut ours: impl AsyncFnMut(&Sandbox),
) -> (Samples, Vec<Samples>) {
    // The stock runtime closes connections that nobody has used for five seconds.
    let mut stock = StockConnection::open(stock).await;
    let mut times = vec![Vec::new(); ways.len() + 1];
    // The first rounds warm everything up.
    for round in 0..ROUNDS + 10 {
        let mut taken = Vec::with_capacity(times.len());
        let begun = Instant::now();
        theirs(&mut stock).await;
        taken.push(begun.elapsed());
        for Way(_, sandbox) in ways {
            let begun = Instant::now();
            ours(sandbox).await;
            taken.push(begun.elapsed());
        }
        if round >= 10 {
            times.iter_mut().zip(taken).for_each(|(times, taken)| times.push(taken));
        }
    }
    let mut samples = times.into_iter().map(Samples::from);
    (samples.next().unwrap(), samples.collect())
}

/// Sixteen at a time into one sandbox.
async fn many(ways: &[Way<'_>], stock: &str) {
    let table = Table::figures("Sixteen callers at a time, each running `true`");
    let per_second = |begun: Instant| (16 * EACH) as f64 / begun.elapsed().as_secs_f64();
    let ask_stock = || async {
        let mut connection = StockConnection::open(stock).await;
        for _ in 0..EACH {
            connection.run_true().await;
        }
    };
    let ask = |sandbox: Sandbox| async move {
        for _ in 0..EACH {
            assert!(sandbox.run(Command::argv(["true"])).await.unwrap().success());
        }
    };
    let begun = Instant::now();
    join_all((0..16).map(|_| ask_stock())).await;
    let theirs = per_second(begun);
    table.figure("baseline: the stock runtime, commands per second", format!("{theirs:.0}"));
    for Way(way, sandbox) in ways {
        let begun = Instant::now();
        join_all((0..16).map(|_| ask((*sandbox).clone()))).await;
        let ours = per_second(begun);
        table.figure(
            &format!("podbay, {way}, commands per second"),
            format!("{ours:.0} ({:.2}× the stock runtime)", ours / theirs),
        );
    }
}

fn pods(inside: &Inside) -> Api<Pod> {
    Api::namespaced(inside.client.clone(), &inside.namespace)
}

/// A pod of the stock runtime, with the limits that the others have and its directory on such a volume as their working directory;
/// returns its address.
async fn start_stock(inside: &Inside) -> String {
    let pods = pods(inside);
    let pod = json!({
        "metadata": {"name": STOCK},
        "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "securityContext": {
            "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
        }, "volumes": [{"name": "app", "emptyDir": {}}], "initContainers": [{
            "name": "copy", "image": rig::PYTHON_RUNTIME, "imagePullPolicy": "Never",
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            "command": ["cp", "-r", "/app/.", "/copy"], "volumeMounts": [{"name": "app", "mountPath": "/copy"}],
        }], "containers": [{
            "name": "runtime", "image": rig::PYTHON_RUNTIME, "imagePullPolicy": "Never",
            "volumeMounts": [{"name": "app", "mountPath": "/app"}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            "resources": {"limits": {"cpu": "2", "memory": MEMORY}, "requests": {"cpu": "1m", "memory": "8Mi"}},
        }]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let Some(ip) = pods.get(STOCK).await.unwrap().status.and_then(|status| status.pod_ip) else { continue };
        let address = format!("{ip}:8888");
        if tokio::net::TcpStream::connect(&address).await.is_ok() {
            return address;
        }
    }
}
