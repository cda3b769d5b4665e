//! What keeps commands away from podbayd in a pod, and strangers away from sandboxes.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use podbay_client::provider::Provider;
use podbay_client::{Command, ProtectionKind, Sandbox};
use podbay_k8s::raw::Config;
use serde_json::json;

use crate::pods::rules;
use crate::provider::{config, provider, wanted};

/// Prints what it got hold of, which should be nothing.
const ATTACKS: &str = r#"
import ctypes, os, signal, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def parent(pid):
    return int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1])
def tries(what, act):
    try:
        act()
        print(what)
    except OSError:
        pass
shim = os.getppid(); zygote = parent(shim); podbayd = parent(zygote)
os.kill(shim, 0); os.kill(zygote, 0)
for name, pid in (('podbayd', podbayd), ('PID 1', 1)):
    for number in (0, signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL, signal.SIGCONT):
        tries(f'signal {number} to {name}', lambda: os.kill(pid, number))
    if libc.ptrace(16, pid, None, None) == 0: print('traced', name)
    for file in ('mem', 'environ', 'maps', 'exe', 'fd/0', 'root'):
        tries(f'{file} of {name}', lambda: os.close(os.open(f'/proc/{pid}/{file}', os.O_RDONLY)))
def connects():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect('/run/podbay/podbayd.sock')
    s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0')
    return s.recv(9)
def uses_socket():
    try:
        return connects() != b''
    except ConnectionError:
        return False
if uses_socket(): print('socket')
# An orphan in a session of its own is a command still.
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(0.2)
        os.write(write, b'yes' if uses_socket() else b'no')
    os._exit(0)
if os.read(read, 3) != b'no': print('socket, as an orphan')
"#;

/// What local sandboxes refuse too, whatever containerd's profile says.
const CALLS: &str = r"
for name, number, first in (('io_uring_setup', 425, 8), ('unshare', 272, 0x10000000), ('keyctl', 250, 0), ('bpf', 321, 0)):
    if libc.syscall(number, first, 0, 0) != -1 or ctypes.get_errno() != 1: print(name, ctypes.get_errno())
for family in (40, 17, 38, 21):
    tries(f'socket family {family}', lambda: socket.socket(family, socket.SOCK_STREAM))
";

const DIRECTORY: &str = r"
state = '/run/podbay'
tries('mkfifo', lambda: os.mkfifo(state + '/exec/z'))
tries('mkdir', lambda: os.mkdir(state + '/new'))
for name in os.listdir(state):
    tries('rename ' + name, lambda: os.rename(state + '/' + name, '/tmp/' + name))
    tries('unlink ' + name, lambda: os.unlink(state + '/' + name))
    if os.path.isfile(state + '/' + name):
        tries('write ' + name, lambda: open(state + '/' + name, 'a'))
";

async fn python(sandbox: &Sandbox, program: &str) -> Result<String> {
    let output = sandbox.run(Command::argv(["python3", "-c", program])).await?;
    ensure!(output.success(), "{:?}: {}", output.exit(), output.text());
    Ok(output.text().into_owned())
}

async fn open(sandbox: &Sandbox) -> Result<Vec<ProtectionKind>> {
    Ok(sandbox.protection().await?.missing().map(|protection| protection.what).collect())
}

fn root(image: &str) -> Config {
    Config { run_as_user: Some(0), run_as_group: Some(0), fs_group: None, run_as_non_root: false, ..config(image) }
}

/// The story: a command in a pod could stop, trace or replace podbayd, end PID 1, and start commands through its socket.
#[tokio::test(flavor = "multi_thread")]
async fn podbayd_is_protected_from_commands() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    for (name, config) in [
        ("pb-user", config(rig::DEBIAN)),
        ("pb-nonroot", Config { read_only_root: true, ..config(rig::NONROOT) }),
        ("pb-readonly", Config { read_only_root: true, ..root(rig::DEBIAN) }),
    ] {
        let made = provider(&namespace, config)?.get_or_create(&wanted(name)).await?;
        let said = python(&made.sandbox, &[ATTACKS, CALLS, DIRECTORY].concat()).await?;
        ensure!(said.is_empty(), "{name}: {said}");
        let protection = made.sandbox.protection().await?;
        ensure!(protection.missing().count() == 0, "{name}: {protection:#?}");
        let work = "mkdir a b && echo x > a/f && mv a/f b/g && ln b/g a/h && cat b/g && touch /tmp/x /blobs/x";
        ensure!(made.sandbox.run(work).await?.text() == "x\n", "{name}");
    }
    Ok(())
}

/// Root can create files in `/` and `/run`, as many servers do, so podbayd's directory is left open there, and reported as open.
#[tokio::test(flavor = "multi_thread")]
async fn a_root_pod_works_as_ever_and_tells_what_is_open() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let made = provider(&namespace, root(rig::DEBIAN))?.get_or_create(&wanted("pb-root")).await?;
    let said = python(&made.sandbox, &[ATTACKS, CALLS].concat()).await?;
    ensure!(said.is_empty(), "{said}");
    ensure!(open(&made.sandbox).await? == [ProtectionKind::Directory]);
    let work = "mkdir /data && echo 7 > /run/server.pid && mv /run/server.pid /data/ && cat /data/server.pid";
    ensure!(made.sandbox.run(work).await?.text() == "7\n");
    Ok(())
}

