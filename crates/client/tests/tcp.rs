//! podbayd on TCP: only whoever has a token for this very sandbox is served, and nobody else can keep it busy.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use podbay_client::{ErrorCode, Sandbox, TcpChannel};
use podbay_proto::layout::listen_env;
use podbay_proto::token::{Claims, PrivateKey};
use support::Daemon;

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed([seed; 32])
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims() -> Claims {
    Claims {
        namespace: "agents".into(),
        sandbox: "pb-1".into(),
        pod: "pb-1-x".into(),
        uid: "u-1".into(),
        container: "sandbox".into(),
        expires: now() + 60,
    }
}

fn environment(keys: &[PrivateKey]) -> Vec<(&'static str, String)> {
    let keys: Vec<String> = keys.iter().map(|key| key.public().to_string()).collect();
    vec![
        (listen_env::PUBLIC_KEYS, keys.join(",")),
        (listen_env::NAMESPACE, "agents".into()),
        (listen_env::POD_UID, "u-1".into()),
        (listen_env::CONTAINER, "sandbox".into()),
        (listen_env::ALLOW_LOCAL, "1".into()),
    ]
}

fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn listening(keys: &[PrivateKey]) -> (Daemon, String) {
    let address = free_address();
    (Daemon::start_with_env(&["--listen", &address], environment(keys)), address)
}

async fn refused(address: &str, token: String) -> String {
    let error = Sandbox::new(TcpChannel::new(address, token)).run("true").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Unauthorized), "{error}");
    error.to_string()
}

#[tokio::test]
async fn only_a_token_for_this_sandbox_is_accepted() {
    let (daemon, address) = listening(&[key(1)]);
    let sandbox = Sandbox::new(TcpChannel::new(&address, key(1).sign(&claims())));
    let shown = listen_env::ALL.map(|name| format!("${{{name}-}}")).concat();
    assert_eq!(sandbox.run(format!("echo hidden{shown}").as_str()).await.unwrap().text(), "hidden\n");
    // A large body goes over a connection of its own, which needs a token too.
    let large = vec![7; 3 << 20];
    sandbox.write(&podbay_client::files::Write::new("large"), large.clone()).await.unwrap();
    assert_eq!(sandbox.download(&podbay_client::files::Download::new("large")).await.unwrap().len(), large.len());

    let good = key(1).sign(&claims());
    for (what, token) in [
        ("another sandbox", key(1).sign(&Claims { uid: "u-2".into(), ..claims() })),
        ("another sandbox", key(1).sign(&Claims { container: "sidecar".into(), ..claims() })),
        ("another sandbox", key(1).sign(&Claims { namespace: "other".into(), ..claims() })),
        ("expired", key(1).sign(&Claims { expires: now() - 1, ..claims() })),
        ("more than a day", key(1).sign(&Claims { expires: now() + 90_000, ..claims() })),
        ("a key that", key(2).sign(&claims())),
        ("malformed", good[..good.len() - 10].to_owned()),
        ("too long", "x".repeat(3_000)),
        ("requires a token", String::new()),
    ] {
        let message = refused(&address, token).await;
        assert!(message.contains(what), "{what}: {message}");
    }
    assert_eq!(daemon.sandbox().run("echo by socket").await.unwrap().text(), "by socket\n");
}

#[tokio::test]
async fn two_keys_are_accepted_while_one_is_rotated() {
    let (_daemon, address) = listening(&[key(1), key(2)]);
    for seed in [1, 2] {
        let sandbox = Sandbox::new(TcpChannel::new(&address, key(seed).sign(&claims())));
        assert!(sandbox.run("true").await.unwrap().success());
    }
    refused(&address, key(3).sign(&claims())).await;
}

/// A connection that was opened with a token stayed usable forever.
#[tokio::test]
async fn an_open_connection_ends_with_its_token() {
    let (_daemon, address) = listening(&[key(1)]);
    let sandbox = Sandbox::new(TcpChannel::new(&address, key(1).sign(&Claims { expires: now() + 3, ..claims() })));
    assert!(sandbox.run("true").await.unwrap().success());
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    let error = sandbox.run("true").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Unauthorized), "{error}");
}

/// An upgraded connection.
fn admitted(address: &str, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = "GET /podbay/v1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: podbay\r\n";
    stream.write_all(format!("{head}X-Podbay-Token: {token}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101");
    stream
}

/// With one token, somebody could open connections until podbayd had no descriptors left, and exec stopped working too.
#[tokio::test]
async fn connections_that_stay_silent_are_closed_and_those_that_speak_end_with_their_token() {
    let (daemon, address) = listening(&[key(1)]);
    let token = key(1).sign(&Claims { expires: now() + 4, ..claims() });
    let mut silent = admitted(&address, &token);
    silent.write_all(b"P").unwrap();
    let sandbox = Sandbox::new(TcpChannel::new(&address, token));
    assert!(sandbox.run("true").await.unwrap().success());
    let port = address.rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let established = || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let peer_of_podbayd = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_its = words[1].ends_with(&format!(":{port:04X}")) && words[3] == "01";
            is_its.then(|| words[2].to_owned())
        };
        // The kernel may list a socket twice while others come and go.
        sockets.lines().filter_map(peer_of_podbayd).collect::<BTreeSet<_>>()
    };
    let open = established();
    assert_eq!(open.len(), 2, "{open:#?}");
    let begun = Instant::now();
    while !established().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "these connections stay open: {:#?}", established());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // However many there are, whoever comes by another way is served.
    let token = key(1).sign(&claims());
    let held: Vec<TcpStream> = (0..200).map(|_| admitted(&address, &token)).collect();
    assert!(daemon.sandbox().run("true").await.unwrap().success());
    drop(held);
}

