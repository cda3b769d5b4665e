//! Whoever reaches the port gets what the API gives, and can neither end podbayd nor keep others from it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{FORM, Runtime, answer, form_head};

/// Its own directory would be a way to forge results, and to become podbayd.
#[test]
fn podbayds_own_files_are_out_of_reach() {
    for whole_root in [false, true] {
        // The base directory contains the state directory.
        let dir = tempfile::tempdir().unwrap();
        let place = std::fs::canonicalize(dir.path()).unwrap();
        let base = if whole_root { "/" } else { place.to_str().unwrap() };
        let mut runtime = Runtime::start_in(dir, &[("SANDBOX_BASE_DIR", base)]);
        let below = |path: &str| place.join(path).strip_prefix(base).unwrap().to_str().unwrap().to_owned();
        let state = below("state");
        symlink(place.join("state"), place.join("link")).unwrap();
        let mut paths = vec![state.clone(), format!("x/../{state}/exec")];
        paths.extend(["state/podbayd.lock", "state/exec", "link/podbayd.lock"].map(below));
        if whole_root {
            paths.extend(
                ["proc/self/environ", "proc/self/mem", "proc/self/exe", "dev/shm/x", "sys/kernel/x"].map(str::to_owned),
            );
        }
        for path in paths {
            for kind in ["download", "list", "exists"] {
                assert_eq!(runtime.get(&format!("/{kind}/{path}")).status, 403, "{kind} {path}");
            }
            assert_eq!(runtime.upload(&path, b"evil").status, 403, "{path}");
            assert_eq!(runtime.upload(&format!("{path}/new"), b"evil").status, 403, "{path}");
        }
        let parent = std::path::Path::new(&state).parent().unwrap().to_str().unwrap().to_owned();
        let listed = runtime.get(&format!("/list/{parent}"));
        assert!(!listed.text().contains("\"state\""), "{}", listed.text());
        runtime.is_well();
    }
}

/// A link that changes between the check and the opening.
#[test]
fn a_link_that_changes_meanwhile_leads_nowhere_else() {
    let runtime = Runtime::start();
    let (base, secret) = (runtime.base(), runtime.dir.path().join("secret"));
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("f"), "secret").unwrap();
    std::fs::create_dir(base.join("d")).unwrap();
    std::fs::write(base.join("d/f"), "inside").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for target in [&base.join("d"), &secret] {
                    let _ = std::fs::remove_file(base.join("new"));
                    symlink(target, base.join("new")).unwrap();
                    std::fs::rename(base.join("new"), base.join("swap")).unwrap();
                }
            }
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            let answer = runtime.get("/download/swap/f");
            assert!(answer.body != b"secret", "{}", answer.head);
            runtime.upload("swap/up", b"x");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(!secret.join("up").exists());
}

#[test]
fn large_requests_take_no_memory() {
    let mut runtime = Runtime::start();
    let large = json!({"command": "x".repeat(8 << 20)});
    assert_eq!(runtime.execute(&large).status, 413);
    let many = json!({"command": "a ".repeat(400_000)});
    assert_eq!(runtime.execute(&many).json()["exit_code"], 1);
    let nested = format!("{{\"command\": {}", "[".repeat(1 << 19));
    let json = ("Content-Type", "application/json");
    assert_eq!(runtime.send("POST /execute HTTP/1.1", &[json], nested.as_bytes()).status, 422);
    // A gigabyte that nobody has: it is announced, a part is sent, and it goes nowhere.
    for kind in [FORM, json, ("Content-Type", "text/plain")] {
        for path in ["/upload", "/execute"] {
            let mut stream = runtime.connect();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n{}: {}\r\n\r\n",
                kind.0, kind.1
            );
            stream.write_all(head.as_bytes()).unwrap();
            let _ = stream.write_all(&vec![b'x'; 100 << 20]);
        }
    }
    // A form whose file never begins, and one that never ends.
    let preamble = vec![b'x'; 20 << 20];
    assert_eq!(runtime.send("POST /upload HTTP/1.1", &[FORM], &preamble).status, 400);
    let headers = [&b"--b\r\nX: "[..], &preamble].concat();
    assert_eq!(runtime.send("POST /upload HTTP/1.1", &[FORM], &headers).status, 400);
    runtime.is_well();
    assert!(runtime.peak_memory() < 60 << 20, "podbayd took {} bytes", runtime.peak_memory());
}

