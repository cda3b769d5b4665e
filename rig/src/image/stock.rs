//! The images that every cluster has, and those of the add-ons.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result};

use super::runtime::PACKAGES;
use super::{File, Image, Layer};
use crate::cache::{Cache, Key, remove_tree};
use crate::process::{command, output};
use crate::progress::Step;
use crate::toolchain::{self, Program};

/// Debian with python3, curl and procps.
pub const DEBIAN: &str = "localhost/debian:1";
/// BusyBox and nothing else: no python3, no bash, no GNU tools.
pub const BUSYBOX: &str = "localhost/busybox:1";
/// Debian for user 1000, made to run with a read-only root file system.
pub const NONROOT: &str = "localhost/nonroot:1";
/// The stock Python runtime of agent-sandbox.
pub const PYTHON_RUNTIME: &str = "localhost/python-runtime:1";
/// The Python router of agent-sandbox.
const PYTHON_ROUTER: &str = "localhost/python-router:1";
/// The stock Go runtime of agent-sandbox.
pub const SANDBOXD: &str = "localhost/sandboxd:1";

/// The release that [`Layer::debian`] is, and the version of Python that it has.
pub(super) const SUITE: &str = "bookworm";
const PYTHON: &str = "python3.11";

/// Waits, but ends at once when told to: `sleep infinity` as PID 1 would ignore TERM.
const WAIT: [&str; 3] = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"];

/// What the first pods need.
pub(crate) fn pause_and_busybox() -> Result<Vec<Image>> {
    let pause = Layer::new("pause", Key::new("pause 1").with(PAUSE), |_, root| {
        let source = root.with_file_name("pause.c");
        fs::write(&source, PAUSE)?;
        output(command("cc").args(["-Os", "-static", "-s", "-o"]).arg(root.join("pause")).arg(&source))?;
        Ok(fs::remove_file(source)?)
    });
    Ok(vec![
        Image::new("localhost/pause:1").layer(pause).entrypoint(["/pause"]),
        Image::new(BUSYBOX).layer(busybox()?).command(WAIT),
    ])
}

const PAUSE: &str = include_str!("../../images/pause.c");

/// What tests run in.
pub(crate) fn base() -> Vec<Image> {
    let user = Layer::files(
        "nonroot",
        [
            File::new(
                "/etc/passwd",
                "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/bash\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
            ),
            File::new("/etc/group", "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"),
            File::directory("/home/agent").owner(1000),
            File::directory("/workspace").owner(1000),
        ],
    );
    vec![
        Image::new(DEBIAN).layer(debian()).command(WAIT),
        Image::new(NONROOT)
            .layer(debian())
            .layer(user)
            .user("1000:1000")
            .directory("/workspace")
            .environment("HOME", "/home/agent")
            // With a read-only root there is nowhere to write compiled modules to.
            .environment("PYTHONDONTWRITEBYTECODE", "1")
            .command(WAIT),
    ]
}

/// The stock Python runtime of agent-sandbox, [`PYTHON_RUNTIME`]: HTTP on port 8888.
pub fn stock_runtime() -> Result<Image> {
    let server = ["python3", "-m", "uvicorn", "main:app", "--host", "0.0.0.0", "--port", "8888"];
    let image = Image::new(PYTHON_RUNTIME).layer(debian()).layer(python_runtime()?);
    Ok(image.user("1000").directory("/app").command(server))
}

/// The images of the agent-sandbox add-on.
pub(crate) fn agent_sandbox() -> Result<Vec<Image>> {
    let workspace = Layer::files("workspace", [File::directory("/workspace").owner(1000)]);
    let mut images = vec![
        stock_runtime()?,
        Image::new(SANDBOXD)
            .layer(debian())
            .layer(workspace)
            .layer(program(&toolchain::SANDBOXD, "usr/local/bin")?)
            .user("1000")
            .directory("/workspace")
            .entrypoint(["/usr/local/bin/sandboxd"]),
    ];
    for (name, tool) in [("agent-sandbox-controller", &toolchain::CONTROLLER), ("sandbox-router", &toolchain::ROUTER)] {
        images.push(
            Image::new(format!("localhost/{name}:1"))
                .layer(program(tool, "")?)
                .user("65532:65532")
                .entrypoint([format!("/{name}")]),
        );
    }
    Ok(images)
}

/// A compiled program in a directory of its own layer.
fn program(tool: &'static Program, directory: &'static str) -> Result<Layer> {
    let key = tool.key()?.with(directory);
    Ok(Layer::new(tool.name(), key, move |cache, root| {
        let directory = root.join(directory);
        fs::create_dir_all(&directory)?;
        fs::copy(tool.file(cache)?, directory.join(tool.name()))?;
        Ok(())
    }))
}

