//! Starting a cluster.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::state::{Process, State};
use super::{Cluster, Flavor, remains};
use crate::cache::{Cache, Key};
use crate::image;
use crate::pki::Pki;
use crate::process::{command, output};
use crate::progress::Step;
use crate::{cgroup, toolchain};

/// How long the node may take. It takes about seven seconds; two at once on a busy machine take twenty.
const PATIENCE: Duration = Duration::from_secs(120);

/// The files of `rig/node`, and whether they are programs.
const NODE_FILES: &[(&str, &str, bool)] = &[
    ("node/enter.sh", include_str!("../../node/enter.sh"), true),
    ("node/init.sh", include_str!("../../node/init.sh"), true),
    ("node/containerd.toml", include_str!("../../node/containerd.toml"), false),
    ("node/runsc.toml", include_str!("../../node/runsc.toml"), false),
    ("node/etcd.yaml", include_str!("../../node/etcd.yaml"), false),
    ("node/kubelet.yaml", include_str!("../../node/kubelet.yaml"), false),
    ("node/kube-proxy.yaml", include_str!("../../node/kube-proxy.yaml"), false),
    ("node/cni/10-pods.conflist", include_str!("../../node/cni.conflist"), false),
];

/// The names by which onebox is called.
const ONEBOX_NAMES: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "relay",
];

const RUNTIME_CLASSES: &str = include_str!("../../manifests/runtime-classes.yaml");

/// Starts a cluster in a directory that isn't there yet, and waits until it can run pods.
pub(super) fn start(cache: &Cache, name: &str, flavor: Flavor) -> Result<Cluster> {
    let programs = [toolchain::ONEBOX.file(cache)?, toolchain::KUBE_ROUTER.file(cache)?];
    let (first, base) = (image::pause_and_busybox()?, image::base());
    for image in first.iter().chain(&base) {
        image.prepare(cache)?;
    }

    let step = Step::begin(format!("starting cluster {name}"));
    let directory = cache.directory("clusters")?.join(name);
    fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    // The socket is the host's; the relay inside gets it and serves it from there.
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen on 127.0.0.1")?;
    // Two users with a cache each may both have a cluster of this name.
    let id = Key::new("cluster").with(directory.as_os_str().as_encoded_bytes()).short();
    let state = State {
        name: name.to_owned(),
        port: listener.local_addr()?.port(),
        cgroups: cgroup::places(&format!("podbay-{name}-{}", &id[..8]))?,
        init: None,
        is_complete: false,
        add_ons: BTreeSet::new(),
        directory,
    };
    let mut cluster = Cluster { cache: cache.clone(), state };
    let started = boot(&mut cluster, flavor, listener, &programs).and_then(|()| {
        std::thread::scope(|scope| {
            let images = scope.spawn(|| {
                wait_for(&cluster, "containerd", || containerd_answers(&cluster))?;
                cluster.add_images(&first)?;
                cluster.add_images(&base)
            });
            wait_for(&cluster, "the node", || node_is_ready(&cluster))?;
            cluster.apply(RUNTIME_CLASSES)?;
            images.join().map_err(|_| anyhow::anyhow!("importing images panicked"))?
        })
    });
    if let Err(error) = started {
        let logs = last_words(&cluster);
        remains::remove(&cluster.state)?;
        return Err(error.context(format!("cluster {name} didn't start{logs}")));
    }
    cluster.state.is_complete = true;
    cluster.state.save()?;
    step.done();
    Ok(cluster)
}

