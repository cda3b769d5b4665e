//! The effect of each option.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use podbay_client::provider::{Provider, Wanted};
use podbay_local::{JailLimits, Local, Network, Options, parse_mount};

use crate::harness::{Case, World, make, run};

pub(crate) const CASES: &[Case] = &[
    ("a workspace of the machine is kept", workspace),
    ("a temporary workspace is gone", temporary),
    ("mounts are read-only or read-write", mounts),
    ("there is no network unless asked for", network),
    ("the environment is ours and the caller's", environment),
    ("limits hold, and it is said by what", limits),
    ("what can't be confined as asked is refused", refused),
];

/// Runs one command in a sandbox of its own, and returns exit code and output.
async fn once(local: &Local, line: &str) -> (Option<i32>, String) {
    let made = make(local, &Wanted::default()).await;
    let output = made.sandbox.run(line).await.unwrap();
    assert!(local.delete(&made.id).await.unwrap());
    (output.code(), output.text().into_owned())
}

fn workspace(world: &World) {
    let directory = world.directory("work");
    fs::write(directory.join("in"), "from outside\n").unwrap();
    let local = world.local_with(Options { workspace: Some(directory.clone()), ..Options::default() });
    run(async {
        assert_eq!(once(&local, "cat in && echo from inside > out").await, (Some(0), "from outside\n".to_owned()));
        assert_eq!(fs::read_to_string(directory.join("out")).unwrap(), "from inside\n");
        assert_eq!(once(&local, "cat out").await.1, "from inside\n", "the next one has it too");
    });
}

fn temporary(world: &World) {
    run(async {
        let local = world.local();
        let (code, text) = once(&local, "pwd; echo x > file; ls").await;
        let (place, listed) = text.split_once('\n').unwrap();
        assert_eq!((code, listed), (Some(0), "file\n"));
        match world.is_landlock() {
            false => assert_eq!(place, "/workspace"),
            true => {
                assert!(place.starts_with(world.scratch.to_str().unwrap()) && !fs::exists(place).unwrap(), "{place}")
            }
        }
        assert_eq!(once(&local, "ls").await, (Some(0), String::new()));
    });
}

fn mounts(world: &World) {
    let (kept, shared) = (world.directory("kept"), world.directory("shared"));
    fs::write(kept.join("data"), "data\n").unwrap();
    let elsewhere = vec![
        parse_mount(&format!("{}:/data", kept.display())).unwrap(),
        parse_mount(&format!("{}:/shared:rw", shared.display())).unwrap(),
    ];
    let in_place =
        vec![parse_mount(kept.to_str().unwrap()).unwrap(), parse_mount(&format!("{}:rw", shared.display())).unwrap()];
    let (data, into) = match world.is_landlock() {
        true => (kept.to_str().unwrap(), shared.to_str().unwrap()),
        false => ("/data", "/shared"),
    };
    let mounts = if world.is_landlock() { in_place } else { elsewhere.clone() };
    let local = world.local_with(Options { mounts, ..Options::default() });
    if world.root && world.is_landlock() {
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        fs::set_permissions(kept.join("data"), fs::Permissions::from_mode(0o666)).unwrap();
    }
    run(async {
        let line = format!("cat {data}/data && echo new > {into}/new && ! echo x > {data}/data");
        let (code, text) = once(&local, &line).await;
        assert_eq!(code, Some(0), "{text}");
        assert!(text.starts_with("data\n"), "{text}");
    });
    assert_eq!(fs::read_to_string(kept.join("data")).unwrap(), "data\n");
    assert_eq!(fs::read_to_string(shared.join("new")).unwrap(), "new\n");
    if world.is_landlock() {
        let moved = world.local_with(Options { mounts: elsewhere, ..Options::default() });
        let error = run(async { moved.get_or_create(&Wanted::default()).await.map(|_| ()) }).unwrap_err().to_string();
        assert!(error.contains("/data") && error.contains("without namespaces, a mount keeps its path"), "{error}");
    }
}

fn network(world: &World) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let line = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{}' 2>/dev/null && echo yes || echo no", address.port());
    run(async {
        assert_eq!(once(&world.local(), &line).await.1, "no\n");
        let open = world.local_with(Options { network: Network::Host, ..Options::default() });
        assert_eq!(once(&open, &line).await.1, "yes\n", "the check itself works");
    });
}