pub(super) fn busybox() -> Result<Layer> {
    let key = Key::new("busybox 2").with_file(Path::new("/bin/busybox"))?;
    Ok(Layer::new("busybox", key, |_, root| {
        for directory in ["bin", "etc", "root", "tmp"] {
            fs::create_dir(root.join(directory))?;
        }
        fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))?;
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
        fs::write(root.join("etc/group"), "root:x:0:\n")?;
        fs::copy("/bin/busybox", root.join("bin/busybox")).context("cannot copy /bin/busybox")?;
        for applet in output(command("/bin/busybox").arg("--list"))?.lines().filter(|applet| *applet != "busybox") {
            symlink("busybox", root.join("bin").join(applet))?;
        }
        Ok(())
    }))
}

/// Debian with Python 3. Images carry no times, so Python would think every compiled module stale and compile it
/// again at each start, which takes 60 ms and more: these are compiled to be used unchecked.
pub(crate) fn debian() -> Layer {
    Layer::new("debian", Key::new("debian 2").with(SUITE), |_, root| {
        let step = Step::begin("making the Debian image (about 1 min)");
        let mut bootstrap = command("mmdebstrap");
        bootstrap.args(["--quiet", "--variant=essential"]).arg(format!("--include={}", PACKAGES.join(",")));
        for left_out in ["doc", "man", "locale"] {
            bootstrap.arg(format!("--dpkgopt=path-exclude=/usr/share/{left_out}/*"));
        }
        output(bootstrap.arg(SUITE).arg(root))?;
        for rest in ["var/cache/apt", "var/lib/apt/lists"] {
            remove_tree(&root.join(rest))?;
            fs::create_dir_all(root.join(rest))?;
        }
        compile_python(root, &[&format!("/usr/lib/{PYTHON}")])?;
        step.done();
        Ok(())
    })
}

/// The runtime's one file from upstream's module, and the packages it imports.
fn python_runtime() -> Result<Layer> {
    const PACKAGES: [&str; 3] = ["fastapi==0.138.0", "uvicorn==0.49.0", "python-multipart==0.0.33"];
    python_server("python-runtime", "examples/python-runtime-sandbox/main.py", &PACKAGES)
}

/// Upstream's Python router, [`PYTHON_ROUTER`]: HTTP on port 8080.
pub(crate) fn python_router() -> Result<Image> {
    const PACKAGES: [&str; 4] = ["fastapi==0.138.0", "uvicorn==0.49.0", "httpx==0.28.1", "websockets==16.0"];
    let server = ["python3", "-m", "uvicorn", "sandbox_router:app", "--host", "0.0.0.0", "--port", "8080"];
    let source = "clients/python/agentic-sandbox-client/sandbox-router/sandbox_router.py";
    let image = Image::new(PYTHON_ROUTER).layer(debian()).layer(python_server("python-router", source, &PACKAGES)?);
    Ok(image.user("1000").directory("/app").command(server))
}

/// A server of upstream's in `/app`, and the packages that it needs.
fn python_server(name: &'static str, source: &str, packages: &'static [&'static str]) -> Result<Layer> {
    let source = toolchain::upstream("agent-sandbox", "sigs.k8s.io/agent-sandbox")?.join(source);
    let key = packages.iter().fold(Key::new(&format!("{name} 1")), |key, package| key.with(package));
    let key = key.with(debian().key().short()).with_file(&source)?;
    Ok(Layer::new(name, key, move |cache, root| {
        let step = Step::begin(format!("making the image of the {name}"));
        let directory = root.join(format!("usr/local/lib/{PYTHON}/dist-packages"));
        fs::create_dir_all(&directory)?;
        let version = PYTHON.trim_start_matches("python");
        output(
            command("python3")
                .args(["-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:"])
                .args(["--python-version", version, "--target"])
                .arg(&directory)
                .args(packages),
        )?;
        fs::create_dir(root.join("app"))?;
        fs::copy(&source, root.join("app").join(source.file_name().unwrap_or_default()))?;
        compile_in_debian(cache, root)?;
        output(command("chown").args(["-R", "1000:1000"]).arg(root.join("app")))?;
        step.done();
        Ok(())
    }))
}

/// Compiles the Python modules below `root` with the Debian image's Python, as if `root` were `/`.
fn compile_in_debian(cache: &Cache, root: &Path) -> Result<()> {
    let debian = root.with_file_name("debian");
    fs::create_dir(&debian)?;
    output(command("tar").arg("-C").arg(&debian).arg("-xf").arg(super::debian().packed(cache)?.file))?;
    let inside = debian.join("mnt/layer");
    fs::rename(root, &inside)?;
    compile_python(&debian, &["-s", "/mnt/layer", "-p", "/", "/mnt/layer"])?;
    fs::rename(&inside, root)?;
    remove_tree(&debian)
}

fn compile_python(root: &Path, arguments: &[&str]) -> Result<()> {
    let mut python = command("chroot");
    python.arg(root).args(["python3", "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]);
    // -f: the package's own set-up has compiled them already, by time.
    // Debian's library has files for tests of the compiler itself, with syntax errors on purpose: exit 1 is no failure.
    let ended = python.args(arguments).output().context("cannot start chroot")?;
    anyhow::ensure!(matches!(ended.status.code(), Some(0 | 1)), "{python:?} failed: {}", ended.status);
    Ok(())
}
