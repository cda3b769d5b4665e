//! Real programs, in pods whose commands have their filter and their domain.
//!
//! The pod has this machine's `/usr` and what belongs to it, so that what is installed here can be run there. Where
//! everything is required (`PODBAY_REQUIRE=all`), missing programs are installed; elsewhere they are left out, and said.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use podbay_client::provider::Provider;
use podbay_client::{Command, Sandbox};
use podbay_k8s::raw::Config;
use rig::packages::Need;
use serde_json::{Value, json};

use crate::pods::rules;
use crate::provider::{config, provider, wanted};

/// Places of this machine that programs consist of.
const PLACES: [&str; 4] = ["/usr", "/etc/alternatives", "/etc/java-17-openjdk", "/etc/ssl"];

/// The packages that bring the programs of [`WORK`] and [`ACROSS`].
const NEEDS: &[Need] = &[
    Need::program("python3-pip", "pip3"),
    Need::file("python3-setuptools", "/usr/lib/python3/dist-packages/setuptools"),
    Need::program("npm", "npm"),
    Need::program("golang-go", "go"),
    Need::program("git", "git"),
    Need::program("gcc", "gcc"),
    Need::program("default-jdk-headless", "javac"),
    Need::program("gdb", "gdb"),
    Need::program("lsof", "lsof"),
];

fn everything_is_required() -> bool {
    std::env::var_os("PODBAY_REQUIRE").is_some_and(|value| value == "all")
}

/// Whether the pod finds a program in what it has of this machine.
fn is_installed(program: &str) -> Result<bool> {
    let found =
        ["/usr/bin", "/usr/local/bin", "/usr/local/go/bin"].iter().any(|place| Path::new(place).join(program).exists());
    ensure!(found || !everything_is_required(), "{program} isn't installed where pods see it, and PODBAY_REQUIRE=all");
    if !found {
        println!("left out: {program} isn't installed");
    }
    Ok(found)
}

fn with_programs(config: Config) -> Result<Config> {
    let places: Vec<&str> = PLACES.into_iter().filter(|place| Path::new(place).is_dir()).collect();
    let named = |place: &&str| place.trim_start_matches('/').replace('/', "-");
    let volumes: Vec<Value> = places.iter().map(|p| json!({"name": named(p), "hostPath": {"path": p}})).collect();
    let mounts: Vec<Value> =
        places.iter().map(|p| json!({"name": named(p), "mountPath": p, "readOnly": true})).collect();
    Ok(Config {
        volumes: serde_json::from_value(volumes.into())?,
        volume_mounts: serde_json::from_value(mounts.into())?,
        allow_weaker_security: true,
        memory_limit: "2Gi".into(),
        env: [
            ("HOME".into(), "/workspace".into()),
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/go/bin".into()),
        ]
        .into(),
        ..config
    })
}

