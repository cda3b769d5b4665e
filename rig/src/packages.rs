//! Debian packages: what the rig needs beside what it compiles, and what tests need.

use anyhow::{Context, Result, bail};

use crate::process::{command, find, output};
use crate::progress::Step;

/// A program (or file) that must be there, and the package that brings it.
#[derive(Debug)]
pub struct Need {
    package: &'static str,
    proof: Proof,
}

#[derive(Debug)]
enum Proof {
    Program(&'static str),
    File(&'static str),
}

impl Need {
    /// A program on the path.
    pub const fn program(package: &'static str, program: &'static str) -> Self {
        Self { package, proof: Proof::Program(program) }
    }

    /// A file.
    pub const fn file(package: &'static str, file: &'static str) -> Self {
        Self { package, proof: Proof::File(file) }
    }

    fn is_met(&self) -> bool {
        match self.proof {
            Proof::Program(program) => find(program).is_some(),
            Proof::File(file) => std::path::Path::new(file).exists(),
        }
    }
}

/// What a cluster needs.
pub(crate) const NEEDS: &[Need] = &[
    Need::program("containerd", "containerd"),
    Need::program("runc", "runc"),
    Need::program("crun", "crun"),
    Need::file("containernetworking-plugins", "/usr/lib/cni/bridge"),
    Need::program("iproute2", "ip"),
    Need::program("iptables", "iptables"),
    Need::program("ipset", "ipset"),
    Need::program("nftables", "nft"),
    Need::program("openssl", "openssl"),
    Need::program("mmdebstrap", "mmdebstrap"),
    Need::file("busybox-static", "/bin/busybox"),
    Need::file("libc6-dev", "/usr/include/stdlib.h"),
    Need::program("gcc", "cc"),
];

/// Installs what is missing, when we may; else says which command does.
///
/// # Errors
/// When something is missing and can't be installed.
pub fn ensure(needs: &[Need]) -> Result<()> {
    let missing: Vec<&str> = needs.iter().filter(|need| !need.is_met()).map(|need| need.package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get update && apt-get install --no-install-recommends {}", missing.join(" "));
    if !rustix::process::geteuid().is_root() || find("apt-get").is_none() {
        bail!("packages are missing: {}. As root, run: {by_hand}", missing.join(", "));
    }
    let step = Step::begin(format!("installing {}", missing.join(", ")));
    let apt = || {
        let mut apt = command("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").arg("-q");
        apt
    };
    output(apt().arg("update")).context("cannot refresh the package lists")?;
    output(apt().args(["install", "-y", "--no-install-recommends"]).args(&missing))
        .with_context(|| format!("cannot install packages; by hand: {by_hand}"))?;
    step.done();
    match needs.iter().find(|need| !need.is_met()) {
        Some(need) => bail!("package {} was installed, but what it should provide is missing", need.package),
        None => Ok(()),
    }
}
