//! Builds podbayd, static and small, and writes down where it is.
//!
//! A nested cargo with a target directory of its own: in the same one the two would wait for each other forever. It is in that
//! of the build's profile, not in `OUT_DIR`, of which tests, documentation and each package have another one: all of them would
//! compile podbayd again. Static linking is asked for by target features, which with `--target` given don't reach build scripts
//! and macros.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use sha2::{Digest, Sha256};

#[path = "src/landlock_override.rs"]
mod landlock_override;

/// Architectures that a release carries, as Rust names them.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

fn main() {
    for name in ["CLIPPY_ARGS", "PODBAY_DAEMON_DIR"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let this_arch = |file| vec![(variable("CARGO_CFG_TARGET_ARCH"), file)];
    let daemons = match env::var_os("PODBAY_DAEMON_DIR") {
        Some(dir) => ready_made(Path::new(&dir)),
        // Clippy only looks at the code, and has build scripts run apart from all other builds.
        None if env::var_os("CLIPPY_ARGS").is_some() => this_arch(placeholder(&out)),
        None => this_arch(build(&out)),
    };
    // Profiles that inherit from `release` count as it.
    if variable("PROFILE") == "release" {
        daemons.iter().for_each(|(_, path)| check_release(path));
    }
    let choose = |file: &str, value: &dyn Fn(&Path) -> String| {
        let arms: String =
            daemons.iter().map(|(arch, path)| format!("        {arch:?} => Some({}),\n", value(path))).collect();
        fs::write(out.join(file), format!("match arch {{\n{arms}        _ => None,\n    }}"))
            .expect("OUT_DIR is writable");
    };
    choose("daemons.rs", &|path| format!("include_bytes!({path:?})"));
    choose("digests.rs", &|path| format!("{:?}", digest(path)));
}

fn check_release(podbayd: &Path) {
    let has_override = landlock_override::is_in(&read(podbayd));
    assert!(!has_override, "{} was built for tests: its Landlock can be switched off", podbayd.display());
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// SHA-256, as `sha256sum` prints it. Made here, because every command would have to wait for it otherwise.
fn digest(path: &Path) -> String {
    Sha256::digest(read(path)).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// Files `podbayd-ARCH` that were built before, for releases.
fn ready_made(dir: &Path) -> Vec<(String, PathBuf)> {
    println!("cargo::rerun-if-changed={}", dir.display());
    let found: Vec<_> = ARCHITECTURES
        .iter()
        .map(|arch| ((*arch).to_owned(), dir.join(format!("podbayd-{arch}"))))
        .filter(|(_, path)| path.is_file())
        .collect();
    assert!(!found.is_empty(), "PODBAY_DAEMON_DIR is {} and has no podbayd-x86_64 or podbayd-aarch64", dir.display());
    found
}

fn placeholder(out: &Path) -> PathBuf {
    let file = out.join("none");
    fs::write(&file, "").expect("OUT_DIR is writable");
    file
}

fn build(out: &Path) -> PathBuf {
    let workspace = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../..");
    let crates = ["proto", "fsops", "jail", "supervision", "daemon"].map(|name| format!("crates/{name}"));
    for input in ["Cargo.toml".into(), "Cargo.lock".into()].into_iter().chain(crates) {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    let target = variable("TARGET");
    // OUT_DIR is PROFILE/build/PACKAGE/out.
    let target_dir = out.ancestors().nth(3).expect("OUT_DIR is deep below the target directory").join("podbayd-build");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(&workspace)
        .args(["build", "--quiet", "--locked", "--package", "podbayd", "--bin", "podbayd", "--profile", "daemon"])
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
        // Clippy and friends wrap the compiler; podbayd is to be compiled, not looked at.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTFLAGS");
    if variable("PROFILE") != "release" {
        // Lets tests imitate older kernels, which nobody else has a use for.
        cargo.args(["--features", "older-landlock"]);
        // Linking as one unit takes most of the time, and whoever changes podbayd waits for it after each change.
        cargo.env("CARGO_PROFILE_DAEMON_LTO", "off").env("CARGO_PROFILE_DAEMON_CODEGEN_UNITS", "4");
    }
    let status = cargo.status().expect("cargo can be run");
    assert!(status.success(), "building podbayd failed: {status}");
    // The next build replaces it there; this crate has to be compiled with what it was built for.
    let built = target_dir.join(target).join("daemon").join("podbayd");
    let copy = out.join("podbayd");
    fs::copy(&built, &copy).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    copy
}