#[test]
fn odd_forms_write_nothing() {
    let mut runtime = Runtime::start();
    let file = form_head("evil");
    let twice = format!("{file}1\r\n--b\r\n{}", &form_head("evil2")[5..]);
    for (kind, body, status) in [
        (FORM.1, String::new(), 400),
        (FORM.1, "--b--\r\n".into(), 422),
        (FORM.1, file.clone(), 400),
        (FORM.1, format!("{file}x\r\n--b"), 400),
        (FORM.1, format!("{file}x\r\n--b-"), 400),
        (FORM.1, format!("{file}x\n--b--\n"), 400),
        (FORM.1, format!("{twice}2\r\n--b--\r\n"), 400),
        (FORM.1, "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b--\r\n".into(), 422),
        (
            FORM.1,
            "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"evil\"\r\n\r\nx\r\n--b--\r\n".into(),
            422,
        ),
        (FORM.1, "--b\r\n\r\nx\r\n--b--\r\n".into(), 422),
        ("multipart/form-data", format!("{file}x\r\n--b--\r\n"), 400),
        ("multipart/mixed; boundary=b", format!("{file}x\r\n--b--\r\n"), 422),
        ("application/x-www-form-urlencoded", "file=x".into(), 422),
    ] {
        let answer = runtime.send("POST /upload HTTP/1.1", &[("Content-Type", kind)], body.as_bytes());
        assert_eq!(answer.status, status, "{kind} {body:?}: {}", answer.text());
    }
    assert_eq!(std::fs::read_dir(runtime.base()).unwrap().count(), 0);
    runtime.is_well();
}

/// Each with a 4xx or a closed connection. What two readers would understand differently isn't run.
#[test]
fn what_is_no_request_is_refused() {
    let mut runtime = Runtime::start();
    let command = r#"{"command": "touch ran"}"#;
    let execute = "POST /execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    let length = command.len();
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(10_000));
    let lengths = |one: usize, other: usize| {
        format!("{execute}Content-Length: {one}\r\nContent-Length: {other}\r\n\r\n{command}")
    };
    let (shorter, longer) = (lengths(length, 2), lengths(2, length));
    let chunked = format!("{execute}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{command}\r\n");
    let endless = format!("{chunked}ffffffffffffffff\r\n");
    let too_large = format!("{chunked}10000000000000000\r\n");
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET \xff HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        long.as_bytes(),
        many.as_bytes(),
        shorter.as_bytes(),
        longer.as_bytes(),
        endless.as_bytes(),
        too_large.as_bytes(),
    ] {
        let mut stream = runtime.connect();
        // Whoever is refused early may be cut off while it still sends.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let closed = stream.read_to_end(&mut answer);
        let told = (String::from_utf8_lossy(&answer), String::from_utf8_lossy(&bytes[..bytes.len().min(80)]));
        let is_open = closed.is_err_and(|error| error.kind() != std::io::ErrorKind::ConnectionReset);
        assert!(!is_open, "the connection stays open: {told:?}");
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{told:?}");
    }
    runtime.is_well();
    assert!(!runtime.base().join("ran").exists());
    // The same command runs if it is sent as it should be.
    let content_length = format!("{execute}Connection: close\r\nContent-Length: {length}\r\n\r\n{command}");
    let mut stream = runtime.connect();
    stream.write_all(content_length.as_bytes()).unwrap();
    assert_eq!(answer(&mut stream).status, 200);
    assert!(runtime.base().join("ran").exists());
    // Proxies name the host as well.
    assert_eq!(runtime.send("GET http://other/ HTTP/1.1", &[], b"").status, 200);
}

