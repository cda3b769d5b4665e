//! What a router sees of a client, setting by setting. The servers here aren't routers: they answer 502 to whatever they get.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::*;
use crate::agent_sandbox::Config;
use crate::channel::Connection;
use crate::channel::in_cluster::PodAddresses;
use crate::cluster::Access;
use crate::keys;
use crate::test_certificates as certificates;

/// What a server got.
struct Seen {
    head: String,
    /// The name that the client expects the server to have, and the certificate that it showed.
    server_name: Option<String>,
    certificate: Option<CertificateDer<'static>>,
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> io::Result<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(String::from_utf8_lossy(&request).to_lowercase())
}

/// A server for one connection, with TLS if there is an acceptor.
async fn server(tls: Option<TlsAcceptor>) -> (SocketAddr, JoinHandle<io::Result<Seen>>) {
    const BAD_GATEWAY: &str = "HTTP/1.1 502 Bad Gateway\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        let Some(tls) = tls else {
            return Ok(Seen { head: answer(stream, BAD_GATEWAY).await?, server_name: None, certificate: None });
        };
        let stream = tls.accept(stream).await?;
        let session = stream.get_ref().1;
        let server_name = session.server_name().map(str::to_owned);
        let certificate = session.peer_certificates().map(|chain| chain[0].clone().into_owned());
        Ok(Seen { head: answer(stream, BAD_GATEWAY).await?, server_name, certificate })
    });
    (address, served)
}

/// An API server that answers as many requests as there are bodies, and returns their heads.
async fn api_server(status: &str, bodies: &[String]) -> (Cluster, JoinHandle<io::Result<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\n");
    let answers: Vec<String> =
        bodies.iter().map(|body| format!("{head}content-length: {}\r\n\r\n{body}", body.len())).collect();
    let served = tokio::spawn(async move {
        let mut asked = Vec::new();
        for text in answers {
            asked.push(answer(listener.accept().await?.0, &text).await?);
        }
        Ok(asked)
    });
    (Cluster::connect(&Access { api_url: Some(url), ..Access::default() }).await.unwrap(), served)
}

/// A directory for keys and tokens, and a configuration with a key for podbayd.
fn config() -> (tempfile::TempDir, Config) {
    let dir = tempfile::tempdir().unwrap();
    let private_key_file = Some(file(&dir, "key", &keys::generate().secret_text()));
    (dir, Config { private_key_file, ..Config::default() })
}

fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Connects to the podbayd of a pod as a configuration says.
async fn connect(cluster: &Cluster, config: &Config) -> Result<AddressFailure> {
    let addresses = PodAddresses::new(cluster, config.addresses())?.unwrap();
    let container = Container { namespace: "agents".into(), pod: "box".into(), uid: "u".into(), name: "c".into() };
    let pod = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
    Ok(addresses.connect(&container, pod, "t0ken").await.err().unwrap())
}

/// What a router at a URL sees of a client with this configuration.
async fn seen(config: Config) -> String {
    let (address, served) = server(None).await;
    let config = Config { router_url: Some(format!("http://{address}/base")), ..config };
    let failure = connect(&Cluster::without_api("agents"), &config).await.unwrap();
    assert!(matches!(failure, AddressFailure::NotListening(_)), "{failure}");
    served.await.unwrap().unwrap().head
}

#[tokio::test]
async fn headers_port_and_token_are_those_of_the_settings() {
    let (dir, config) = config();
    let head = seen(config.clone()).await;
    assert!(head.starts_with("get /base/podbay/v1 "), "{head}");
    for line in
        ["x-sandbox-id: box", "x-sandbox-namespace: agents", "x-sandbox-pod-ip: 10.0.0.7", "x-sandbox-port: 7777"]
    {
        assert!(head.contains(&format!("{line}\r\n")), "{line}: {head}");
    }
    assert!(!head.contains("authorization") && !head.contains("x-team"), "{head}");
    let head = seen(Config {
        port: 7070,
        router_headers: [("X-Team".to_owned(), "blue".to_owned())].into(),
        router_token_file: Some(file(&dir, "token", "of-the-file\n")),
        router_server_name: Some("router.internal".into()),
        ..config
    })
    .await;
    for line in ["x-team: blue", "authorization: bearer of-the-file", "x-sandbox-port: 7070"] {
        assert!(head.contains(&format!("{line}\r\n")), "{line}: {head}");
    }
    assert!(head.contains("host: router.internal:"), "{head}");
}

/// A router that checks scoped tokens refuses to be told an address, so there is none beside them.
#[tokio::test]
async fn a_scoped_token_is_signed_for_the_sandbox_and_sent() {
    let (dir, config) = config();
    let path = file(&dir, "scoped", "0123456789abcdef0123456789abcdef");
    let head = seen(Config { router_scoped_key_file: Some(path.clone()), ..config }).await;
    let now = Cluster::without_api("agents").clock.now().as_second();
    let key = ScopedKey::read(&path).unwrap();
    // It may have been signed some seconds ago.
    let signed = (now - 10..=now).map(|when| key.sign("agents", "box", when).to_lowercase());
    assert!(signed.into_iter().any(|token| head.contains(&format!("authorization: bearer {token}\r\n"))), "{head}");
    assert!(!head.contains("x-sandbox-pod-ip"), "{head}");
}

