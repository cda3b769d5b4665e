//! `podbay keys`: keys for connections to pods' own addresses.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use podbay::k8s::keys::{self, PrivateKey};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay keys podbay.key                              make a key and print its public key
  podbay keys --public podbay.key                     print the public key of a key that exists
  podbay keys --secret podbay-key | kubectl apply -n agents -f -

Point clients to the private key with 'cluster.private_key_file'. Pods and templates only ever get the public key. Keep
the private key out of the sandboxes' namespace: whoever has it can use every sandbox.";

/// The largest file with keys.
const LARGEST_FILE: u64 = 4 << 10;

/// Make a key for connecting to pods at their own addresses
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// File for the private key; it must not exist yet
    #[arg(required_unless_present = "secret")]
    file: Option<PathBuf>,

    /// Print a Secret of this name with the private key, instead of writing a file
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    secret: Option<String>,

    /// Print the public keys of the private keys in FILE
    #[arg(long, requires = "file")]
    public: bool,
}

/// Makes or shows a key.
pub async fn run(arguments: Arguments, _settings: &Settings, output: &Output) -> Result<u8, Failure> {
    if let Some(name) = &arguments.secret {
        let key = keys::generate();
        let manifest = keys::secret_manifest(name, &key).map_err(podbay::Error::from)?;
        let public = key.public().to_string();
        return match output.is_json() {
            true => output.json(&json!({ "manifest": manifest, "public_key": public })),
            false => output.text(&format!("# Public key: {public}\n{manifest}")),
        };
    }
    let file = arguments.file.unwrap_or_default();
    if arguments.public {
        let public: Vec<String> = read(&file)?.iter().map(|key| key.public().to_string()).collect();
        return output.answer(&json!({ "public_keys": public }), || public.join("\n"));
    }
    let key = keys::generate();
    write(&file, &key)?;
    let public = key.public().to_string();
    output.answer(&json!({ "private_key_file": file, "public_key": public }), || public.clone())
}

fn read(file: &Path) -> Result<Vec<PrivateKey>, Failure> {
    let mut text = String::new();
    let opened = std::fs::File::open(file).and_then(|opened| opened.take(LARGEST_FILE).read_to_string(&mut text));
    opened.map_err(|error| failed(file, &error))?;
    PrivateKey::parse_all(&text).map_err(|error| failed(file, &error))
}

/// Writes a file that only its owner can read. One that exists may be the key of clients that are running.
fn write(file: &Path, key: &PrivateKey) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut opened = options.open(file).map_err(|error| failed(file, &error))?;
    opened.write_all(format!("{}\n", key.secret_text()).as_bytes()).map_err(|error| failed(file, &error))?;
    opened.sync_all().map_err(|error| failed(file, &error))
}

fn failed(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_once_and_only_its_owner_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let key = keys::generate();
        write(&file, &key).unwrap();
        assert_eq!(read(&file).unwrap()[0].public(), key.public());
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions()) & 0o777, 0o600);
        assert!(write(&file, &keys::generate()).unwrap_err().message().contains("exists"));
        assert_eq!(read(&file).unwrap()[0].public(), key.public());
    }
}