/// A program that must be there, and what is done with it.
const WORK: [(&str, &str); 8] = [
    (
        "pip3",
        "mkdir -p p/hello_podbay && echo 'X = 7' > p/hello_podbay/__init__.py && \
         printf 'from setuptools import setup\\nsetup(name=\"hello-podbay\", version=\"1\", packages=[\"hello_podbay\"])\\n' > p/setup.py && \
         pip3 install --no-index --no-build-isolation --no-deps --break-system-packages --target t ./p >/dev/null && \
         PYTHONPATH=t /usr/bin/python3 -c 'import hello_podbay; print(hello_podbay.X)' | grep -qx 7",
    ),
    (
        "npm",
        "mkdir -p dep app && echo '{\"name\":\"dep\",\"version\":\"1.0.0\",\"main\":\"i.js\"}' > dep/package.json && \
         echo 'module.exports = 7' > dep/i.js && cd app && echo '{\"name\":\"app\",\"version\":\"1.0.0\"}' > package.json && \
         npm install --offline --no-audit --no-fund ../dep >/dev/null && \
         node -e 'const {Worker}=require(\"worker_threads\"); new Worker(\"process.exit(require(\\\"dep\\\")-7)\",{eval:true}).on(\"exit\",c=>process.exit(c))'",
    ),
    (
        "go",
        // Without imports: all that the program needs has to be compiled first.
        "mkdir -p g && cd g && printf 'module x\\n\\ngo 1.20\\n' > go.mod && \
         printf 'package main\\nfunc main() { c := make(chan int); go func() { c <- 7 }(); println(<-c) }\\n' > m.go && \
         GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off go build -o m . && ./m 2>&1 | grep -qx 7",
    ),
    (
        "git",
        "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && \
         git clone -q . ../r2 && git -C ../r2 log --oneline | grep -q x && git gc -q",
    ),
    ("gcc", "printf 'int main(void) { return 0; }' > m.c && gcc -pthread -O2 -o mc m.c && ./mc"),
    (
        "javac",
        "printf 'public class M { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> {}); t.start(); t.join(); System.out.println(7); } }' > M.java && \
         javac M.java && java -Xmx256m M | grep -qx 7",
    ),
    (
        "python3",
        "cat > mp.py <<'END'\nimport multiprocessing, asyncio, subprocess, socket, threading\ndef f(n): return n * n\n\
         if __name__ == '__main__':\n    with multiprocessing.get_context('spawn').Pool(2) as p: assert p.map(f, range(4)) == [0, 1, 4, 9]\n\
         \x20   q = multiprocessing.Queue(); q.put(1); assert q.get() == 1\n\
         \x20   asyncio.run(asyncio.sleep(0)); socket.getaddrinfo('localhost', 80)\nEND\npython3 mp.py",
    ),
    ("gdb", "sleep 60 & gdb -p $! -batch -ex 'info registers' >/dev/null 2>&1; s=$?; kill $!; exit $s"),
];

/// What an agent does to a server that an earlier command started; `PID` is that server's.
const ACROSS: [(&str, &str); 3] = [
    ("gdb", "gdb -p PID -batch -ex 'info registers' 2>&1 | grep -q rip"),
    ("lsof", "lsof -p PID | grep -q 'server.txt'"),
    (
        "python3",
        "python3 -c \"import os; assert os.readlink('/proc/PID/cwd') == '/workspace'; open('/proc/PID/environ').read()\"",
    ),
];

async fn works(sandbox: &Sandbox, name: &str, script: &str) -> Result<()> {
    let command = Command { timeout_ms: 120_000, ..Command::argv(["sh", "-euc", script]) };
    let output = sandbox.run(command).await?;
    ensure!(output.success(), "{name}: {:?}\n{}", output.exit(), output.text());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_programs_work_behind_the_walls() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    if everything_is_required() {
        rig::packages::ensure(NEEDS)?;
    }
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, with_programs(config(rig::DEBIAN))?)?;
    let made = raw.get_or_create(&wanted("pb-work")).await?;
    ensure!(made.sandbox.protection().await?.missing().count() == 0);
    for (program, script) in WORK {
        if is_installed(program)? {
            works(&made.sandbox, program, script).await?;
        }
    }
    let server = made.sandbox.start("exec 7> server.txt; echo $$ > pid; exec sleep 1000").await?;
    let pid = made.sandbox.run("while ! [ -s pid ]; do sleep 0.01; done; cat pid").await?.text().trim().to_owned();
    for (program, script) in ACROSS {
        if is_installed(program)? {
            works(&made.sandbox, &format!("{program} across commands"), &script.replace("PID", &pid)).await?;
        }
    }
    ensure!(made.sandbox.kill(&server.id).await? >= 1);
    Ok(())
}

/// A root pod with what dpkg needs of root, and Podbay's pods don't have by themselves.
fn root() -> Config {
    Config {
        run_as_user: Some(0),
        run_as_group: Some(0),
        fs_group: None,
        run_as_non_root: false,
        allow_weaker_security: true,
        pod_template_overrides: json!({"spec": {"containers": [{"name": "sandbox", "securityContext": {
            "capabilities": {"add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID"]},
        }}]}}),
        ..config(rig::DEBIAN)
    }
}

