//! Chooses the proxy for an API server as `kubectl` does.
//!
//! The kubeconfig's `proxy-url` beats the environment, and NO_PROXY doesn't apply to it. Otherwise HTTPS_PROXY is used, or
//! HTTP_PROXY for a server without TLS, unless NO_PROXY names the server or it is this machine.

use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::net::TcpStream;
use tower::ServiceExt;

use crate::error::{Error, Result};

/// A proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proxy {
    /// An HTTP proxy, by CONNECT.
    Tunnel {
        /// Its address.
        uri: Uri,
        /// The Proxy-Authorization header.
        auth: Option<HeaderValue>,
    },
    /// SOCKS 5.
    Socks {
        /// Its address.
        uri: Uri,
        /// User and password.
        auth: Option<(String, String)>,
    },
}

/// The proxy for a server, if any.
///
/// # Errors
/// When the configured proxy can't be used. It isn't bypassed: that might not be allowed.
pub(crate) fn choose(
    kubeconfig: Option<&str>,
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>> {
    if let Some(url) = kubeconfig {
        let matcher = Matcher::builder().all(checked("proxy-url of the kubeconfig", url)?).build();
        return Ok(matcher.intercept(server).map(Proxy::from));
    }
    let either = |upper: &str| {
        let found =
            [upper.to_owned(), upper.to_ascii_lowercase()].into_iter().find_map(|name| Some((variable(&name)?, name)));
        found.filter(|(value, _)| !value.is_empty())
    };
    let name = if server.scheme_str() == Some("http") { "HTTP_PROXY" } else { "HTTPS_PROXY" };
    let Some((url, name)) = either(name) else { return Ok(None) };
    if is_this_machine(server) {
        return Ok(None);
    }
    let no_proxy = either("NO_PROXY").map(|(hosts, _)| hosts).unwrap_or_default();
    let matcher = Matcher::builder().all(checked(&name, &url)?).no(no_proxy).build();
    Ok(matcher.intercept(server).map(Proxy::from))
}

/// Connects to a server, through the environment's proxy if there is one for it.
///
/// # Errors
/// When the server or the proxy can't be reached.
pub(crate) async fn connect(server: &Uri) -> Result<TcpStream, String> {
    let proxy = choose(None, server, |name| std::env::var(name).ok()).map_err(|error| error.to_string())?;
    let mut direct = HttpConnector::new();
    direct.enforce_http(false);
    direct.set_nodelay(true);
    let server = server.clone();
    let by_proxy = |error: &dyn std::fmt::Display| format!("can't connect through the proxy: {error}");
    let stream = match proxy {
        None => direct.oneshot(server).await.map_err(|error| format!("can't connect: {}", root(&error)))?,
        Some(Proxy::Tunnel { uri, auth }) => {
            let tunnel = Tunnel::new(uri, direct);
            let tunnel = auth.into_iter().fold(tunnel, Tunnel::with_auth);
            tunnel.oneshot(server).await.map_err(|error| by_proxy(&error))?
        }
        Some(Proxy::Socks { uri, auth }) => {
            let socks = SocksV5::new(uri, direct);
            let socks = auth.into_iter().fold(socks, |socks, (user, password)| socks.with_auth(user, password));
            socks.oneshot(server).await.map_err(|error| by_proxy(&error))?
        }
    };
    Ok(stream.into_inner())
}

/// What an error comes from in the end.
fn root(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root)
}

/// As in Go: the environment's proxies are never used for this machine itself.
fn is_this_machine(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A proxy's address, which may lack `http://`.
fn checked(from: &str, url: &str) -> Result<String> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri = whole.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
    match uri.as_ref().and_then(Uri::scheme_str) {
        Some("http" | "socks5" | "socks5h") => Ok(whole),
        Some(scheme) => Err(Error::Cluster(format!(
            "the proxy in {from} has the scheme {scheme}://, but only http:// and socks5:// are supported"
        ))),
        // It may have a password in it, so it isn't shown.
        None => Err(Error::Cluster(format!("the proxy in {from} isn't a URL such as http://proxy.example:3128"))),
    }
}

