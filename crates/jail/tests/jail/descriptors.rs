//! The caller's descriptors, environment and arguments must not get into a jail.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};

use podbay_jail::spawn;

use crate::harness::{Case, World, attempt, attempt_with};
use crate::raw::{call, text};

pub(crate) const CASES: &[Case] = &[
    ("the_callers_descriptors_are_closed", closed),
    ("directories_are_not_kept", directories),
    ("the_callers_directory_is_left", working_directory),
    ("environment_and_arguments_are_gone", environment),
];

/// runc's CVE-2024-21626, a descriptor of a host directory inherited by the container.
fn closed(world: &World) {
    let secret = world.scratch.join("secret");
    fs::write(&secret, "host").unwrap();
    let held = [File::open("/").unwrap(), File::open(&secret).unwrap(), File::open(&world.scratch).unwrap()];
    for file in &held {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap();
    }
    // A very high number too.
    let far = rustix::io::fcntl_dupfd_cloexec(&held[0], 900).unwrap();
    let kept = File::open(&secret).unwrap();
    attempt_with(&world.jail(), &[kept.as_fd()], || {
        let mut open = Vec::new();
        for number in 0..2000 {
            let link = fs::read_link(format!("/proc/self/fd/{number}"));
            let known = call(libc::SYS_fcntl, [number, libc::F_GETFD as u64, 0, 0, 0, 0]).is_ok();
            if known {
                open.push((number as i32, link.unwrap_or_default()));
            }
        }
        for held in held.iter().map(AsRawFd::as_raw_fd).chain([far.as_raw_fd()]) {
            let way = [held as u64, text(c"etc/shadow"), libc::O_RDONLY as u64, 0, 0, 0];
            if call(libc::SYS_openat, way).is_ok() || open.iter().any(|(number, _)| *number == held) {
                return Err(format!("descriptor {held} is open"));
            }
        }
        // The standard descriptors, the kept one, and the harness's pipe.
        let standard = open.iter().filter(|(number, link)| *number < 3 && link.as_os_str() == "/dev/null").count();
        let kept = open.iter().any(|(number, _)| *number == kept.as_raw_fd());
        match standard == 3 && kept && open.len() == 5 {
            true => Ok(()),
            false => Err(format!("{open:?}")),
        }
    });
}

fn directories(world: &World) {
    let directory = File::open("/").unwrap();
    let error = spawn(&world.jail(), &[directory.as_fd()], || 0).unwrap_err().to_string();
    assert!(error.contains("way out of the sandbox"), "{error}");
    let path = rustix::fs::open("/etc/passwd", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let error = spawn(&world.jail(), &[path.as_fd()], || 0).unwrap_err().to_string();
    assert!(error.contains("way out of the sandbox"), "{error}");
    let error = spawn(&world.jail(), &[std::io::stderr().as_fd()], || 0).unwrap_err().to_string();
    assert!(error.contains("/dev/null inside"), "{error}");
}

/// The other half of CVE-2024-21626: a working directory below /proc/self/fd.
fn working_directory(world: &World) {
    fs::write(world.scratch.join("secret"), "host").unwrap();
    let held = File::open(&world.scratch).unwrap();
    std::env::set_current_dir(format!("/proc/self/fd/{}", held.as_raw_fd())).unwrap();
    assert!(File::open("secret").is_ok(), "the control: it is the present directory");
    attempt(&world.jail(), || {
        let here = std::env::current_dir().unwrap();
        let leaks = ["secret", "/proc/self/cwd/secret", "../secret"].into_iter().find(|way| File::open(way).is_ok());
        match (here.as_os_str() == "/workspace", leaks) {
            (true, None) => Ok(()),
            found => Err(format!("{found:?} {here:?}")),
        }
    });
}

fn environment(world: &World) {
    // This process's arguments contain the path of its scratch directory; the environment contains more.
    let canary = world.scratch.to_str().unwrap().to_owned();
    assert!(std::env::args().any(|argument| argument == canary), "the control");
    let path = std::env::var("PATH").unwrap();
    attempt(&world.jail(), || {
        for file in ["/proc/self/cmdline", "/proc/self/environ"] {
            let bytes = fs::read(file).unwrap_or_default();
            if bytes.iter().any(|byte| *byte != 0) {
                return Err(format!("{file}: {}", String::from_utf8_lossy(&bytes)));
            }
        }
        let mut names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
        names.sort();
        if names != ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER"] {
            return Err(format!("the environment has {names:?}"));
        }
        let fixed = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let child =
            std::process::Command::new("/bin/sh").args(["-c", "echo $PATH $HOME $PODBAY_TOKEN"]).output().unwrap();
        match child.stdout == format!("{fixed} /workspace\n").as_bytes() {
            true => Ok(()),
            false => Err(format!("{} (outside: {path})", String::from_utf8_lossy(&child.stdout))),
        }
    });
}