/// A pipe in the place of the file with the keys would have stopped podbayd for good.
#[tokio::test]
async fn nothing_in_the_place_of_the_keys_stops_podbayd() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys");
    std::fs::write(&file, key(1).public().to_string()).unwrap();
    let address = free_address();
    let mut env = environment(&[]);
    env[0] = (listen_env::PUBLIC_KEYS_FILE, file.to_str().unwrap().to_owned());
    let daemon = Daemon::start_with_env(&["--listen", &address], env);
    let sandbox = Sandbox::new(TcpChannel::new(&address, key(1).sign(&claims())));
    assert!(sandbox.run("true").await.unwrap().success());
    let put = |make: &dyn Fn()| {
        std::fs::remove_file(&file).or_else(|_| std::fs::remove_dir(&file)).unwrap();
        make();
    };
    let fifo = || assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    let device = || std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    let directory = || std::fs::create_dir(&file).unwrap();
    for make in [&fifo as &dyn Fn(), &device, &directory] {
        put(make);
        refused(&address, key(1).sign(&Claims { expires: now() + 50, ..claims() })).await;
        assert!(daemon.sandbox().run("true").await.unwrap().success());
    }
    put(&|| std::fs::write(&file, key(1).public().to_string()).unwrap());
    let again = Sandbox::new(TcpChannel::new(&address, key(1).sign(&Claims { expires: now() + 40, ..claims() })));
    assert!(again.run("true").await.unwrap().success());
}

#[test]
fn without_a_key_or_an_identity_it_does_not_listen() {
    let all = environment(&[key(1)]);
    for missing in [listen_env::PUBLIC_KEYS, listen_env::NAMESPACE, listen_env::POD_UID, listen_env::CONTAINER] {
        let env = all.iter().filter(|(name, _)| *name != missing).map(|(name, value)| (name, value));
        let output = std::process::Command::new(support::podbayd())
            .args(["serve", "--state", "/nonexistent/x", "--listen", "127.0.0.1:1"])
            .envs(env)
            .output()
            .unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(missing), "{output:?}");
    }
    // A private key must not be taken for a public one.
    let output = std::process::Command::new(support::podbayd())
        .args(["serve", "--state", "/nonexistent/x", "--listen", "127.0.0.1:1"])
        .envs(all)
        .env(listen_env::PUBLIC_KEYS, key(1).secret_text())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("private key") && !said.contains(&key(1).secret_text()), "{said}");
}

/// In a pod, a podbayd that can't listen still has to serve whoever comes through exec.
#[tokio::test]
async fn what_the_environment_asks_for_may_fail() {
    for (listen, keys) in [("127.0.0.1:1", ""), ("nonsense", "x"), ("192.0.2.1:7777", "valid")] {
        let mut env = environment(&[key(1)]);
        if keys != "valid" {
            env[0].1 = keys.into();
        }
        env.push((listen_env::LISTEN, listen.into()));
        let daemon = Daemon::start_with_env(&[], env);
        assert_eq!(daemon.sandbox().run("echo up").await.unwrap().text(), "up\n", "{listen}");
    }
    let address = free_address();
    let mut env = environment(&[key(1)]);
    env.push((listen_env::LISTEN, address.clone()));
    let _daemon = Daemon::start_with_env(&[], env);
    assert!(Sandbox::new(TcpChannel::new(address, key(1).sign(&claims()))).run("true").await.unwrap().success());
}

/// A command that got hold of a token could connect from inside.
#[tokio::test]
async fn connections_from_the_pod_itself_are_refused() {
    let address = free_address();
    let mut env = environment(&[key(1)]);
    env.retain(|(name, _)| *name != listen_env::ALLOW_LOCAL);
    let _daemon = Daemon::start_with_env(&["--listen", &address], env);
    let message = refused(&address, key(1).sign(&claims())).await;
    assert!(message.contains("its own pod"), "{message}");
}

/// Whoever says nothing, says it slowly or says too much is cut off, and the others are served meanwhile.
#[tokio::test]
async fn strangers_cannot_keep_podbayd_busy() {
    let (_daemon, address) = listening(&[key(1)]);
    let connect = || TcpStream::connect(&address).unwrap();
    let silent: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    let begun = Instant::now();
    let sandbox = Sandbox::new(TcpChannel::new(&address, key(1).sign(&claims())));
    assert!(sandbox.run("true").await.unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());

    let mut endless = connect();
    endless.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut answer = String::new();
    let _ = endless.write_all(&vec![b'x'; 64 << 10]);
    endless.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // It may be reset before the answer is read.
    let _ = endless.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");

    let mut slow = connect();
    slow.write_all(b"GET /podbay/v1 HTTP/1.1\r\n").unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(slow.read(&mut [0; 64]).unwrap_or(0), 0, "it was answered");
    for mut one in silent {
        one.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(one.read(&mut [0; 1]).unwrap_or(0), 0);
    }
    assert!(sandbox.run("true").await.unwrap().success(), "a client was cut off with the strangers");
}

/// Without a token there is no HTTP/2 to attack.
#[tokio::test]
async fn http2_is_not_spoken_to_strangers() {
    let (_daemon, address) = listening(&[key(1)]);
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
}
