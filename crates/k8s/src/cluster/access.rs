//! Which API server to talk to, and as whom.

use std::path::{Path, PathBuf};

use http::Uri;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::error::{Error, Result};

/// Which API server to talk to, and as whom.
///
/// Without any of these, it is the cluster that `kubectl` would use, or in a pod the cluster that the pod runs in. An
/// `api_url` alone takes the place of the kubeconfig; together with a `kubeconfig` or `context` that is named here it
/// replaces only the server's address, as `kubectl --server` does. A token replaces all other credentials.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The kubeconfig file.
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context; its current one if unset.
    pub context: Option<String>,
    /// The namespace of the sandboxes; the context's if unset.
    pub namespace: Option<String>,
    /// The API server's address.
    pub api_url: Option<String>,
    /// The bearer token to authenticate with.
    pub token: Option<String>,
    /// A file with the bearer token. It is read again at least once a minute, so that tokens can be rotated.
    pub token_file: Option<PathBuf>,
    /// A PEM file with the authorities that may sign the server's certificate; without one, the kubeconfig's, else the pod's,
    /// else the system's. It is read again at least once a minute.
    pub ca_file: Option<PathBuf>,
}

/// Without the token: this is what ends up in logs.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("kubeconfig", &self.kubeconfig)
            .field("context", &self.context)
            .field("namespace", &self.namespace)
            .field("api_url", &self.api_url)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("token_file", &self.token_file)
            .field("ca_file", &self.ca_file)
            .finish()
    }
}

impl Access {
    /// Whether there is no API server to talk to: nothing here names one, there is no kubeconfig, and this isn't a pod with a
    /// service account.
    pub fn is_absent(&self) -> bool {
        let named = self.kubeconfig.is_some() || self.context.is_some() || self.api_url.is_some() || self.has_token();
        !named && !has_kubeconfig() && kube::Config::incluster().is_err()
    }

    /// The client's configuration, and the proxy that a kubeconfig names.
    pub(super) async fn read(&self) -> Result<(kube::Config, Option<String>)> {
        let url = self.check()?;
        let named = self.kubeconfig.is_some() || self.context.is_some();
        let (mut config, proxy) = match &url {
            Some(url) if !named => (without_kubeconfig(url), None),
            _ => self.read_kubeconfig(named).await?,
        };
        if let Some(url) = url {
            config.cluster_url = url;
        }
        if let Some(path) = &self.ca_file {
            // kube verifies by the file if there is one, but loads the system's roots first unless it has others.
            config.root_cert.get_or_insert_default();
            config.root_cert_file = Some(path.clone());
        }
        if self.has_token() {
            config.auth_info = self.credentials()?;
        }
        Ok((config, proxy))
    }

    async fn read_kubeconfig(&self, named: bool) -> Result<(kube::Config, Option<String>)> {
        let unusable = |error: &dyn std::fmt::Display| Error::Cluster(error.to_string());
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let file = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let read = match file {
            Ok(file) => {
                let proxy = super::proxy_url(&file, self.context.as_deref());
                kube::Config::from_custom_kubeconfig(file, &options).await.map(|config| (config, proxy))
            }
            Err(error) => Err(error),
        };
        match read {
            Ok(read) => Ok(read),
            Err(error) if named => Err(unusable(&error)),
            // No kubeconfig was asked for, so a pod uses its service account.
            Err(error) => match kube::Config::incluster() {
                Ok(config) => Ok((config, None)),
                Err(outside) => {
                    Err(unusable(&format!("{error}, and this isn't a pod with a service account ({outside})")))
                }
            },
        }
    }

    /// Refuses settings that contradict each other or can't be used; returns the API server's address if there is one.
    fn check(&self) -> Result<Option<Uri>> {
        let refuse = |reason: String| Err(Error::Config(reason));
        if self.token.is_some() && self.token_file.is_some() {
            return refuse("cluster.token and cluster.token_file are both set; keep one of them".into());
        }
        // What can't be part of a header would fail with every request, and the error wouldn't say where it comes from.
        if self.token.as_deref().is_some_and(|token| !is_token(token)) {
            return refuse(
                "cluster.token isn't a bearer token: it is empty, or has spaces or line breaks in it".into(),
            );
        }
        if let Some(path) = &self.token_file
            && !is_token(&readable(path, "cluster.token_file")?)
        {
            return refuse(format!(
                "cluster.token_file: {} has to hold a bearer token and nothing else; write it without a line break at the \
                 end, as 'printf %s' does",
                path.display()
            ));
        }
        if let Some(path) = &self.ca_file {
            readable(path, "cluster.ca_file")?;
        }
        let Some(text) = &self.api_url else { return Ok(None) };
        let url = match text.parse::<Uri>() {
            Ok(url) if matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some() => url,
            _ => return refuse(format!("cluster.api_url: {text:?} isn't a URL such as https://10.0.0.1:6443")),
        };
        if url.scheme_str() == Some("http") {
            if self.ca_file.is_some() {
                return refuse("cluster.ca_file needs an https:// address in cluster.api_url".into());
            }
            if self.has_token() && !is_loopback(&url) {
                return refuse(format!(
                    "a token would be sent to {text} unencrypted; use https:// in cluster.api_url, or remove the token"
                ));
            }
        }
        Ok(Some(url))
    }

    fn has_token(&self) -> bool {
        self.token.is_some() || self.token_file.is_some()
    }

    fn credentials(&self) -> Result<AuthInfo> {
        let fields = serde_json::json!({"token": self.token, "tokenFile": self.token_file});
        serde_json::from_value(fields).map_err(|error| Error::Config(format!("cluster.token_file: {error}")))
    }
}

/// The server at this address, as the pod's service account if this is a pod and the connection is encrypted: otherwise
/// without credentials, as for `kubectl proxy`.
fn without_kubeconfig(url: &Uri) -> kube::Config {
    match kube::Config::incluster() {
        Ok(pod) if url.scheme_str() == Some("https") => pod,
        _ => kube::Config::new(url.clone()),
    }
}

/// Whether there is a kubeconfig where kubectl would look. One that can't be read counts: somebody means it.
fn has_kubeconfig() -> bool {
    let named = std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty());
    named
        || match Kubeconfig::read() {
            Err(KubeconfigError::FindPath) => false,
            Err(KubeconfigError::ReadConfig(error, _)) => error.kind() != std::io::ErrorKind::NotFound,
            _ => true,
        }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What is in a file that a setting names.
fn readable(path: &Path, setting: &str) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::Config(format!("{setting}: can't read {}: {error}", path.display())))
}

#[cfg(test)]
mod tests;
