//! Broken connections and killed processes: nothing is lost, nothing happens twice.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use podbay_client::files::{Delete, Download, Mkdir, Read, Write};
use podbay_client::{ByteStream, Channel, Command, Error, Event, ExecId, Opening, Sandbox, State, UnixChannel};
use support::{Daemon, alive, eventually};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A channel whose connections break after a random number of bytes in either direction.
#[derive(Debug, Clone)]
struct Fragile {
    socket: PathBuf,
    bytes: std::ops::Range<u32>,
    cuts: Arc<AtomicU32>,
}

impl Channel for Fragile {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let stream = UnixChannel::new(&self.socket).open().await?;
            let left = i64::from(rand::random_range(self.bytes.clone()));
            Ok(Box::new(Cut { stream, left, cuts: self.cuts.clone() }) as Box<dyn ByteStream>)
        })
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(15)
    }
}

struct Cut {
    stream: Box<dyn ByteStream>,
    left: i64,
    cuts: Arc<AtomicU32>,
}

impl Cut {
    fn spend(&mut self, bytes: usize) -> io::Result<()> {
        let before = self.left;
        self.left -= bytes as i64;
        if self.left > 0 {
            return Ok(());
        }
        if before > 0 {
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

impl AsyncRead for Cut {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.left <= 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => Poll::Ready(self.spend(buffer.filled().len() - before)),
            other => other,
        }
    }
}

impl AsyncWrite for Cut {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.left <= 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        // A part of a frame may arrive before the cut.
        let take = bytes.len().min(self.left as usize);
        match Pin::new(&mut self.stream).poll_write(context, &bytes[..take]) {
            Poll::Ready(Ok(count)) => match self.spend(count) {
                Ok(()) => Poll::Ready(Ok(count)),
                Err(error) => Poll::Ready(Err(error)),
            },
            other => other,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn fragile(daemon: &Daemon, bytes: std::ops::Range<u32>) -> (Sandbox, Arc<AtomicU32>) {
    let cuts = Arc::new(AtomicU32::new(0));
    let sandbox = Sandbox::new(Fragile { socket: daemon.socket(), bytes, cuts: cuts.clone() });
    (sandbox, cuts)
}

#[tokio::test]
async fn five_hundred_cuts_lose_nothing_and_repeat_nothing() {
    let daemon = Daemon::start();
    let (sandbox, cuts) = fragile(&daemon, 400..2_500);
    let mut round = 0;
    while cuts.load(Ordering::Relaxed) < 500 {
        let output = sandbox.run(format!("echo {round} >> ran; seq 1 300; seq 1 50 >&2")).await.unwrap();
        assert!(output.success());
        assert_eq!(output.stdout().len(), 1092, "round {round}");
        assert_eq!(output.stderr().len(), 141, "round {round}");

        // Each of these would fail the second time if it were done twice.
        let path = format!("file-{round}");
        let created = Write { create_only: true, ..Write::new(path.as_str()) };
        assert!(sandbox.write(&created, format!("{round} apples\n")).await.unwrap().created);
        assert_eq!(sandbox.edit(path.as_str(), "apples", "pears and apples").await.unwrap().occurrences, 1);
        let dir = format!("dir-{round}");
        sandbox.mkdir(&Mkdir { exist_ok: false, ..Mkdir::new(dir.as_str()) }).await.unwrap();
        let moved = format!("{dir}/moved");
        sandbox.mv((path.as_str(), moved.as_str())).await.unwrap();
        let (_, content) = sandbox.read(&Read::new(moved.as_str())).await.unwrap();
        assert_eq!(content, format!("{round} pears and apples"));
        sandbox.delete(&Delete::new(dir.as_str())).await.unwrap();

        let mut exec = sandbox.spawn("for i in $(seq 1 200); do echo $i; done").await.unwrap();
        let mut streamed = Vec::new();
        while let Some(event) = exec.next().await.unwrap() {
            if let Event::Output(_, data) = event {
                streamed.extend_from_slice(&data);
            }
        }
        let expected: String = (1..=200).map(|number| format!("{number}\n")).collect();
        assert_eq!(String::from_utf8(streamed).unwrap(), expected);
        round += 1;
    }
    let ran = std::fs::read_to_string(daemon.work().join("ran")).unwrap();
    let expected: String = (0..round).map(|number| format!("{number}\n")).collect();
    assert_eq!(ran, expected, "every command ran once, in order");
    let left = std::fs::read_dir(daemon.work()).unwrap().count();
    assert_eq!(left, 1, "only the list of what ran is left");
}

#[tokio::test]
async fn transfers_survive_cuts_whole() {
    let daemon = Daemon::start();
    let (sandbox, cuts) = fragile(&daemon, 400..3_000_000);
    let local = daemon.dir.path().join("local");
    let content: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&local, &content).unwrap();
    let meter = podbay_client::Meter::new(&|_| {});
    let back = daemon.dir.path().join("back");
    sandbox.write(&Write::new("big"), content.clone()).await.unwrap_err();
    let (patient, patient_cuts) = fragile(&daemon, 5_000_000..40_000_000);
    patient.upload_file(&local, &Write::new("big"), &meter).await.unwrap();
    assert_eq!(std::fs::read(daemon.work().join("big")).unwrap(), content);
    sandbox.download_file(&Download::new("big"), &back, &meter).await.unwrap();
    assert_eq!(std::fs::read(back).unwrap(), content);
    assert!(
        cuts.load(Ordering::Relaxed) + patient_cuts.load(Ordering::Relaxed) >= 3,
        "the download went on several times"
    );
    let names: Vec<_> = std::fs::read_dir(daemon.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["big"], "no half file is left");
}

#[tokio::test]
async fn commands_finish_when_podbayd_is_killed_and_their_output_is_whole() {
    let mut daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let mut execs = Vec::new();
    for number in 0..20 {
        let line = format!("for i in $(seq 1 60); do echo {number}:$i; sleep 0.01; done; echo {number} >> finished");
        execs.push(sandbox.spawn(line).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(150)).await;
    daemon.kill();
    daemon.restart();
    for (number, mut exec) in execs.into_iter().enumerate() {
        let mut text = Vec::new();
        let mut end = None;
        while let Some(event) = exec.next().await.unwrap() {
            match event {
                Event::Output(_, data) => text.extend_from_slice(&data),
                Event::Lost(bytes) => panic!("{bytes} bytes lost"),
                Event::End(info) => end = Some(info),
            }
        }
        let expected: String = (1..=60).map(|line| format!("{number}:{line}\n")).collect();
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert!(matches!(end.unwrap().state, State::Exited(exit) if exit.code == 0));
    }
    let finished = std::fs::read_to_string(daemon.work().join("finished")).unwrap();
    assert_eq!(finished.lines().count(), 20, "each ran once");
}

#[tokio::test]
async fn a_killed_shim_leaves_its_command_lost_and_it_never_runs_again() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let id = ExecId::new("doomed").unwrap();
    let line = "echo ran >> count; echo before; ps -o ppid= $$ > shim; sleep 60";
    sandbox.start_as(id.clone(), line).await.unwrap();
    let shim = daemon.work().join("shim");
    eventually("the command has written its parent", || {
        std::fs::read_to_string(&shim).is_ok_and(|text| text.ends_with('\n'))
    })
    .await;
    let shim: i32 = std::fs::read_to_string(shim).unwrap().trim().parse().unwrap();
    std::process::Command::new("kill").args(["-9", &shim.to_string()]).status().unwrap();
    eventually("the shim is dead", || !alive(shim)).await;
    let info = sandbox.status(&id).await.unwrap();
    assert_eq!(info.state, State::Lost);
    let mut exec = sandbox.attach(&id, 0).await.unwrap();
    assert!(matches!(exec.next().await.unwrap(), Some(Event::Output(_, data)) if data == "before\n"));
    assert!(matches!(exec.next().await.unwrap(), Some(Event::End(info)) if info.state == State::Lost));
    assert_eq!(sandbox.start_as(id, line).await.unwrap().state, State::Lost);
    assert_eq!(std::fs::read_to_string(daemon.work().join("count")).unwrap(), "ran\n");

    // What the shim left has nobody who could list, signal or time it, so it ends as well, and podbayd takes leave of it.
    eventually("only the zygote is left", || children(daemon.pid()).len() == 1).await;
}

fn children(pid: i32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_killed_zygote_is_replaced() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let zygote = children(daemon.pid())[0];
    std::process::Command::new("kill").args(["-9", &zygote.to_string()]).status().unwrap();
    eventually("the zygote is dead", || !alive(zygote)).await;
    assert_eq!(sandbox.run("echo still here").await.unwrap().text(), "still here\n");
    assert_eq!(sandbox.run("echo and again").await.unwrap().text(), "and again\n");
}

/// A channel that tells when it is opened.
#[derive(Debug)]
struct Telling {
    inner: Fragile,
    opened: tokio::sync::mpsc::UnboundedSender<()>,
}

impl Channel for Telling {
    fn open(&self) -> Opening<'_> {
        let _ = self.opened.send(());
        self.inner.open()
    }
}

#[tokio::test]
async fn a_change_is_never_repeated_at_another_podbayd() {
    let mut daemon = Daemon::start();
    let (sender, mut opened) = tokio::sync::mpsc::unbounded_channel();
    // Enough for the hello, but not for the write.
    let inner = Fragile { socket: daemon.socket(), bytes: 2_000..2_001, cuts: Arc::default() };
    let sandbox = Sandbox::new(Telling { inner, opened: sender });
    let write = tokio::spawn(async move { sandbox.write(&Write::new("a"), vec![b'x'; 100_000]).await });
    opened.recv().await.unwrap();
    opened.recv().await.unwrap();
    daemon.kill();
    daemon.restart();
    let error = write.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::SandboxRestarted { .. }), "{error}");
}

