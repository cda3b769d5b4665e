//! Certificates for tests of TLS. `make.sh` made them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoClientAuth, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A file: the certificate of `authority.crt` or of `stranger.crt`, another authority, or the `.crt` or `.key` of what the first one
/// signed.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/test_certificates").join(name)
}

pub(crate) fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file(&format!("{name}.crt"))).unwrap()
}

/// A server with one of the certificates. One for `clients` admits nobody without a certificate of the first authority.
pub(crate) fn server(name: &str, clients: bool) -> TlsAcceptor {
    let provider = Arc::new(default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(certificate("authority")).unwrap();
    let verifier = match clients {
        true => WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap(),
        false => Arc::new(NoClientAuth),
    };
    let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key"))).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate(name)], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
