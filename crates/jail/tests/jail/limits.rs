//! A jail can't use up the machine.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use podbay_jail::{InForce, JailExit, Jailed};

use crate::harness::{Case, World, attempt, finish, skip, start};
use crate::processes::{descendants, lives};
use crate::raw::{self, in_child};

pub(crate) const CASES: &[Case] = &[
    ("a_fork_bomb_stays_in_its_sandbox", fork_bomb),
    ("a_memory_hog_stays_in_its_sandbox", memory_hog),
    ("a_jail_sees_no_cgroup_above_its_own", cgroup_namespace),
    ("a_disk_filler_stays_in_its_sandbox", disk_filler),
    ("a_file_in_a_host_workspace_is_bounded", file_size),
    ("a_processor_hog_stays_in_its_sandbox", processor_hog),
    ("limits_say_what_enforces_them", honest),
];

const MIB: u64 = 1 << 20;

fn by<'j>(jailed: &'j Jailed, limit: &str) -> Option<&'j str> {
    let entry: &InForce = jailed.limits().iter().find(|entry| entry.limit == limit).unwrap();
    entry.by.as_deref()
}

fn fork_bomb(world: &World) {
    let mut jail = world.jail();
    jail.limits.processes = Some(40);
    let (read, write) = rustix::pipe::pipe().unwrap();
    let (mut jailed, said) = start(&jail, &[write.as_fd()], || {
        // All processes fork until none can.
        let end = Instant::now() + Duration::from_millis(500);
        let mut refused = false;
        while Instant::now() < end {
            refused |= raw::fork() == Some(-1);
        }
        if std::process::id() != 1 {
            std::thread::sleep(Duration::from_secs(600));
        }
        rustix::io::write(&write, b"x").unwrap();
        if refused { Ok(()) } else { Err("every fork was granted".into()) }
    });
    rustix::io::read(&read, &mut [0_u8; 1]).unwrap();
    let pid = jailed.pid().as_raw_nonzero().get();
    let all = descendants(pid);
    assert!(all.len() <= 40, "{} processes", all.len());
    // The test's own process isn't affected.
    assert_eq!(in_child(|| 0), 0);
    let exit = jailed.wait().unwrap();
    finish(exit, said);
    jailed.cleanup().unwrap();
    assert!(!all.iter().any(|pid| lives(*pid)), "the bomb outlived its sandbox");
}

fn memory_hog(world: &World) {
    let mut jail = world.jail();
    jail.limits.memory = Some(64 * MIB);
    let (mut jailed, said) = start(&jail, &[], || {
        let status = in_child(|| {
            let mut hoard = Vec::new();
            for _ in 0..64 {
                hoard.push(vec![1_u8; 8 * MIB as usize]);
            }
            std::hint::black_box(&hoard);
            0
        });
        match libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL {
            true => Ok(()),
            false => Err(format!("512 MiB were had: status {status:#x}")),
        }
    });
    if by(&jailed, "memory").is_none() {
        jailed.cleanup().unwrap();
        skip("no memory limit can be had here: there is no cgroup for this user");
    }
    // Files on the tmpfs count too, but can't be killed; its size is limited.
    let exit = jailed.wait().unwrap();
    jailed.cleanup().unwrap();
    finish(exit, said);
}

/// Its first process enters the cgroup while it makes its file system, and only then a namespace whose root that cgroup is.
fn cgroup_namespace(world: &World) {
    let mut jail = world.jail();
    jail.limits.memory = Some(64 * MIB);
    let (read, write) = rustix::pipe::pipe().unwrap();
    let (mut jailed, said) = start(&jail, &[write.as_fd()], || {
        let groups = fs::read("/proc/self/cgroup").map_err(|error| error.to_string())?;
        rustix::io::write(&write, &groups).map(drop).map_err(|error| error.to_string())
    });
    drop(write);
    let mut groups = String::new();
    std::io::Read::read_to_string(&mut File::from(read), &mut groups).unwrap();
    let limited = by(&jailed, "memory").is_some();
    let exit = jailed.wait().unwrap();
    finish(exit, said);
    jailed.cleanup().unwrap();
    if !limited {
        skip("no memory limit can be had here: there is no cgroup for this user");
    }
    // Without a controller's name before it, the line is that of cgroup v2.
    let own = groups
        .lines()
        .find(|line| line.contains(":memory:"))
        .or_else(|| groups.lines().find(|line| line.starts_with("0::")));
    assert_eq!(own.and_then(|line| line.rsplit(':').next()), Some("/"), "{groups}");
}

