//! Colours and the bar, on a terminal and only there.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::home::Home;

/// Both ends of a terminal: ours, and the command's.
fn terminal() -> (File, File) {
    let ours: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (ours.into(), theirs)
}

/// What a command shows whose streams are a terminal.
fn shown(mut command: Command) -> String {
    let (mut ours, theirs) = terminal();
    command.stdout(Stdio::from(theirs.try_clone().unwrap())).stderr(Stdio::from(theirs));
    let mut child = command.env("TERM", "xterm").spawn().unwrap();
    // The command has copies of their end that would keep it open.
    drop(command);
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    // A terminal whose other end is closed is an error, and the end.
    while let Ok(length @ 1..) = ours.read(&mut piece) {
        seen.extend_from_slice(&piece[..length]);
    }
    child.wait().unwrap();
    String::from_utf8_lossy(&seen).into_owned()
}

#[test]
fn colours_are_for_terminals_and_for_those_who_want_them() {
    let home = Home::new();
    let coloured = shown(home.podbay(&["doctor"]));
    assert!(coloured.contains("\x1b[32myes\x1b[0m"), "{coloured:?}");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let mut command = Command::new("env");
        command.arg(format!("{name}={value}")).arg(env!("CARGO_BIN_EXE_podbay")).arg("doctor");
        command.env("PODBAY_HOME", home.path()).stdin(Stdio::null());
        let plain = shown(command);
        assert!(plain.contains("yes  namespaces") && !plain.contains('\x1b'), "{name}: {plain:?}");
    }
    let json = shown(home.podbay(&["--json", "doctor"]));
    assert!(json.starts_with('{') && !json.contains('\x1b'), "{json:?}");
    let failed = shown(home.podbay(&["read", "nobody", "x"]));
    assert!(failed.starts_with("\x1b[1;31mpodbay:\x1b[0m there is no sandbox"), "{failed:?}");
}

#[test]
fn a_bar_shows_how_far_a_copy_is_and_goes_away() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let large = dir.path().join("large");
    // Without content, so that only the transfer takes time: more than a bar's tenth of a second.
    File::create(&large).unwrap().set_len(256 << 20).unwrap();
    assert!(home.output(&["create", "--name", "box"]).status.success());
    let path = large.to_str().unwrap();
    let bar = shown(home.podbay(&["cp", path, "box:large"]));
    assert!(bar.contains("\r[") && bar.contains("-]") && bar.contains("/s"), "{bar:?}");
    assert!(bar.ends_with("\rbox:/workspace/large (1 file, 256.0 MiB)\r\n"), "{bar:?}");
    let json = shown(home.podbay(&["--json", "cp", "box:large", path]));
    assert!(json.starts_with('{') && !json.contains("\r["), "{json:?}");
}
