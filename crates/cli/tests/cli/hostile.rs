//! What comes from a sandbox never acts on the terminal.

use crate::home::{Home, text};

#[test]
fn names_and_lines_are_escaped_for_people_and_unchanged_for_programs() {
    let home = Home::new();
    assert!(home.output(&["create", "--name", "box"]).status.success());
    let script = r#"printf 'needle \033[2J\n' > "$(printf 'evil\033]0;x\007\342\200\256name')""#;
    assert!(home.output(&["exec", "box", "--", "sh", "-c", script]).status.success());
    for words in [&["ls", "box"][..], &["glob", "box", "*"], &["grep", "box", "needle"], &["ps", "box", "--all"]] {
        let output = home.output(words);
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        assert!(!shown.contains(['\x1b', '\x07', '\u{202e}']), "{words:?}: {shown:?}");
    }
    assert!(text(&home.output(&["ls", "box"]).stdout).contains(r"evil\u{1b}]0;x\u{7}\u{202e}name"));
    let json: serde_json::Value = serde_json::from_slice(&home.output(&["--json", "ls", "box"]).stdout).unwrap();
    assert_eq!(json["entries"][0]["path"], "/workspace/evil\x1b]0;x\x07\u{202e}name");
    let missing = home.output(&["read", "box", "no\x1bthing"]);
    assert!(!text(&missing.stderr).contains('\x1b'));
}

#[test]
fn a_link_in_the_sandbox_leads_nowhere_on_this_machine() {
    let home = Home::new();
    let here = tempfile::tempdir().unwrap();
    assert!(home.output(&["create", "--name", "box"]).status.success());
    let script = "mkdir d; ln -s /etc/passwd d/passwd; ln -s ../../../../tmp d/up; echo fine > d/fine";
    assert!(home.output(&["exec", "box", "--", "sh", "-c", script]).status.success());
    let target = here.path().join("d");
    let output = home.output(&["cp", "box:d", target.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("skipped passwd: "), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(target.join("fine")).unwrap(), "fine\n");
    for link in ["passwd", "up"] {
        assert!(std::fs::symlink_metadata(target.join(link)).is_err(), "{link}");
    }
}

/// `cp` made links that were harmless one by one; followed one through another they led out of the target.
#[test]
fn a_chain_of_links_leads_nowhere_on_this_machine() {
    let home = Home::new();
    let here = tempfile::tempdir().unwrap();
    assert!(home.output(&["create", "--name", "box"]).status.success());
    let script = "mkdir -p d/a/b; echo fine > d/a/fine; ln -s ../.. d/a/b/up; ln -s a/b/up/.. d/x; ln -s x/secret d/y; \
                  ln -s . d/flat; ln -s a/fine d/fine";
    assert!(home.output(&["exec", "box", "--", "sh", "-c", script]).status.success());
    std::fs::write(here.path().join("secret"), "secret").unwrap();
    let target = here.path().join("d");
    // The second time the first one's links are there.
    for _ in 0..2 {
        let output = home.output(&["cp", "box:d", target.to_str().unwrap()]);
        assert!(output.status.success() && text(&output.stderr).contains("skipped x: "), "{}", text(&output.stderr));
        assert_eq!(std::fs::read_to_string(target.join("fine")).unwrap(), "fine\n");
        assert!(std::fs::read(target.join("y")).is_err() && std::fs::symlink_metadata(target.join("x")).is_err());
    }
}

#[test]
fn trees_come_back_as_they_went() {
    let home = Home::new();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::create_dir_all(source.join("deep/er")).unwrap();
    std::fs::write(source.join("a b"), "one").unwrap();
    std::fs::write(source.join("deep/er/large"), vec![7; 3 << 20]).unwrap();
    assert!(home.output(&["create", "--name", "box"]).status.success());
    let (from, back) = (source.to_str().unwrap(), here.path().join("back"));
    for words in [["cp", from, "box:/workspace/dir"], ["cp", "box:/workspace/dir", back.to_str().unwrap()]] {
        let output = home.output(&words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        // No bar where there is no terminal.
        assert!(!text(&output.stderr).contains('\r'));
    }
    assert_eq!(std::fs::read(back.join("a b")).unwrap(), b"one");
    assert_eq!(std::fs::read(back.join("deep/er/large")).unwrap(), vec![7; 3 << 20]);
    // With a '/' at the end it goes into the target.
    let output = home.output(&["cp", from, "box:/workspace/into/"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&home.output(&["read", "box", "into/source/a b"]).stdout), "one");
    // A pipe is no terminal: bytes come unchanged.
    let large = home.output(&["read", "box", "dir/deep/er/large"]);
    assert_eq!(large.stdout, vec![7; 3 << 20]);
}

/// The first processes of the sandboxes in a home: podbayd, as the machine sees it.
fn podbayds(home: &Home) -> Vec<i32> {
    let read = |pid: i32, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let field = |pid: i32, name: &str| -> Option<Vec<i32>> {
        let status = text(&read(pid, "status"));
        let line = status.lines().find_map(|line| line.strip_prefix(name))?.to_owned();
        Some(line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let all: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let below_home = |pid: &i32| text(&read(*pid, "cmdline")).contains(home.path().to_str().unwrap());
    let supervisors: Vec<i32> = all.iter().copied().filter(below_home).collect();
    all.into_iter()
        .filter(|pid| field(*pid, "NSpid:").is_some_and(|pids| pids.len() > 1 && pids.last() == Some(&1)))
        .filter(|pid| {
            field(*pid, "PPid:").is_some_and(|parent| parent.iter().any(|parent| supervisors.contains(parent)))
        })
        .collect()
}

/// Whoever could stop podbayd hung `podbay run` forever, time-out or not.
#[test]
fn a_stopped_podbayd_does_not_hold_the_command_line() {
    use std::io::BufRead as _;
    use std::process::Stdio;

    let home = Home::new();
    let mut run = home.podbay(&["run", "--timeout", "5s", "--", "sh", "-c", "echo started; sleep 60"]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    let stopped = podbayds(&home);
    assert_eq!(stopped.len(), 1, "podbayd isn't where this looks for it");
    let pid = stopped[0].to_string();
    assert!(std::process::Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    let begun = std::time::Instant::now();
    let output = run.wait_with_output().unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(49), "{:?}", begun.elapsed());
    assert!(text(&output.stderr).contains("should have ended within"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(125));
}
