//! Real programs, in a pod whose commands have their filter and their domain.
//!
//! The pod has this machine's `/usr` and what belongs to it, so that what is installed here can be run there. What isn't is
//! left out, and said.

use std::path::Path;

use anyhow::{Result, ensure};
use podbay_client::provider::Provider;
use podbay_client::{Command, Sandbox};
use podbay_k8s::raw::Config;
use serde_json::{Value, json};

use crate::pods::rules;
use crate::provider::{config, provider, wanted};

/// Places of this machine that programs are made of.
const PLACES: [&str; 5] = ["/usr", "/etc/alternatives", "/etc/java-17-openjdk", "/etc/ssl", "/etc/apt"];

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
        env: [("HOME".into(), "/workspace".into())].into(),
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
        "/usr/local/go/bin/go",
        "mkdir -p g && cd g && printf 'module x\\n\\ngo 1.20\\n' > go.mod && \
         printf 'package main\\nimport \"fmt\"\\nfunc main() { c := make(chan int); go func() { c <- 7 }(); fmt.Println(<-c) }\\n' > m.go && \
         GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off /usr/local/go/bin/go build -o m . && ./m | grep -qx 7",
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

async fn works(sandbox: &Sandbox, name: &str, script: &str) -> Result<()> {
    let command = Command { timeout_ms: 120_000, ..Command::argv(["sh", "-euc", script]) };
    let output = sandbox.run(command).await?;
    ensure!(output.success(), "{name}: {:?}\n{}", output.exit(), output.text());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_programs_work_behind_the_walls() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, with_programs(config(rig::DEBIAN))?)?;
    let made = raw.get_or_create(&wanted("pb-work")).await?;
    ensure!(made.sandbox.protection().await?.open().count() == 0);
    for (program, script) in WORK {
        if !["/usr/bin", "/usr/local/bin", ""].iter().any(|place| Path::new(place).join(program).exists()) {
            println!("left out: {program} isn't installed");
            continue;
        }
        works(&made.sandbox, program, script).await?;
    }
    Ok(())
}

/// Packages bring set-id programs, users and start scripts, none of which the filter may be in the way of.
const PACKAGE: &str = r#"
umask 022
mkdir -p d/DEBIAN d/opt/hello && printf '#!/bin/sh\necho 7\n' > d/opt/hello/hello && chmod 755 d/opt/hello/hello
printf 'Package: hello-podbay\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n' > d/DEBIAN/control
printf '#!/bin/sh\nset -e\nchmod 4755 /opt/hello/hello\nuseradd --system hello-podbay\n' > d/DEBIAN/postinst
chmod 755 d/DEBIAN/postinst && dpkg-deb --build d hello.deb >/dev/null
"#;

#[tokio::test(flavor = "multi_thread")]
async fn packages_are_installed_in_a_root_pod() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let root = Config {
        run_as_user: Some(0),
        run_as_group: Some(0),
        fs_group: None,
        run_as_non_root: false,
        // What dpkg needs of root, and Podbay's pods haven't got by themselves.
        pod_template_overrides: json!({"spec": {"containers": [{"name": "sandbox", "securityContext": {
            "capabilities": {"add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID"]},
        }}]}}),
        ..config(rig::DEBIAN)
    };
    let raw = provider(&namespace, with_programs(root)?)?;
    let made = raw.get_or_create(&wanted("pb-apt")).await?;
    works(&made.sandbox, "dpkg-deb", PACKAGE).await?;
    let install = "mkdir -p /var/lib/apt/lists/partial /var/cache/apt/archives/partial; \
                   apt-get -o APT::Sandbox::User=root -y install $PWD/hello.deb >log 2>&1 || { cat log; exit 1; }; \
                   [ -u /opt/hello/hello ] && grep -q hello-podbay /etc/passwd && /opt/hello/hello | grep -qx 7";
    works(&made.sandbox, "apt-get", install).await
}
