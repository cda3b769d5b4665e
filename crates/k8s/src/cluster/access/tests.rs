use std::io::Write as _;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::Cluster;
use super::*;
use crate::test_certificates as certificates;

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// An API server that answers one request, and returns its head.
async fn server() -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move { answer(listener.accept().await.unwrap().0).await });
    (url, served)
}

/// Answers a request, and returns its head.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let mut request = vec![0; 4096];
    let read = stream.read(&mut request).await.unwrap();
    let body = r#"{"major": "1", "minor": "35", "gitVersion": "", "gitCommit": "", "gitTreeState": "", "buildDate": "",
                   "goVersion": "", "compiler": "", "platform": ""}"#;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    String::from_utf8_lossy(&request[..read]).to_lowercase()
}

async fn request(access: &Access) -> String {
    let (url, served) = server().await;
    let cluster = Cluster::connect(&Access { api_url: Some(url), ..access.clone() }).await.unwrap();
    cluster.client.apiserver_version().await.unwrap();
    served.await.unwrap()
}

/// `kube_api_url` and `kube_token` were accepted and ignored.
#[tokio::test]
async fn the_named_server_is_asked_with_the_named_token() {
    let head = request(&Access::default()).await;
    assert!(head.starts_with("get /version") && !head.contains("authorization"), "{head}");
    let head = request(&Access { token: Some("t0ken".into()), ..Access::default() }).await;
    assert!(head.contains("authorization: bearer t0ken"), "{head}");
    let secret = file("from-file");
    let head = request(&Access { token_file: Some(secret.path().into()), ..Access::default() }).await;
    assert!(head.contains("authorization: bearer from-file"), "{head}");
}

/// As `kubectl --server --token`: the rest comes from the kubeconfig, but none of its credentials beside a token.
#[tokio::test]
async fn a_kubeconfig_keeps_what_is_not_replaced() {
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "agents"}}],
        "clusters": [{"name": "it", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "it", "user": {"token": "of-the-user"}}],
    });
    let kubeconfig = file(&kubeconfig.to_string());
    let named = Access { kubeconfig: Some(kubeconfig.path().into()), ..Access::default() };
    let (config, _) = named.read().await.unwrap();
    assert_eq!(
        (config.cluster_url.to_string().as_str(), config.default_namespace.as_str()),
        ("https://127.0.0.1:1/", "agents")
    );
    assert!(request(&named).await.contains("authorization: bearer of-the-user"));
    let replaced = Access { token: Some("mine".into()), ..named };
    assert!(request(&replaced).await.contains("authorization: bearer mine"));
    assert!(!format!("{replaced:?}").contains("mine"), "{replaced:?}");
}

#[tokio::test]
async fn the_authority_of_a_file_replaces_all_others() {
    let authority = file("");
    let access = Access {
        api_url: Some("https://127.0.0.1:1".into()),
        ca_file: Some(authority.path().into()),
        ..Access::default()
    };
    let (config, _) = access.read().await.unwrap();
    assert_eq!(config.root_cert_file.as_deref(), Some(authority.path()));
    let (config, _) = Access { ca_file: None, ..access }.read().await.unwrap();
    // kube then uses the system's.
    assert_eq!((config.root_cert_file, config.root_cert), (None, None));
}

#[tokio::test]
async fn only_servers_of_the_named_authority_are_trusted() {
    for (authority, reached) in [("authority.crt", true), ("stranger.crt", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api_url = Some(format!("https://{}", listener.local_addr().unwrap()));
        let tls = certificates::server("server", false);
        let served = tokio::spawn(async move {
            let stream = tls.accept(listener.accept().await.unwrap().0).await.ok()?;
            Some(answer(stream).await)
        });
        let ca_file = Some(certificates::file(authority));
        let cluster = Cluster::connect(&Access { api_url, ca_file, ..Access::default() }).await.unwrap();
        assert_eq!(cluster.client.apiserver_version().await.is_ok(), reached);
        assert_eq!(served.await.unwrap().is_some(), reached);
    }
}

#[tokio::test]
async fn the_named_context_and_namespace_are_used() {
    let (url, served) = server().await;
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "first",
        "contexts": [
            {"name": "first", "context": {"cluster": "nowhere", "user": "it", "namespace": "agents"}},
            {"name": "second", "context": {"cluster": "here", "user": "it", "namespace": "others"}},
        ],
        "clusters": [
            {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}},
            {"name": "here", "cluster": {"server": url}},
        ],
        "users": [{"name": "it", "user": {}}],
    });
    let kubeconfig = file(&kubeconfig.to_string());
    let first = Access { kubeconfig: Some(kubeconfig.path().into()), ..Access::default() };
    assert_eq!(Cluster::connect(&first).await.unwrap().namespace(), "agents");
    let second = Access { context: Some("second".into()), ..first };
    let cluster = Cluster::connect(&second).await.unwrap();
    assert_eq!(cluster.namespace(), "others");
    cluster.client.apiserver_version().await.unwrap();
    assert!(served.await.unwrap().starts_with("get /version"));
    let named = Access { namespace: Some("mine".into()), ..second };
    assert_eq!(Cluster::connect(&named).await.unwrap().namespace(), "mine");
}

#[tokio::test]
async fn contradictions_are_refused_and_no_token_is_shown() {
    let newline = file("s3cret\n");
    let access = || Access { api_url: Some("https://127.0.0.1:1".into()), ..Access::default() };
    let token = || Some("s3cret".to_owned());
    for (access, word) in [
        (Access { token: token(), token_file: Some(newline.path().into()), ..access() }, "both set"),
        (Access { token_file: Some(newline.path().into()), ..access() }, "line break"),
        (Access { token_file: Some("/nonexistent/token".into()), ..access() }, "/nonexistent/token"),
        (Access { ca_file: Some("/nonexistent/ca".into()), ..access() }, "cluster.ca_file"),
        (Access { token: Some("s3cret and more".into()), ..access() }, "isn't a bearer token"),
        (Access { token: Some(String::new()), ..access() }, "isn't a bearer token"),
        (Access { api_url: Some("10.0.0.1".into()), ..access() }, "https://10.0.0.1:6443"),
        (Access { api_url: Some("ftp://10.0.0.1".into()), ..access() }, "cluster.api_url"),
        (Access { api_url: Some("http://10.0.0.1".into()), token: token(), ..access() }, "unencrypted"),
        (
            Access { api_url: Some("http://127.0.0.1".into()), ca_file: Some(newline.path().into()), ..access() },
            "needs an https://",
        ),
    ] {
        let error = Cluster::connect(&access).await.unwrap_err().to_string();
        assert!(error.contains(word) && !error.contains("s3cret"), "{error}");
    }
}
