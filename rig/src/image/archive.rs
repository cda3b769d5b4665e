//! Several images as one OCI layout: layers that they share are in it once.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Image;
use crate::cache::{Cache, hex, remove_tree};

const MEDIA: &str = "application/vnd.oci.image";

/// A directory in OCI layout, made of links into the cache; gone when dropped.
pub(crate) struct Archive<'a> {
    directory: &'a Path,
    /// Digests of blobs that whoever gets the archive has already.
    left_out: &'a BTreeSet<String>,
}

impl<'a> Archive<'a> {
    /// Lays out `images` in `directory`, which must be in the same file system as the cache. Layers with the digests
    /// `left_out` are only referred to: reading a hundred megabytes once more takes longer than all the rest.
    pub(crate) fn create(
        cache: &Cache,
        images: &[Image],
        directory: &'a Path,
        left_out: &'a BTreeSet<String>,
    ) -> Result<Self> {
        remove_tree(directory)?;
        fs::create_dir_all(directory.join("blobs/sha256"))
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let archive = Self { directory, left_out };
        let manifests: Vec<Value> = images
            .iter()
            .map(|image| archive.add(cache, image))
            .collect::<Result<_>>()
            .context("cannot create images")?;
        let index = json!({"schemaVersion": 2, "mediaType": format!("{MEDIA}.index.v1+json"), "manifests": manifests});
        fs::write(directory.join("index.json"), index.to_string())?;
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(archive)
    }

    /// Adds one image and gives its entry for the index.
    fn add(&self, cache: &Cache, image: &Image) -> Result<Value> {
        let mut layers = Vec::new();
        let mut digests = Vec::new();
        for layer in &image.layers {
            let packed = layer.packed(cache)?;
            let digest = format!("sha256:{}", packed.digest);
            let blob = self.directory.join("blobs/sha256").join(&packed.digest);
            if !blob.exists() && !self.left_out.contains(&digest) {
                fs::hard_link(&packed.file, &blob).with_context(|| format!("cannot link {}", packed.file.display()))?;
            }
            layers.push(json!({"mediaType": format!("{MEDIA}.layer.v1.tar"), "digest": digest, "size": packed.size}));
            digests.push(digest);
        }
        let configuration = json!({
            "architecture": match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": digests},
            "config": {
                "Env": image.environment, "WorkingDir": image.directory, "User": image.user,
                "Entrypoint": image.entrypoint, "Cmd": image.command,
            },
        });
        let configuration = self.blob("config", &configuration)?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": format!("{MEDIA}.manifest.v1+json"),
            "config": configuration, "layers": layers,
        });
        let mut entry = self.blob("manifest", &manifest)?;
        let tag = image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        entry["annotations"] = json!({
            "io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": tag,
        });
        Ok(entry)
    }

    /// Adds a document and gives its descriptor.
    fn blob(&self, kind: &str, document: &Value) -> Result<Value> {
        let bytes = document.to_string();
        let digest = hex(&Sha256::digest(&bytes));
        fs::write(self.directory.join("blobs/sha256").join(&digest), &bytes)?;
        Ok(json!({
            "mediaType": format!("{MEDIA}.{kind}.v1+json"), "digest": format!("sha256:{digest}"), "size": bytes.len(),
        }))
    }
}

impl Drop for Archive<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(self.directory) {
            crate::progress::say(&format!("left behind: {error:#}"));
        }
    }
}