#[tokio::test]
async fn ten_callers_start_one_daemon() {
    use tokio::io::AsyncReadExt;
    let dir = tempfile::tempdir().unwrap();
    let mut callers = Vec::new();
    for _ in 0..10 {
        let mut child = tokio::process::Command::new(support::podbayd())
            .args(["connect", "--state"])
            .arg(dir.path().join("state"))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let greeting = async move {
            let mut text = [0; 14];
            child.stdout.as_mut().unwrap().read_exact(&mut text).await.unwrap();
            (child, text)
        };
        callers.push(tokio::spawn(greeting));
    }
    let mut children = Vec::new();
    for caller in callers {
        let (child, text) = caller.await.unwrap();
        assert_eq!(&text, b"podbayd ready\n");
        children.push(child);
    }
    let sandbox = Sandbox::new(UnixChannel::new(dir.path().join("state/podbayd.sock")));
    let welcome = sandbox.hello().await.unwrap();
    let daemons = support::processes_with(&["serve", dir.path().to_str().unwrap()]);
    assert_eq!(daemons.len(), 2, "one podbayd and its zygote: {daemons:?}");
    for mut child in children {
        child.kill().await.unwrap();
    }
    assert_eq!(sandbox.hello().await.unwrap().instance, welcome.instance, "it outlives its callers");
    for pid in daemons {
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    support::kill_below(dir.path());
}

/// `podbayd connect` with a pair of pipes, which it hands over, or with a socket, between which and the daemon it copies.
#[derive(Debug)]
struct Connect {
    state: PathBuf,
    pipes: bool,
}

impl Channel for Connect {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            use tokio::io::AsyncReadExt;
            let mut command = tokio::process::Command::new(support::podbayd());
            command.args(["connect", "--state"]).arg(&self.state);
            let mut stream: Box<dyn ByteStream> = if self.pipes {
                command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
                let mut child = command.spawn()?;
                let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
                tokio::spawn(async move { child.wait().await });
                Box::new(tokio::io::join(stdout, stdin))
            } else {
                let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
                command
                    .stdin(std::os::fd::OwnedFd::from(theirs.try_clone()?))
                    .stdout(std::os::fd::OwnedFd::from(theirs));
                let mut child = command.spawn()?;
                tokio::spawn(async move { child.wait().await });
                ours.set_nonblocking(true)?;
                Box::new(tokio::net::UnixStream::from_std(ours)?)
            };
            stream.read_exact(&mut [0; 14]).await?;
            Ok(stream)
        })
    }
}

