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

/// A watch on a connection whose other end was gone waited for ever, and with it the pool's keeper.
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