/// The filter can be switched off; podbayd knows its commands all the same. And where privileges may be gained, nothing is
/// put in their way.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_switched_off_is_told() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let unfiltered = Config { command_filter: false, ..config(rig::DEBIAN) };
    let made = provider(&namespace, unfiltered)?.get_or_create(&wanted("pb-unfiltered")).await?;
    let said = python(&made.sandbox, &[ATTACKS, DIRECTORY].concat()).await?;
    ensure!(said.is_empty(), "{said}");
    ensure!(open(&made.sandbox).await? == [ProtectionKind::SystemCalls]);

    let escalation = json!({"spec": {"containers": [
        {"name": "sandbox", "securityContext": {"allowPrivilegeEscalation": true}},
    ]}});
    let weaker = Config { pod_template_overrides: escalation, allow_weaker_security: true, ..config(rig::DEBIAN) };
    let made = provider(&namespace, weaker)?.get_or_create(&wanted("pb-weaker")).await?;
    let status = made.sandbox.run("grep -E '^(NoNewPrivs|Seccomp_filters)' /proc/self/status").await?;
    ensure!(status.text().contains("NoNewPrivs:\t0\n"), "{}", status.text());
    let protection = made.sandbox.protection().await?;
    let memory = protection
        .protections
        .iter()
        .find(|protection| protection.what == ProtectionKind::Domain)
        .context("no such protection")?;
    ensure!(!memory.in_force && memory.detail.contains("allowPrivilegeEscalation"), "{protection:#?}");
    Ok(())
}

/// Without Landlock, or with an older one, pods work, and tell what is open.
#[tokio::test(flavor = "multi_thread")]
async fn pods_on_older_kernels_work_and_tell() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    use ProtectionKind::{Directory, Domain, Signals};
    let kernels: [(&str, &[ProtectionKind]); 4] = [
        ("0", &[Domain, Signals, Directory]),
        ("1", &[Domain, Signals, Directory]),
        ("2", &[Signals]),
        ("5", &[Signals]),
    ];
    for (abi, expected) in kernels {
        let env = [("PODBAY_LANDLOCK_ABI".to_owned(), abi.to_owned())].into();
        let made = provider(&namespace, Config { env, ..config(rig::DEBIAN) })?
            .get_or_create(&wanted(&format!("pb-abi-{abi}")))
            .await?;
        ensure!(open(&made.sandbox).await? == expected, "ABI {abi}: {:#?}", made.sandbox.protection().await?);
        let work = "mkdir a b && echo x > a/f && mv a/f b/g && ln b/g a/h && cat b/g";
        ensure!(made.sandbox.run(work).await?.text() == "x\n", "ABI {abi}");
    }
    Ok(())
}

/// The story: agent-sandbox and others trusted labels, which whoever may create pods can set. Podbay believes a Lease of its
/// own, and the pod only if that Lease names its UID.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_reaches_only_what_podbay_made() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, config(rig::DEBIAN))?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let made = raw.get_or_create(&wanted("pb-own")).await?;
    made.sandbox.run("true").await?;

    // A pod with all the labels of a sandbox, but no Lease behind it.
    let foreign = json!({
        "metadata": {"name": "foreign", "labels": {"app.kubernetes.io/managed-by": "podbay", "podbay.dev/sandbox": "pb-foreign"}},
        "spec": {"containers": [{
            "name": "sandbox", "image": rig::DEBIAN, "imagePullPolicy": "Never", "command": ["sleep", "1000"],
        }], "terminationGracePeriodSeconds": 0},
    });
    let foreign = pods.create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
    for id in ["pb-foreign", "foreign", &format!("{}/foreign", namespace.name())] {
        let found = raw.reconnect(id).await;
        ensure!(found.is_err(), "{id} was reached");
    }

    // A Lease that names another pod, or a pod of the same name that isn't the one that Podbay made.
    let lease = leases.get("pb-own").await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).context("the Lease has no holder")?;
    let (pod, _) = holder.split_once('/').context("the holder has no UID")?;
    let uid = foreign.metadata.uid.context("no UID")?;
    for false_holder in [format!("foreign/{uid}"), format!("{pod}/{uid}")] {
        let patch = json!({"spec": {"holderIdentity": false_holder}});
        leases.patch("pb-own", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        let reached = match raw.reconnect("pb-own").await {
            Ok(found) => found.sandbox.run("hostname").await.map(|output| output.text().into_owned()).ok(),
            Err(_) => None,
        };
        ensure!(reached.is_none(), "{false_holder}: reached {reached:?}");
    }
    Ok(())
}