#[tokio::test]
async fn certificates_and_names_are_those_of_the_settings() {
    let path = |name: &str| Some(certificates::file(name).to_str().unwrap().to_owned());
    let (_dir, config) = config();
    let right = Config {
        router_server_name: Some("router.internal".into()),
        router_ca_file: path("authority.crt"),
        router_client_cert_file: path("client.crt"),
        router_client_key_file: path("client.key"),
        ..config
    };
    let tried = async |config: &Config| {
        let (address, served) = server(Some(certificates::server("router", true))).await;
        let config = Config { router_url: Some(format!("https://{address}")), ..config.clone() };
        let failure = connect(&Cluster::without_api("agents"), &config).await.unwrap();
        (address, failure, served.await.unwrap())
    };

    let (address, failure, served) = tried(&right).await;
    assert!(matches!(failure, AddressFailure::NotListening(_)), "{failure}");
    let served = served.unwrap();
    assert_eq!(served.server_name.as_deref(), Some("router.internal"));
    assert_eq!(served.certificate, Some(certificates::certificate("client")));
    assert!(served.head.contains(&format!("host: router.internal:{}\r\n", address.port())), "{}", served.head);

    // Without one of them there is no connection.
    let unnamed = Config { router_server_name: None, ..right.clone() };
    let untrusting = Config { router_ca_file: path("stranger.crt"), ..right.clone() };
    for config in [&unnamed, &untrusting] {
        let (_, failure, served) = tried(config).await;
        assert!(failure.to_string().contains("TLS failed") && served.is_err(), "{failure}");
    }
    let unknown = Config { router_client_cert_file: None, router_client_key_file: None, ..right.clone() };
    let (_, failure, served) = tried(&unknown).await;
    assert!(served.is_err(), "a client without a certificate was admitted: {failure}");
    // The key is read too: one that isn't the certificate's is refused before anything is sent.
    let mismatched =
        Config { router_url: Some("https://router".into()), router_client_key_file: path("router.key"), ..right };
    let error = connect(&Cluster::without_api("agents"), &mismatched).await.unwrap_err().to_string();
    assert!(error.contains("router_client_cert_file"), "{error}");
}

/// A Gateway whose second listener is at an address, and whose status says so unless it is new.
fn gateway(listener: SocketAddr, has_address: bool) -> serde_json::Value {
    let addresses = if has_address { serde_json::json!([{"value": listener.ip()}]) } else { serde_json::json!([]) };
    serde_json::json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "edge", "uid": "g", "resourceVersion": if has_address { "8" } else { "7" }},
        "spec": {"listeners": [
            {"name": "first", "protocol": "HTTP", "port": 1},
            {"name": "second", "protocol": "HTTP", "port": listener.port()},
        ]},
        "status": {"addresses": addresses},
    })
}

fn through_gateway(config: Config) -> Config {
    Config {
        connection: Connection::Gateway,
        gateway_name: Some("edge".into()),
        gateway_namespace: "ingress".into(),
        gateway_listener: Some("second".into()),
        ..config
    }
}

/// It was asked for twice a second.
#[tokio::test]
async fn a_gateway_without_an_address_is_watched() {
    let (_dir, config) = config();
    let (address, served) = server(None).await;
    let event = serde_json::json!({"type": "MODIFIED", "object": gateway(address, true)});
    let answers = [gateway(address, false).to_string(), format!("{event}\n")];
    let (cluster, asked) = api_server("200 OK", &answers).await;
    let failure = connect(&cluster, &through_gateway(config)).await.unwrap();
    assert!(matches!(failure, AddressFailure::NotListening(_)), "{failure}");
    assert!(served.await.unwrap().unwrap().head.contains("x-sandbox-id: box\r\n"));
    let asked = asked.await.unwrap().unwrap();
    assert!(asked[0].contains("/namespaces/ingress/gateways/edge"), "{asked:?}");
    for part in ["/namespaces/ingress/gateways?", "watch=true", "resourceversion=7", "metadata.name%3dedge"] {
        assert!(asked[1].contains(part), "{part}: {asked:?}");
    }
}

#[tokio::test]
async fn the_named_gateway_is_asked_for_and_its_named_listener_used() {
    let (_dir, config) = config();
    let (address, served) = server(None).await;
    let (cluster, asked) = api_server("200 OK", &[gateway(address, true).to_string()]).await;
    let failure = connect(&cluster, &through_gateway(config)).await.unwrap();
    assert!(matches!(failure, AddressFailure::NotListening(_)), "{failure}");
    assert!(served.await.unwrap().unwrap().head.contains("x-sandbox-id: box\r\n"));
    let asked = asked.await.unwrap().unwrap();
    assert!(asked[0].contains("/namespaces/ingress/gateways/edge"), "{asked:?}");
}

#[tokio::test]
async fn a_tunnel_leads_to_the_routers_own_namespace() {
    let (_dir, config) = config();
    let missing = r#"{"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "none"}"#;
    let (cluster, asked) = api_server("404 Not Found", &[missing.into()]).await;
    let config = Config { connection: Connection::Tunnel, router_namespace: "routers".into(), ..config };
    let failure = connect(&cluster, &config).await.unwrap().to_string();
    assert!(failure.contains("routers/sandbox-router-svc"), "{failure}");
    let asked = asked.await.unwrap().unwrap();
    assert!(asked[0].contains("/namespaces/routers/services/sandbox-router-svc"), "{asked:?}");
}
