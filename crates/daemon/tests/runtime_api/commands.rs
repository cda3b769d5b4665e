//! `/` and `/execute`.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::Runtime;

#[test]
fn it_answers_as_the_stock_runtime_does() {
    let runtime = Runtime::start();
    let health = runtime.get("/");
    assert_eq!(
        (health.status, health.text()),
        (200, r#"{"message":"Sandbox Runtime is active.","status":"ok"}"#.into())
    );
    assert_eq!(health.header("content-type"), Some("application/json"));
    for (line, status, body) in [
        ("GET /nothing HTTP/1.1", 404, r#"{"detail":"Not Found"}"#),
        ("GET /executed HTTP/1.1", 404, r#"{"detail":"Not Found"}"#),
        ("POST / HTTP/1.1", 405, r#"{"detail":"Method Not Allowed"}"#),
        ("GET /execute HTTP/1.1", 405, r#"{"detail":"Method Not Allowed"}"#),
        ("DELETE /download/x HTTP/1.1", 405, r#"{"detail":"Method Not Allowed"}"#),
    ] {
        let answer = runtime.send(line, &[], b"");
        assert_eq!((answer.status, answer.text()), (status, body.into()), "{line}");
    }
    let base = std::fs::canonicalize(runtime.base()).unwrap();
    let here = format!("{}\n", base.display());
    for (command, stdout, stderr, exit_code) in [
        ("echo 'a  b' c", "a  b c\n", "", 0),
        ("echo $HOME | cat > x", "$HOME | cat > x\n", "", 0),
        ("sh -c 'echo out; echo err >&2; exit 3'", "out\n", "err\n", 3),
        ("pwd", &here, "", 0),
        ("sh -c 'kill -9 $$'", "", "", -9),
        ("sh -c 'kill -TERM $$'", "", "", -15),
        (r"printf 'a\377b\n'", "a\u{fffd}b\n", "", 0),
        (r"printf '1\r\n2\r3\n'", "1\n2\n3\n", "", 0),
        ("cat", "", "", 0),
        ("sh -c 'echo ${PODBAYD_RUNTIME_API-unset}'", "unset\n", "", 0),
        (
            "no-such-program x",
            "",
            "Failed to execute command: [Errno 2] No such file or directory: 'no-such-program'",
            1,
        ),
        ("/etc/passwd", "", "Failed to execute command: [Errno 13] Permission denied: '/etc/passwd'", 1),
        ("echo 'a", "", "Failed to execute command: No closing quotation", 1),
        ("", "", "Failed to execute command: the command is empty", 1),
    ] {
        let expected = json!({"stdout": stdout, "stderr": stderr, "exit_code": exit_code, "timed_out": false});
        assert_eq!(runtime.run(command), expected, "{command}");
    }
}

#[test]
fn a_request_of_another_form_is_refused() {
    let runtime = Runtime::start();
    let json = ("Content-Type", "application/json");
    for (headers, body) in [
        (&[json][..], &b""[..]),
        (&[json], b"{"),
        (&[json], b"[]"),
        (&[json], br#"{"command": 5}"#),
        (&[json], br#"{"cmd": "true"}"#),
        (&[json], br#"{"command": "true", "timeout_seconds": 0}"#),
        (&[json], br#"{"command": "true", "timeout_seconds": -3}"#),
        (&[json], br#"{"command": "true", "timeout_seconds": "x"}"#),
        (&[json], b"{\"command\": \"\xff\"}"),
        // What a web page can send without being asked.
        (&[("Content-Type", "text/plain")], br#"{"command": "true"}"#),
        (&[], br#"{"command": "true"}"#),
    ] {
        let answer = runtime.send("POST /execute HTTP/1.1", headers, body);
        assert_eq!(answer.status, 422, "{:?}: {}", String::from_utf8_lossy(body), answer.text());
        assert!(answer.json()["detail"][0]["msg"].is_string(), "{}", answer.text());
    }
    let other = json!({"command": "echo x", "timeout_seconds": null, "unknown": [1]});
    assert_eq!(runtime.execute(&other).json()["stdout"], "x\n");
}

#[test]
fn a_command_that_takes_too_long_ends_with_all_it_started() {
    let runtime = Runtime::start_with(&[("SANDBOX_EXEC_TIMEOUT_SECONDS", "1")]);
    let begun = Instant::now();
    let script = "sh -c 'trap \"\" TERM; sleep 43210 & echo $! > child; echo begun; sleep 43210'";
    for request in [json!({"command": script, "timeout_seconds": 0.5}), json!({"command": script})] {
        let result = runtime.execute(&request).json();
        assert_eq!((&result["timed_out"], &result["exit_code"]), (&true.into(), &1.into()), "{result}");
        assert!(result["stderr"].as_str().unwrap().contains("timed out after"), "{result}");
        assert_eq!(result["stdout"], "");
        let child = std::fs::read_to_string(runtime.base().join("child")).unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{}/fd/0", child.trim())).exists());
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    // A longer limit than the default can be asked for.
    let longer = runtime.execute(&json!({"command": "sh -c 'sleep 1.5; echo done'", "timeout_seconds": 30})).json();
    assert_eq!(longer["stdout"], "done\n");
}

/// In the stock runtime, a server that was started in the background kept its request waiting until the time limit.
#[test]
fn what_runs_in_the_background_holds_nothing_back() {
    let runtime = Runtime::start();
    let begun = Instant::now();
    assert_eq!(runtime.run("sh -c 'sleep 43211 & echo $!; echo done >&2'")["stderr"], "done\n");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(runtime.run("pgrep -x -f 'sleep 43211'")["exit_code"], 0, "it goes on");
}

#[test]
fn large_output_is_complete_and_what_exceeds_the_log_is_marked() {
    let runtime = Runtime::start();
    let result = runtime.run("sh -c 'seq 300000; seq 300000 >&2'");
    let expected: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    assert!(result["stdout"] == expected && result["stderr"] == expected && result["exit_code"] == 0);
    // 100 MiB that take six bytes each in JSON. The log keeps 64 of them.
    let result = runtime.run("head -c 104857600 /dev/zero");
    let stdout = result["stdout"].as_str().unwrap();
    let note = stdout.trim_matches('\0');
    assert_eq!(note, format!("\n[{} bytes of output left out]\n", 36 << 20));
    assert_eq!(stdout.len() - note.len(), 64 << 20);
    assert!(runtime.peak_memory() < 40 << 20, "podbayd took {} bytes", runtime.peak_memory());
}

/// Commands of strangers are recorded and listed like all others.
#[tokio::test]
async fn commands_are_podbayds_own() {
    let runtime = Runtime::start();
    runtime.run("echo recorded");
    let sandbox = runtime.sandbox();
    let all = sandbox.commands(false).await.unwrap();
    let one = all.iter().find(|one| one.id.as_str().starts_with("runtime-")).unwrap();
    assert_eq!(one.command, "echo recorded");
    let log = std::fs::read_to_string(one.log.to_str().unwrap()).unwrap();
    assert_eq!(log, "recorded\n");
    // The same confinement as any other command's.
    let status = "grep -E '^(Seccomp|NoNewPrivs|Seccomp_filters):' /proc/self/status";
    let ours = sandbox.run(status).await.unwrap().text().into_owned();
    assert_eq!(runtime.run(status)["stdout"], ours);
    assert!(ours.contains("Seccomp:\t2"), "{ours}");
}

#[test]
fn many_commands_run_at_once_and_the_rest_wait() {
    let runtime = Runtime::start();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..60)
            .map(|number| {
                scope.spawn({
                    let runtime = &runtime;
                    move || (number, runtime.run(&format!("sh -c 'sleep 0.3; echo {number}'")))
                })
            })
            .collect();
        for thread in threads {
            let (number, result) = thread.join().unwrap();
            assert_eq!(result["stdout"], format!("{number}\n"), "{result}");
        }
    });
}
