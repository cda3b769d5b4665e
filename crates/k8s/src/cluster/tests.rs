use std::io::Write as _;
use std::time::Instant;

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// An API server that begins every answer, sends what it is told to, and then falls silent without closing.
async fn silent(first: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
                stream.write_all(format!("{head}{:x}\r\n{first}\r\n", first.len()).as_bytes()).await.unwrap();
                std::future::pending::<()>().await;
            });
        }
    });
    address
}

fn pods_of(address: std::net::SocketAddr) -> Api<Pod> {
    let second = Duration::from_secs(1);
    let deadlines = Deadlines { answer: 20 * second, piece: second / 2, event: second };
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    Api::namespaced(client(config, None, deadlines, &Clock::new()).unwrap(), "default")
}

const EVENT: &str =
    "{\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}}\n";

/// A watch on a connection whose other end was gone waited forever, and with it the pool's keeper.
#[tokio::test]
async fn a_watch_that_falls_silent_ends() {
    let pods = pods_of(silent(EVENT).await);
    let begun = Instant::now();
    let work = async {
        let mut events = Box::pin(pods.watch(&WatchParams::default(), "0").await.unwrap());
        assert!(events.try_next().await.unwrap().is_some());
        assert!(events.try_next().await.unwrap().is_none());
    };
    tokio::time::timeout(Duration::from_secs(10), work).await.expect("it hangs");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// Only the head of an answer was bounded: a list whose second half never came was waited for.
#[tokio::test]
async fn an_answer_that_falls_silent_is_an_error_that_passes() {
    let pods = pods_of(silent("{").await);
    let listed = tokio::time::timeout(Duration::from_secs(10), pods.list(&ListParams::default())).await;
    let error = listed.expect("it hangs").unwrap_err();
    assert!(crate::api::retry::is_transient(&error), "{error:?}");
}

#[test]
fn the_proxy_is_that_of_the_contexts_cluster() {
    let file: Kubeconfig = serde_json::from_value(serde_json::json!({
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "a"}},
            {"name": "two", "context": {"cluster": "b"}},
        ],
        "clusters": [
            {"name": "a", "cluster": {"server": "https://a", "proxy-url": "http://proxy:1"}},
            {"name": "b", "cluster": {"server": "https://b", "proxy-url": ""}},
        ],
    }))
    .unwrap();
    assert_eq!(proxy_url(&file, None).as_deref(), Some("http://proxy:1"));
    assert_eq!(proxy_url(&file, Some("two")), None);
    assert_eq!(proxy_url(&file, Some("three")), None);
}

#[tokio::test]
async fn a_missing_file_is_named() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"apiVersion: v1").unwrap();
    let access = |path: &str| Access { kubeconfig: Some(path.into()), ..Access::default() };
    let message = Cluster::connect(&access("/nowhere/kubeconfig")).await.unwrap_err().to_string();
    assert!(message.contains("/nowhere/kubeconfig"), "{message}");
    assert!(Cluster::connect(&access(file.path().to_str().unwrap())).await.is_err());
}

/// An API server that takes its time over every request, and counts how many it has at once. Watches get an event and stay open.
async fn counting(most: std::sync::Arc<std::sync::atomic::AtomicUsize>) -> std::net::SocketAddr {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let current = std::sync::Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (current, most) = (current.clone(), most.clone());
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut request).await {
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
                    if String::from_utf8_lossy(&request[..length]).contains("watch=true") {
                        let piece = format!("{:x}\r\n{EVENT}\r\n", EVENT.len());
                        let answer = format!("{head}transfer-encoding: chunked\r\n\r\n{piece}");
                        stream.write_all(answer.as_bytes()).await.unwrap();
                        std::future::pending::<()>().await;
                    }
                    most.fetch_max(current.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#;
                    let (first, second) = pod.split_at(10);
                    let head = format!("{head}content-length: {}\r\n\r\n{first}", pod.len());
                    stream.write_all(head.as_bytes()).await.unwrap();
                    // The answer has begun, but isn't over.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    current.fetch_sub(1, Ordering::SeqCst);
                    stream.write_all(second.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

/// Whoever used many sandboxes at once opened a connection for each request.
#[tokio::test]
async fn requests_in_flight_are_bounded_and_watches_neither_count_nor_wait() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let most = std::sync::Arc::new(AtomicUsize::new(0));
    let pods = pods_of(counting(most.clone()).await);
    let parameters = WatchParams::default();
    let mut watches = Vec::new();
    for _ in 0..in_flight::MOST + 10 {
        let mut events = Box::pin(pods.watch(&parameters, "0").await.unwrap());
        assert!(events.try_next().await.unwrap().is_some());
        watches.push(events);
    }
    let all = futures_util::future::join_all((0..300).map(|_| pods.get("a")));
    let all = tokio::time::timeout(Duration::from_secs(60), all).await.expect("they wait for each other");
    assert!(all.iter().all(Result::is_ok), "{:?}", all.iter().find(|one| one.is_err()));
    assert_eq!(most.load(Ordering::SeqCst), in_flight::MOST);
}

/// The half-open connection of a laptop that was asleep: the kernel's defaults notice it after two hours.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_kernel_probes_idle_connections() {
    let address = counting(std::sync::Arc::default()).await;
    let pods = pods_of(address);
    pods.get("a").await.unwrap();
    // The connection stays in the client's pool, idle. Of our end the kernel tells the timer: 02 is keep-alive, and when.
    let to = format!("0100007F:{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let ours = table.lines().find(|line| line.split_whitespace().nth(2) == Some(&*to)).expect("no connection");
    let timer = ours.split_whitespace().nth(5).unwrap();
    let (kind, hundredths) = timer.split_once(':').unwrap();
    let left = Duration::from_millis(u64::from_str_radix(hundredths, 16).unwrap() * 10);
    assert_eq!(kind, "02", "no keep-alive: {ours}");
    assert!(left > Duration::from_secs(1) && left <= KEEP_ALIVE.0, "the first probe in {left:?}: {ours}");
}