impl From<hyper_util::client::proxy::matcher::Intercept> for Proxy {
    fn from(proxy: hyper_util::client::proxy::matcher::Intercept) -> Self {
        let uri = proxy.uri().clone();
        match uri.scheme_str() {
            Some("socks5" | "socks5h") => {
                let auth = proxy.raw_auth().map(|(user, password)| (user.to_owned(), password.to_owned()));
                Self::Socks { uri, auth }
            }
            _ => Self::Tunnel { uri, auth: proxy.basic_auth().cloned() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(kubeconfig: Option<&str>, server: &str, environment: &[(&str, &str)]) -> Option<String> {
        let variable =
            |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let proxy = choose(kubeconfig, &server.parse().unwrap(), variable).unwrap()?;
        let (Proxy::Tunnel { uri, .. } | Proxy::Socks { uri, .. }) = proxy;
        uri.authority().map(ToString::to_string)
    }

    const SERVER: &str = "https://api.example:6443";

    /// Neither `proxy-url` nor HTTPS_PROXY was looked at.
    #[test]
    fn a_proxy_is_chosen_as_kubectl_does() {
        let https = ("HTTPS_PROXY", "http://proxy:3128");
        assert_eq!(chosen(None, SERVER, &[]), None);
        assert_eq!(chosen(None, SERVER, &[https]).as_deref(), Some("proxy:3128"));
        assert_eq!(chosen(None, SERVER, &[("https_proxy", "proxy:3128")]).as_deref(), Some("proxy:3128"));
        assert_eq!(chosen(None, SERVER, &[("HTTP_PROXY", "http://proxy:3128")]), None);
        assert_eq!(chosen(None, "http://api.example", &[("http_proxy", "http://p:1")]).as_deref(), Some("p:1"));
        assert_eq!(chosen(Some("http://other:1"), SERVER, &[https]).as_deref(), Some("other:1"));
        assert_eq!(chosen(Some("socks5://other:1"), SERVER, &[]).as_deref(), Some("other:1"));
    }

    #[test]
    fn no_proxy_names_servers_that_are_reached_directly() {
        let with = |server: &str, no: &str| chosen(None, server, &[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", no)]);
        for (server, no) in [
            (SERVER, "api.example"),
            (SERVER, "other.example,.example"),
            (SERVER, "*"),
            ("https://10.1.2.3:6443", "10.0.0.0/8"),
            ("https://10.1.2.3:6443", "10.1.2.3"),
            ("https://127.0.0.1:6443", ""),
            ("https://[::1]:6443", ""),
            ("https://localhost:6443", ""),
        ] {
            assert_eq!(with(server, no), None, "{server} {no}");
        }
        assert!(with(SERVER, "example.org").is_some() && with("https://11.1.2.3", "10.0.0.0/8").is_some());
        // A kubeconfig means what it says, also about this machine.
        assert!(chosen(Some("http://p:1"), "https://127.0.0.1:6443", &[("NO_PROXY", "*")]).is_some());
    }

    #[test]
    fn a_proxy_that_can_not_be_used_is_an_error_and_not_gone_around() {
        let none = |_: &str| None;
        for (url, word) in
            [("https://proxy:1", "https://"), ("ftp://proxy", "ftp"), ("http://us er:secret@x", "isn't a URL")]
        {
            let message = choose(Some(url), &SERVER.parse().unwrap(), none).unwrap_err().to_string();
            assert!(message.contains(word) && !message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn a_proxy_gets_its_password_decoded() {
        let url = "http://user:pa%40ss@proxy:1";
        let Some(Proxy::Tunnel { uri, auth }) = choose(Some(url), &SERVER.parse().unwrap(), |_| None).unwrap() else {
            panic!("no tunnel")
        };
        // user:pa@ss
        assert_eq!(auth.unwrap(), "Basic dXNlcjpwYUBzcw==");
        assert!(!uri.to_string().contains("ss"), "{uri}");
    }
}
