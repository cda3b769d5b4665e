//! Container images without a registry: made here, cached, and imported into a running cluster.

mod archive;
mod layer;
mod runtime;
mod stock;

pub use layer::{File, Layer};
pub use runtime::{PODBAY_RUNTIME, PODBAY_RUNTIME_SMALL, Runtime};
pub use stock::{BUSYBOX, DEBIAN, NONROOT, PYTHON_RUNTIME, SANDBOXD, stock_runtime};

pub(crate) use archive::Archive;
pub(crate) use stock::{agent_sandbox, base, debian, pause_and_busybox, python_router};

/// An image to make. Its layers are cached by what they are made from; the image itself is cheap.
///
/// ```no_run
/// # fn main() -> anyhow::Result<()> {
/// let image = rig::Image::new("localhost/with-config:1")
///     .layer(rig::Layer::debian())
///     .layer(rig::Layer::files("with-config", [rig::File::new("/etc/tool.conf", "colour = blue\n")]))
///     .user("1000")
///     .command(["sleep", "1000"]);
/// rig::Cluster::find(&rig::default_name())?.expect("a cluster is up").add_images(&[image])?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Image {
    name: String,
    layers: Vec<Layer>,
    user: String,
    directory: String,
    environment: Vec<String>,
    entrypoint: Vec<String>,
    command: Vec<String>,
}

impl Image {
    /// An image with no layers yet. Pods name it as `name` with `imagePullPolicy: Never` (or `IfNotPresent`, with a tag
    /// other than `latest`).
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            layers: Vec::new(),
            user: String::new(),
            directory: "/".to_owned(),
            environment: vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
            entrypoint: Vec::new(),
            command: Vec::new(),
        }
    }

    /// Adds a layer on top.
    #[must_use]
    pub fn layer(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    /// Runs as this user: a name, a number or `UID:GID`.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// Starts in this directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<String>) -> Self {
        self.directory = directory.into();
        self
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// Sets what a pod's `args` follow.
    #[must_use]
    pub fn entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets what runs when the pod says nothing.
    #[must_use]
    pub fn command<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// Makes the layers that the cache hasn't got.
    pub(crate) fn prepare(&self, cache: &crate::cache::Cache) -> anyhow::Result<()> {
        self.layers.iter().try_for_each(|layer| layer.packed(cache).map(drop))
    }

    /// Writes the image as an OCI archive, which container engines and registries' tools can load.
    ///
    /// # Errors
    /// When a layer can't be made, or the file can't be written.
    pub fn save(&self, file: &std::path::Path) -> anyhow::Result<()> {
        let cache = crate::cache::Cache::open()?;
        // Beside the layers, so that these can be linked.
        let layout = cache.directory(&format!("archive-{}", std::process::id()))?;
        let nothing = std::collections::BTreeSet::new();
        let _archive = Archive::create(&cache, std::slice::from_ref(self), &layout, &nothing)?;
        let mut tar = crate::process::command("tar");
        tar.args(["--sort=name", "--mtime=@0", "--numeric-owner", "--owner=0", "--group=0", "-C"]).arg(&layout);
        crate::process::output(tar.arg("-cf").arg(file).arg(".")).map(drop)
    }

    /// The name that pods use.
    pub fn name(&self) -> &str {
        &self.name
    }
}
