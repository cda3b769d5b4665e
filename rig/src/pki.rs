//! The certificates, keys and tokens of one cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::process::{command, output};

/// Who talks to the API server with a token, and in which groups it is.
const USERS: &[(&str, &str, &str)] = &[
    ("admin", "admin", "system:masters"),
    ("controller-manager", "system:kube-controller-manager", "none"),
    ("scheduler", "system:kube-scheduler", "none"),
    ("node", "system:node:node1", "system:nodes"),
    ("proxy", "system:kube-proxy", "none"),
];

/// A directory with a certificate authority and all that it signed.
pub(crate) struct Pki {
    directory: PathBuf,
}

impl Pki {
    /// The one in `directory`.
    pub(crate) fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Makes everything. `port` is the host's side of the API server.
    pub(crate) fn create(directory: PathBuf, port: u16) -> Result<Self> {
        fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        let pki = Self { directory };
        pki.key("ca")?;
        pki.openssl(&[
            "req",
            "-x509",
            "-new",
            "-key",
            "ca.key",
            "-subj",
            "/CN=rig",
            "-days",
            "3650",
            "-addext",
            "keyUsage=critical,keyCertSign,digitalSignature",
            "-out",
            "ca.crt",
        ])?;
        let api_server = "IP:127.0.0.1,IP:10.96.0.1,IP:10.99.0.1,DNS:localhost,DNS:kubernetes.default.svc";
        pki.certificate("apiserver", "/CN=kube-apiserver", Use::Server(api_server))?;
        pki.certificate("kubelet", "/CN=system:node:node1", Use::Server("IP:10.99.0.1,DNS:node1"))?;
        pki.certificate("kubelet-client", "/O=system:masters/CN=apiserver-to-kubelet", Use::Client)?;
        pki.key("service-accounts")?;
        pki.openssl(&["ec", "-in", "service-accounts.key", "-pubout", "-out", "service-accounts.pub"])?;
        pki.users(port)?;
        Ok(pki)
    }

    /// A file of the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn key(&self, name: &str) -> Result<()> {
        self.openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &format!("{name}.key")])
    }

    fn certificate(&self, name: &str, subject: &str, usage: Use<'_>) -> Result<()> {
        self.key(name)?;
        let file = |ending: &str| format!("{name}.{ending}");
        self.openssl(&["req", "-new", "-key", &file("key"), "-subj", subject, "-out", &file("csr")])?;
        fs::write(self.file(&file("ext")), usage.extensions())?;
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &file("csr"),
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "3650",
            "-extfile",
            &file("ext"),
            "-out",
            &file("crt"),
        ])
    }

    /// Tokens, and kubeconfigs with them: one for the node's side, and the administrator's for the host's.
    fn users(&self, port: u16) -> Result<()> {
        let mut tokens = String::new();
        for (name, user, group) in USERS {
            let token = output(command("openssl").args(["rand", "-hex", "16"]))?;
            let token = token.trim();
            tokens += &format!("{token},{user},{name},{group}\n");
            self.kubeconfig(&format!("{name}.kubeconfig"), 6443, token)?;
            if *name == "admin" {
                self.kubeconfig("host.kubeconfig", port, token)?;
            }
        }
        write_private(&self.file("tokens"), &tokens)
    }

    fn kubeconfig(&self, file: &str, port: u16, token: &str) -> Result<()> {
        let server = format!("https://127.0.0.1:{port}");
        write_private(&self.file(file), &kubeconfig(&server, &self.authority()?, token, None))
    }

    /// The certificate authority's certificate, base64 as kubeconfigs have it.
    pub(crate) fn authority(&self) -> Result<String> {
        Ok(output(command("base64").arg("-w0").arg(self.file("ca.crt")))?.trim().to_owned())
    }

    fn openssl(&self, arguments: &[&str]) -> Result<()> {
        output(command("openssl").current_dir(&self.directory).args(arguments)).map(drop)
    }
}

/// A kubeconfig with one cluster, one user and, if given, a namespace.
pub(crate) fn kubeconfig(server: &str, authority: &str, token: &str, namespace: Option<&str>) -> String {
    let mut context = json!({"cluster": "rig", "user": "user"});
    if let Some(namespace) = namespace {
        context["namespace"] = namespace.into();
    }
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "rig",
        "contexts": [{"name": "rig", "context": context}],
        "clusters": [{"name": "rig", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "user", "user": {"token": token}}],
    })
    .to_string()
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

enum Use<'a> {
    /// For a server with these alternative names.
    Server(&'a str),
    Client,
}

impl Use<'_> {
    fn extensions(&self) -> String {
        match self {
            Self::Server(names) => format!("extendedKeyUsage=serverAuth\nsubjectAltName={names}\n"),
            Self::Client => "extendedKeyUsage=clientAuth\n".to_owned(),
        }
    }
}