/// Neither those who say nothing nor those who never finish keep anybody out for long, and podbayd's own clients not at all.
#[tokio::test]
async fn slow_clients_are_sent_away() {
    // They are served in turns of 64, ten seconds each.
    let count = if std::env::var_os("PODBAY_SOAK").is_some() { 300 } else { 100 };
    let runtime = Runtime::start();
    let silent: Vec<TcpStream> = (0..count)
        .map(|number| {
            let mut stream = runtime.connect();
            let _ = stream.write_all(if number % 2 == 0 { b"" } else { b"GET / HTTP/1.1\r\nX: " });
            stream
        })
        .collect();
    let begun = Instant::now();
    let sandbox = runtime.sandbox();
    assert_eq!(sandbox.run("echo own clients").await.unwrap().text(), "own clients\n");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(runtime.get("/").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(80), "{:?}", begun.elapsed());
    drop(silent);
}

/// Threads that wait for a slow reader or writer would be missing for everybody else: there are 32.
#[tokio::test]
async fn whoever_takes_or_sends_nothing_holds_no_thread() {
    let runtime = Runtime::start();
    std::fs::write(runtime.base().join("large"), vec![7; 50 << 20]).unwrap();
    let mut stuck = Vec::new();
    for number in 0..60 {
        let mut stream = runtime.connect();
        match number % 3 {
            0 => stream.write_all(b"GET /download/large HTTP/1.1\r\nHost: x\r\n\r\n").unwrap(),
            1 => {
                let command = r#"{"command": "head -c 20000000 /dev/zero"}"#;
                let head = "POST /execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
                stream
                    .write_all(format!("{head}Content-Length: {}\r\n\r\n{command}", command.len()).as_bytes())
                    .unwrap();
            }
            _ => {
                let head = "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n";
                stream
                    .write_all(format!("{head}{}: {}\r\n\r\n{}xx", FORM.0, FORM.1, form_head("up")).as_bytes())
                    .unwrap();
            }
        }
        stuck.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let begun = Instant::now();
    let sandbox = runtime.sandbox();
    for number in 0..5 {
        let path = format!("own-{number}");
        sandbox.write(&podbay_client::files::Write::new(path.as_str()), vec![7; 2 << 20]).await.unwrap();
        let read = sandbox.download(&podbay_client::files::Download::new(path.as_str())).await.unwrap();
        assert_eq!(read.len(), 2 << 20);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(runtime.peak_memory() < 120 << 20, "podbayd took {} bytes", runtime.peak_memory());
    // One of them goes on: nothing of its answer is lost.
    let mut late = stuck.swap_remove(0);
    late.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut all = vec![0; 50 << 20];
    late.read_exact(&mut all).unwrap();
    assert!(all.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn connections_come_and_go_by_the_thousand() {
    let mut runtime = Runtime::start();
    for _ in 0..3_000 {
        let mut stream = runtime.connect();
        let _ = stream.write_all(b"POST /execute HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
    }
    runtime.is_well();
    // One connection serves many requests.
    let mut stream = runtime.connect();
    for _ in 0..500 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 501);
    runtime.is_well();
}

/// Whoever leaves gives up the answer, not the command: the stock runtime finishes it too.
#[test]
fn a_command_outlives_its_caller() {
    let runtime = Runtime::start();
    let command = r#"{"command": "sh -c 'sleep 1; echo done > done'"}"#;
    let head = "POST /execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    let mut stream = runtime.connect();
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{command}", command.len()).as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(stream);
    let begun = Instant::now();
    while std::fs::read_to_string(runtime.base().join("done")).unwrap_or_default() != "done\n" {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Without being asked, podbayd opens no port.
#[test]
fn it_is_off_unless_asked_for() {
    let runtime = Runtime::start();
    let mut stream = runtime.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(answer(&mut stream).status, 200);
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_podbayd"))
        .args(["serve", "--state"])
        .arg(dir.path().join("state"))
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !dir.path().join("state/podbayd.sock").exists() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", child.id()))
        .unwrap()
        .filter_map(|entry| {
            std::fs::read_link(entry.ok()?.path()).ok()?.to_str()?.strip_prefix("socket:[").map(str::to_owned)
        })
        .collect();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let sockets = std::fs::read_to_string(table).unwrap_or_default();
        let open = inodes.iter().find(|inode| sockets.contains(&format!(" {} ", inode.trim_end_matches(']'))));
        assert_eq!(open, None, "podbayd listens");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