#[tokio::test]
async fn connect_carries_the_protocol_on_pipes_and_on_a_socket() {
    for pipes in [true, false] {
        let daemon = Daemon::start();
        let sandbox = Sandbox::new(Connect { state: daemon.state(), pipes });
        assert_eq!(sandbox.run("seq 1 100000 | tail -1").await.unwrap().text(), "100000\n");
        sandbox.write(&Write::new("up"), vec![7; 5_000_000]).await.unwrap();
        assert_eq!(sandbox.download(&Download::new("up")).await.unwrap().len(), 5_000_000);
        drop(sandbox);
        let state = daemon.state();
        let ended = || support::processes_with(&["connect", state.to_str().unwrap()]).is_empty();
        support::eventually("connect ends with its client", ended).await;
    }
}

/// A channel whose connections end when told to, and that has little patience.
#[derive(Debug, Clone)]
struct Severable(PathBuf, Arc<std::sync::Mutex<Vec<tokio::task::JoinHandle<()>>>>);

impl Severable {
    fn sever(&self) {
        self.1.lock().unwrap().drain(..).for_each(|open| open.abort());
    }
}

impl Channel for Severable {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let mut inner = UnixChannel::new(&self.0).open().await?;
            let (ours, mut theirs) = tokio::io::duplex(64 << 10);
            let open = tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut inner, &mut theirs).await;
            });
            self.1.lock().unwrap().push(open);
            Ok(Box::new(ours) as Box<dyn ByteStream>)
        })
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Time in which a command simply ran was once counted as time of trying to connect: whoever lost the connection after
/// half a minute was told that the sandbox is unreachable, and the command was killed.
#[tokio::test]
async fn a_connection_may_break_however_long_a_command_has_run() {
    let daemon = Daemon::start();
    let channel = Severable(daemon.socket(), Arc::default());
    let sandbox = Sandbox::new(channel.clone());
    let cuts = tokio::spawn(async move {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            channel.sever();
        }
    });
    let mut exec = sandbox.spawn("sleep 2; echo streamed").await.unwrap();
    let (output, event) = tokio::join!(sandbox.run("echo x >> ran; sleep 2; echo done"), exec.next());
    cuts.await.unwrap();
    assert_eq!(output.unwrap().text(), "done\n");
    assert!(matches!(event.unwrap(), Some(Event::Output(_, data)) if data == "streamed\n"));
    assert_eq!(std::fs::read_to_string(daemon.work().join("ran")).unwrap(), "x\n");
}

#[tokio::test]
async fn nothing_answers_soon_when_the_sandbox_is_gone() {
    let mut daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    sandbox.hello().await.unwrap();
    daemon.kill();
    let begun = std::time::Instant::now();
    let error = sandbox.run(Command::shell("true")).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}