fn disk_filler(world: &World) {
    let mut jail = world.jail();
    jail.limits.disk = Some(8 * MIB);
    attempt(&jail, || {
        let mut written = 0;
        for place in ["/workspace", "/tmp", "/dev/shm", "/blobs", "/large_tool_results", "/run/podbay"] {
            let mut file = File::create(format!("{place}/fill")).map_err(|error| format!("{place}: {error}"))?;
            while file.write_all(&[1; 65_536]).is_ok() {
                written += 65_536;
                if written > 16 * MIB {
                    return Err(format!("{written} bytes went in"));
                }
            }
        }
        if written < 6 * MIB {
            return Err(format!("the control: only {written} bytes went in"));
        }
        // Very many small files.
        fs::remove_file("/workspace/fill").unwrap();
        let made = (0..200_000).take_while(|n| File::create(format!("/workspace/{n}")).is_ok()).count();
        if made < 200_000 { Ok(()) } else { Err("200,000 files could be made".into()) }
    });
}

fn file_size(world: &World) {
    let mut jail = world.jail();
    jail.workspace = Some(world.directory("work"));
    jail.limits.disk = Some(4 * MIB);
    attempt(&jail, || {
        let status = in_child(|| {
            let mut file = File::create("/workspace/fill").unwrap();
            let mut written = 0;
            while written < 8 * MIB && file.write_all(&[1; 65_536]).is_ok() {
                written += 65_536;
            }
            0
        });
        let size = fs::metadata("/workspace/fill").unwrap().len();
        let signalled = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGXFSZ;
        if signalled && size <= 4 * MIB { Ok(()) } else { Err(format!("status {status:#x}, {size} bytes")) }
    });
}

fn processor_hog(world: &World) {
    let mut jail = world.jail();
    jail.limits.cpu = Some(0.2);
    let (mut jailed, said) = start(&jail, &[], || {
        let end = Instant::now() + Duration::from_millis(1000);
        while Instant::now() < end {
            std::hint::black_box(0);
        }
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let used = Duration::new(used.tv_sec as u64, used.tv_nsec as u32);
        if used < Duration::from_millis(450) {
            Ok(())
        } else {
            Err(format!("used {used:?} of 1 s with 0.2 processors"))
        }
    });
    if by(&jailed, "cpu").is_none() {
        jailed.cleanup().unwrap();
        skip("no processor limit can be had here: there is no cgroup for this user");
    }
    let exit = jailed.wait().unwrap();
    jailed.cleanup().unwrap();
    finish(exit, said);
}

fn honest(world: &World) {
    let mut jail = world.jail();
    jail.limits.memory = Some(64 * MIB);
    jail.limits.cpu = Some(1.0);
    jail.limits.processes = Some(32);
    jail.limits.disk = Some(4 * MIB);
    jail.limits.descriptors = Some(64);
    let (mut jailed, said) = start(&jail, &[], || {
        let files: Vec<_> = (0..100).map_while(|_| File::open("/dev/null").ok()).collect();
        if files.len() < 64 { Ok(()) } else { Err(format!("{} descriptors", files.len())) }
    });
    let report = jailed.limits().to_vec();
    let groups = jailed.cgroup().map(|group| group.directories().to_vec()).unwrap_or_default();
    for entry in &report {
        match (&entry.by, entry.limit.as_str()) {
            (Some(by), "disk") => assert_eq!(by, "tmpfs"),
            (Some(by), "descriptors") => assert_eq!(by, "rlimit"),
            (Some(by), "processes") if groups.is_empty() => assert_eq!(by, "rlimit"),
            (Some(by), _) => assert!(by.starts_with("cgroup v"), "{entry:?}"),
            (None, "memory" | "cpu") => assert!(entry.note.as_ref().is_some_and(|note| note.contains("cgroup"))),
            (None, _) => panic!("{entry:?}"),
        }
    }
    let mut names: Vec<_> = report.iter().map(|entry| entry.limit.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["cpu", "descriptors", "disk", "memory", "processes"]);
    for group in &groups {
        assert!(group.is_dir(), "{}", group.display());
    }
    let exit = jailed.wait().unwrap();
    assert_eq!(jailed.cleanup().unwrap(), exit);
    assert_ne!(exit, JailExit::Signal(9));
    finish(exit, said);
    assert!(groups.iter().all(|group| !group.exists()), "a cgroup stayed: {groups:?}");
}