fn environment(world: &World) {
    let env = [("GREETING".to_owned(), "good day".to_owned()), ("LANG".to_owned(), "de_DE.UTF-8".to_owned())].into();
    let local = world.local_with(Options { env, ..Options::default() });
    run(async {
        let made = make(&local, &Wanted::default()).await;
        let line =
            "echo $GREETING $LANG ${PODBAY_HOME:-nothing}; [ $HOME = $PWD ] && [ -w ${TMPDIR:-/tmp} ] || echo bad";
        let output = made.sandbox.run(line).await.unwrap();
        assert_eq!(output.text(), "good day de_DE.UTF-8 nothing\n");
        let mut command = podbay_client::Command::from(line);
        command.env.insert("GREETING".to_owned(), "hello".into());
        assert_eq!(made.sandbox.run(command).await.unwrap().text(), "hello de_DE.UTF-8 nothing\n");
        // Also in another process that starts a command later.
        let found = world.local().reconnect(&made.id).await.unwrap();
        assert_eq!(found.sandbox.run("echo $GREETING").await.unwrap().text(), "good day\n");
        local.delete(&made.id).await.unwrap();
    });
}

fn limits(world: &World) {
    let asked = JailLimits {
        memory: Some(64 << 20),
        cpu: Some(0.5),
        processes: Some(40),
        disk: Some(8 << 20),
        descriptors: Some(64),
    };
    let local = world.local_with(Options { limits: asked, ..Options::default() });
    run(async {
        let made = make(&local, &Wanted { id: Some(world.id("limits")), ..Wanted::default() }).await;
        let told = local.describe(&made.id).await.unwrap();
        let mut names: Vec<&str> = told.limits.iter().map(|limit| limit.limit.as_str()).collect();
        names.sort();
        assert_eq!(names, ["cpu", "descriptors", "disk", "memory", "processes"]);
        let by = |name: &str| told.limits.iter().find(|limit| limit.limit == name).unwrap().by.clone();
        let holds = |name: &str| by(name).is_some();

        // podbayd's files are on the same disk, so it is freed before anything is printed.
        let line = "head -c 20000000 /dev/zero > big 2>/dev/null; size=$(wc -c < big); rm big; echo $size";
        let output = made.sandbox.run(line).await.unwrap();
        let size: u64 = output.text().lines().last().unwrap_or_default().parse().unwrap_or(u64::MAX);
        assert!(holds("disk") && size <= 8 << 20, "{size} by {:?}: {:?}", by("disk"), output.exit());

        let output = made.sandbox.run("ulimit -n").await.unwrap();
        assert_eq!(output.text(), "64\n");

        assert!(holds("processes"));
        let line = r#"python3 -c '
import subprocess
started = []
try:
    for _ in range(100):
        started.append(subprocess.Popen(["sleep", "5"]))
except OSError:
    pass
print(len(started))'"#;
        let output = made.sandbox.run(line).await.unwrap();
        let started: u32 = output.text().trim().parse().unwrap_or_else(|_| panic!("{}", output.text()));
        // There, the ordinary user's other processes are counted too, and may have ended since.
        let most = if world.is_landlock() && !world.root { 99 } else { 40 };
        assert!((10..=most).contains(&started), "{started} by {:?}", by("processes"));
        made.sandbox.kill(&output.info.id).await.unwrap();

        if holds("memory") {
            let hog = "python3 -c 'x = bytearray(200 << 20); print(len(x))'";
            let output = made.sandbox.run(hog).await.unwrap();
            assert!(!output.success(), "{:?} by {:?}: {}", output.exit(), by("memory"), output.text());
        } else {
            assert!(!world.root, "root can have cgroups here");
            let note = told.limits.iter().find(|limit| limit.limit == "memory").unwrap().note.clone();
            assert!(note.is_some_and(|note| note.contains("cgroup")));
        }
        assert!(made.sandbox.run("echo alive").await.unwrap().success(), "the sandbox itself is well");
        local.delete(&made.id).await.unwrap();
    });
}

fn refused(world: &World) {
    run(async {
        for (options, word) in [
            (Options { workspace: Some("/nonexistent".into()), ..Options::default() }, "/nonexistent"),
            (Options { mounts: vec![parse_mount("/usr:/proc/x").unwrap()], ..Options::default() }, "/proc"),
            (Options { limits: JailLimits { cpu: Some(-1.0), ..JailLimits::default() }, ..Options::default() }, "cpu"),
        ] {
            let error = world.local_with(options).get_or_create(&Wanted::default()).await.unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let bad = Wanted { id: Some("Not/An/Id".to_owned()), ..Wanted::default() };
        let error = world.local().get_or_create(&bad).await.unwrap_err().to_string();
        assert!(error.contains("Not/An/Id"), "{error}");
    });
}
