//! The keys that sign tokens for podbayd at a pod's address.

use std::io::{self, Read};
use std::path::Path;

use podbay_proto::layout::listen_env;
pub use podbay_proto::token::{KeyError, PrivateKey, PublicKey};

use crate::error::{Error, Result};
use crate::names;

/// The key of a Secret that holds the private key.
pub const SECRET_KEY: &str = "private-key";

/// The largest file with private keys.
const LARGEST_FILE: u64 = 4 << 10;

/// Makes a new key.
pub fn generate() -> PrivateKey {
    PrivateKey::from_seed(rand::random())
}

/// A Secret with a private key, for the namespace of the clients. Never for that of the sandboxes.
///
/// # Errors
/// When a Secret can't have that name.
pub fn secret_manifest(name: &str, key: &PrivateKey) -> Result<String> {
    names::check_label("Secret", name)?;
    Ok(format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n  labels:\n    app.kubernetes.io/managed-by: podbay\ntype: \
         Opaque\nstringData:\n  {SECRET_KEY}: {}\n",
        key.secret_text()
    ))
}

/// The private keys in the file that `cluster.private_key_file` names.
///
/// # Errors
/// When it can't be read, or has no key.
pub(crate) fn read_keys(path: &Path) -> Result<Vec<PrivateKey>> {
    let read = || -> io::Result<String> {
        let mut text = String::new();
        std::fs::File::open(path)?.take(LARGEST_FILE).read_to_string(&mut text)?;
        Ok(text)
    };
    let bad =
        |why: &dyn std::fmt::Display| Error::Config(format!("cluster.private_key_file {}: {why}", path.display()));
    PrivateKey::parse_all(&read().map_err(|error| bad(&error))?).map_err(|error| bad(&error))
}

/// The environment of a podbayd that listens and lets nobody in: nobody has its private key.
pub(crate) fn listen_for_nobody() -> [(&'static str, String); 4] {
    [
        (listen_env::PUBLIC_KEYS, generate().public().to_string()),
        (listen_env::NAMESPACE, "none".into()),
        (listen_env::POD_UID, "none".into()),
        (listen_env::CONTAINER, "none".into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_the_same() {
        assert_ne!(generate().public(), generate().public());
    }

    #[test]
    fn a_secret_has_the_key() {
        let key = generate();
        let manifest = secret_manifest("podbay-key", &key).unwrap();
        assert!(secret_manifest("a: b", &key).is_err());
        let line = manifest.lines().last().unwrap();
        let text = line.trim().strip_prefix("private-key: ").unwrap();
        assert_eq!(PrivateKey::parse(text).unwrap().public(), key.public());
    }
}