/// Lays out the directory and starts the node's first process.
fn boot(cluster: &mut Cluster, flavor: Flavor, listener: TcpListener, programs: &[std::path::PathBuf]) -> Result<()> {
    let state = &mut cluster.state;
    let directory = state.directory.clone();
    state.save()?;
    for (path, text, is_program) in NODE_FILES {
        write_file(&directory.join(path), text, *is_program)?;
    }
    for (is_so, file, default, instead) in [
        (flavor.crun, "node/containerd.toml", "default_runtime_name = \"runc\"", "default_runtime_name = \"crun\""),
        (!flavor.network_policies, "node/init.sh", "network_policies=true", "network_policies=false"),
    ] {
        if is_so {
            let text = fs::read_to_string(directory.join(file))?;
            ensure!(text.contains(default), "{file} no longer has {default:?}");
            fs::write(directory.join(file), text.replacen(default, instead, 1))?;
        }
    }
    let bin = directory.join("bin");
    fs::create_dir(&bin)?;
    fs::create_dir(directory.join("log"))?;
    for program in programs {
        link_program(program, &bin)?;
    }
    for name in ONEBOX_NAMES {
        symlink("onebox", bin.join(name))?;
    }
    Pki::create(directory.join("pki"), state.port)?;
    cgroup::create(&state.cgroups)?;

    let log = fs::File::create(directory.join("log/init.log"))?;
    // A session of its own, so that an interrupt at the terminal isn't for the cluster.
    let mut child = command("setsid")
        .arg(directory.join("node/enter.sh"))
        .arg(&directory)
        .args(&state.cgroups)
        .stdin(OwnedFd::from(listener))
        .stdout(log.try_clone()?)
        .stderr(log)
        .current_dir("/")
        .spawn()
        .context("cannot start the node")?;
    let parent = i32::try_from(child.id())?;
    let deadline = Instant::now() + Duration::from_secs(10);
    // unshare's child appears when the namespaces exist. Before, there may be none, or a short-lived helper.
    state.init = loop {
        if let Some(status) = child.try_wait()? {
            bail!("the node's first process ended at once: {status}");
        }
        if let Some(init) = Process::child(parent).filter(|init| is_init(init.pid)) {
            break Some(init);
        }
        ensure!(Instant::now() < deadline, "the node's first process didn't appear");
        std::thread::sleep(Duration::from_millis(5));
    };
    // Whoever ends the cluster may be another process; this one must not keep a zombie.
    std::thread::spawn(move || child.wait());
    state.save()
}

/// Whether a process is the first of a PID namespace below ours.
fn is_init(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("NSpid:").is_some_and(|ids| ids.split_whitespace().nth(1) == Some("1")))
}

/// Puts a program from the cache into a cluster's directory. A link, not a copy: they are in one file system.
pub(crate) fn link_program(program: &Path, directory: &Path) -> Result<()> {
    let link = directory.join(program.file_name().context("a program has a name")?);
    match fs::hard_link(program, link) {
        // An add-on whose first attempt failed half way.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.with_context(|| format!("cannot link {}", program.display())),
    }
}

/// Writes a small file, making its directory.
pub(crate) fn write_file(path: &Path, text: &str, is_program: bool) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(if is_program { 0o755 } else { 0o644 }))?)
}

/// Waits until `is_there` says so, the node dies or patience ends.
pub(super) fn wait_for(cluster: &Cluster, what: &str, is_there: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !is_there() {
        ensure!(cluster.state.is_running(), "the node's first process died while waiting for {what}");
        ensure!(start.elapsed() < PATIENCE, "{what} wasn't ready after {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn containerd_answers(cluster: &Cluster) -> bool {
    let socket = cluster.directory().join("containerd.sock");
    socket.exists() && cluster.ctr().is_ok_and(|mut ctr| output(ctr.arg("version")).is_ok())
}

/// Whether the node is ready, takes pods, and the first of them will find its service account.
pub(super) fn node_is_ready(cluster: &Cluster) -> bool {
    let get = |arguments: &[&str]| {
        let mut kubectl = cluster.kubectl();
        kubectl.args(["--request-timeout=5s", "get"]).args(arguments).stderr(Stdio::null());
        output(&mut kubectl)
    };
    // The controller manager takes the taint of a node that isn't ready away some time after the node is.
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints}"#;
    get(&["node", "node1", "-o", ready]).is_ok_and(|status| status == "True")
        && get(&["--namespace=default", "serviceaccount", "default"]).is_ok()
}

/// The ends of the logs, for the error message of a start that failed.
fn last_words(cluster: &Cluster) -> String {
    let mut words = String::new();
    for name in ["init", "containerd", "etcd", "kube-apiserver", "kubelet"] {
        let log = fs::read_to_string(cluster.logs().join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        for line in &lines[lines.len().saturating_sub(3)..] {
            words += &format!("\n  {name}: {line}");
        }
    }
    words
}