/// Packages bring set-id programs, users and start scripts, none of which the filter may get in the way of.
const PACKAGE: &str = r#"
umask 022
mkdir -p d/DEBIAN d/opt/hello && printf '#!/bin/sh\necho 7\n' > d/opt/hello/hello && chmod 755 d/opt/hello/hello
printf 'Package: hello-podbay\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n' > d/DEBIAN/control
printf '#!/bin/sh\nset -e\nchmod 4755 /opt/hello/hello\necho hello-podbay:x:901:901::/:/bin/false >> /etc/passwd\nchown 901 /opt/hello\n' > d/DEBIAN/postinst
chmod 755 d/DEBIAN/postinst && dpkg-deb --build d hello.deb >/dev/null && dpkg --install hello.deb >/dev/null
[ -u /opt/hello/hello ] && grep -q hello-podbay /etc/passwd && /opt/hello/hello | grep -qx 7
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_package_with_a_set_id_program_is_installed_in_a_root_pod() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let made = provider(&namespace, root())?.get_or_create(&wanted("pb-dpkg")).await?;
    works(&made.sandbox, "dpkg", PACKAGE).await
}

/// Fetches git, apt and all that they need from a Debian mirror into a repository in a directory. Arguments: the directory.
const FETCH: &str = r#"
dir=$1 suite=bookworm
mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
: > "$dir/status"
# The mirror that this machine is set up with.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Release: $suite" | head -n 1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$dir/sources.list"
apt() {
    apt-get -q -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$dir/lists" \
        -o Dir::State::status="$dir/status" -o Dir::Cache="$dir/cache" -o Dir::Cache::archives="$dir/cache/archives" \
        -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@"
}
apt update
apt install -y --download-only --no-install-recommends apt git
cd "$dir/cache/archives"
for deb in *.deb; do
    dpkg-deb -f "$deb"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -d ' ' -f 1)"
done > "$dir/Packages"
mv "$dir/Packages" .
"#;

/// The repository, fetched once. Nothing where no mirror can be reached and that is allowed.
fn repository() -> Result<Option<PathBuf>> {
    let dir = rig::Cache::place()?.join("apt-git");
    let packages = dir.join("cache/archives");
    if packages.join("Packages").is_file() {
        return Ok(Some(packages));
    }
    let mut fetch = std::process::Command::new("sh");
    let output = fetch.args(["-euc", FETCH, "fetch"]).arg(&dir).output().context("can't start sh")?;
    if output.status.success() {
        return Ok(Some(packages));
    }
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!everything_is_required(), "can't fetch Debian packages, and PODBAY_REQUIRE=all: {why}");
    println!("left out: can't fetch Debian packages: {why}");
    Ok(None)
}

/// The image has dpkg but no apt, so that comes first, by dpkg, with all that isn't git's alone.
const INSTALL_GIT: &str = r#"
export DEBIAN_FRONTEND=noninteractive
cd /repository
dpkg --install --skip-same-version $(ls *.deb | grep -v -e '^git' -e perl -e curl -e liberror) >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
echo 'deb [trusted=yes] file:/repository ./' > /etc/apt/sources.list
mkdir -p /var/lib/apt/lists/partial /var/cache/apt/archives/partial
! command -v git
{ apt-get -q update && apt-get -q -y install --no-install-recommends git; } >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
cd /workspace && git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x
git clone -q . ../r2 && git -C ../r2 log --oneline | grep -q x
"#;

/// `apt-get install git` as users of root pods do it, except that the mirror is a directory of this machine: the rig's pods
/// have no network by default, and tests don't depend on one. apt drops its rights for fetching (`_apt`) as everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn apt_installs_git_in_a_root_pod() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let Some(repository) = repository()? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let config = Config {
        volumes: serde_json::from_value(json!([{"name": "repository", "hostPath": {"path": repository}}]))?,
        volume_mounts: serde_json::from_value(
            json!([{"name": "repository", "mountPath": "/repository", "readOnly": true}]),
        )?,
        memory_limit: "2Gi".into(),
        ..root()
    };
    let made = provider(&namespace, config)?.get_or_create(&wanted("pb-apt")).await?;
    works(&made.sandbox, "apt-get install git", INSTALL_GIT).await
}
