//! Certificates for tests of TLS, made by `openssl` as the test cluster's are.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoClientAuth, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A certificate authority, and a directory with what it has signed.
pub(crate) struct Authority(tempfile::TempDir);

impl Authority {
    pub(crate) fn new() -> Self {
        let authority = Self(tempfile::tempdir().unwrap());
        authority.shell(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=authority -days 1 \
             -addext keyUsage=critical,keyCertSign -keyout authority.key -out authority.crt",
            &[],
        );
        authority
    }

    /// Signs a certificate for a new key. The extension says what it is for.
    pub(crate) fn sign(&self, name: &str, extension: &str) {
        self.shell(
            "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=$0 -keyout $0.key -out $0.csr
             echo \"$1\" > $0.ext
             openssl x509 -req -in $0.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 1 -extfile $0.ext \
             -out $0.crt",
            &[name, extension],
        );
    }

    fn shell(&self, script: &str, arguments: &[&str]) {
        let mut shell = Command::new("sh");
        let output = shell.args(["-ec", script]).args(arguments).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "is openssl installed? {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A file: `authority.crt`, or the `.crt` or `.key` of what was signed.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn certificate(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.file(&format!("{name}.crt"))).unwrap()
    }

    /// A server with one of the certificates. One for `clients` admits nobody without a certificate of this authority.
    pub(crate) fn server(&self, name: &str, clients: bool) -> TlsAcceptor {
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate("authority")).unwrap();
        let verifier = match clients {
            true => WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap(),
            false => Arc::new(NoClientAuth),
        };
        let key = PrivateKeyDer::from_pem_file(self.file(&format!("{name}.key"))).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.certificate(name)], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}
