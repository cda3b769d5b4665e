//! One layer of an image: a directory tree that is made once and kept as a tar file.

use std::fmt;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::cache::{Cache, Key, hex, remove_tree};
use crate::process::{command, output};

type Fill = dyn Fn(&Cache, &Path) -> Result<()> + Send + Sync;

/// A layer: how to fill a directory, and the key of what it is made from.
#[derive(Clone)]
pub struct Layer {
    name: String,
    key: Key,
    fill: Arc<Fill>,
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layer({}-{})", self.name, self.key.short())
    }
}

/// A file (or directory) to put into a layer.
#[derive(Debug, Clone)]
pub struct File {
    path: String,
    content: Option<Vec<u8>>,
    mode: u32,
    owner: u32,
}

impl File {
    /// A file at an absolute path, owned by root, mode 0644.
    pub fn new(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: Some(content.into()), mode: 0o644, owner: 0 }
    }

    /// An empty directory at an absolute path, owned by root, mode 0755.
    pub fn directory(path: impl Into<String>) -> Self {
        Self { path: path.into(), content: None, mode: 0o755, owner: 0 }
    }

    /// Sets the permissions.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets user and group.
    #[must_use]
    pub fn owner(mut self, id: u32) -> Self {
        self.owner = id;
        self
    }

    fn write_below(&self, root: &Path) -> Result<()> {
        let path = root.join(self.path.trim_start_matches('/'));
        let write = || -> std::io::Result<()> {
            match &self.content {
                Some(content) => {
                    fs::create_dir_all(path.parent().unwrap_or(root))?;
                    fs::write(&path, content)?;
                }
                None => fs::create_dir_all(&path)?,
            }
            chown(&path, Some(self.owner), Some(self.owner))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(self.mode))
        };
        write().with_context(|| format!("cannot create {} for an image", self.path))
    }
}

impl Layer {
    /// A layer that `fill` makes in the directory it is given. `key` must hold all that `fill` depends on.
    pub(crate) fn new(
        name: &str,
        key: Key,
        fill: impl Fn(&Cache, &Path) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.to_owned(), key, fill: Arc::new(fill) }
    }

    /// A layer of given files. `name` only names it in the cache.
    pub fn files(name: &str, files: impl IntoIterator<Item = File>) -> Self {
        let files: Vec<File> = files.into_iter().collect();
        let key = files.iter().fold(Key::new("files 1"), |key, file| {
            let key = key.with(&file.path).with(format!("{:o} {}", file.mode, file.owner));
            match &file.content {
                Some(content) => key.with("file").with(content),
                None => key.with("directory"),
            }
        });
        Self::new(name, key, move |_, root| files.iter().try_for_each(|file| file.write_below(root)))
    }

    /// Debian with Python 3, whose compiled modules are valid as they are, curl and procps.
    pub fn debian() -> Self {
        super::debian()
    }

    /// The key, for layers that are made from this one.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// The packed layer, made now when the cache hasn't got it.
    pub(super) fn packed(&self, cache: &Cache) -> Result<Packed> {
        let directory = cache.entry("layers", &self.name, &self.key, |draft| {
            let root = draft.join("root");
            fs::create_dir(&root)?;
            (self.fill)(cache, &root).with_context(|| format!("cannot create the image layer {}", self.name))?;
            let file = draft.join("layer.tar");
            // Sorted and without times, so that the same content has the same digest.
            output(
                command("tar")
                    .args(["--sort=name", "--mtime=@0", "--numeric-owner", "--format=gnu", "-C"])
                    .arg(&root)
                    .arg("-cf")
                    .arg(&file)
                    .arg("."),
            )?;
            fs::write(draft.join("digest"), digest(&file)?)?;
            remove_tree(&root)
        })?;
        let file = directory.join("layer.tar");
        let digest = fs::read_to_string(directory.join("digest"))?;
        let size = fs::metadata(&file)?.len();
        Ok(Packed { file, digest, size })
    }
}

/// A layer as a tar file.
pub(super) struct Packed {
    pub(super) file: PathBuf,
    /// SHA-256, hexadecimal.
    pub(super) digest: String,
    pub(super) size: u64,
}

fn digest(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match std::io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            count => hash.update(&buffer[..count]),
        }
    }
}
