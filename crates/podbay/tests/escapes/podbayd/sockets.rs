//! Attacks on podbayd's sockets: orders of commands to it, and floods of connections.

use std::time::{Duration, Instant};

use podbay::{Command, State};

use super::{broken, state_of};
use crate::attack::{Pending, verdict};
use crate::sandbox_denial::{run, works};
use crate::site::Site;

pub(super) fn sockets(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let sandbox = &made.sandbox;
        let text = |error: podbay::Error| error.to_string();
        let waiting = Command { stdin: true, timeout_ms: 0, ..Command::shell("cat > got") };
        let victim = sandbox.start(waiting).await.map_err(text)?;
        let state = state_of(sandbox).await?;
        let loot = site.loot(sandbox, &format!("STATE = {state:?}\n{FIND_SOCKETS}{SOCKETS}")).await;
        let after = sandbox.status(&victim.id).await.map_err(text)?;
        let got = run(sandbox, "cat got").await?.text().into_owned();
        works(sandbox).await?;
        site.end(made).await?;
        let mut loot = loot?;
        if after.state != State::Running {
            loot.push("another command's end".to_owned());
        }
        if !got.is_empty() {
            loot.push("another command's input".to_owned());
        }
        verdict(loot)
    })
}

/// Everything that listens: below podbayd's directory, and whatever else the kernel lists. Local sandboxes have podbayd's own
/// socket outside.
const FIND_SOCKETS: &str = r#"
import stat
found = set()
for directory, names, files in os.walk(STATE):
    found |= {os.path.join(directory, file) for file in files if stat.S_ISSOCK(os.lstat(os.path.join(directory, file)).st_mode)}
try:
    for line in open("/proc/net/unix").read().splitlines()[1:]:
        words = line.split()
        # Those that listen. In landlock mode these are the whole machine's; no socket can be made there.
        if len(words) > 7 and words[3] == "00010000" and "podbay-bait" not in words[7]:
            found.add(words[7].replace("@", "\0", 1) if words[7].startswith("@") else words[7])
except OSError:
    pass
"#;

const SOCKETS: &str = r#"
head = lambda request: struct.pack(">I", len(request)) + request
HTTP = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
ORDERS = [
    head(b'"Status"'), head(b'{"Attach":{"offset":0}}'), head(b'"Watch"'),
    head(b'{"Input":{"offset":0,"close":true,"length":6}}') + b"hello\n",
    head(b'{"Signal":{"signal":9,"target":"all"}}'),
]
def answered(path, order):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(1)
        s.connect(path)
        s.sendall(order)
        try:
            return len(s.recv(4096)) > 0
        except TimeoutError:
            return False
def all_of(suffix):
    for path in found:
        if path.endswith("podbayd.sock"):
            attempt("podbayd's socket" + suffix, lambda: answered(path, HTTP))
        else:
            for order in ORDERS:
                attempt("a control socket" + suffix, lambda: answered(path, order))
all_of("")
# An orphan in a session of its own is a command still.
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(0.2)
        del loot[:]
        all_of(", as an orphan")
        os.write(write, json.dumps(loot).encode())
    os._exit(0)
os.close(write)
said = b""
while piece := os.read(read, 4096):
    said += piece
loot += json.loads(said)
"#;

pub(super) fn flood(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let sandbox = &made.sandbox;
        let text = |error: podbay::Error| error.to_string();
        let endless = |line: &str| Command { timeout_ms: 0, ..Command::shell(line) };
        let victim = sandbox.start(endless("exec sleep 1000")).await.map_err(text)?;
        let state = state_of(sandbox).await?;
        let program = format!("{}\nSTATE = {state:?}\n{FIND_SOCKETS}{FLOOD}", include_str!("../prelude.py"));
        let attacker = Command { timeout_ms: 60_000, ..Command::argv(["python3", "-c", &program, "{}"]) };
        let attacker = sandbox.start(attacker).await.map_err(text)?;
        let until = Instant::now() + Duration::from_secs(20);
        while run(sandbox, "cat flooding").await?.text() != "yes" {
            if Instant::now() > until {
                let log = run(sandbox, format!("cat {}", attacker.log.to_string_lossy()).as_str()).await?;
                return broken(format!("the flood doesn't begin: {}", log.text()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let begun = Instant::now();
        let listed = sandbox.status(&victim.id).await.map_err(text)?;
        let killed = sandbox.kill(&victim.id).await.map_err(text)?;
        works(sandbox).await?;
        let took = begun.elapsed();
        site.end(made).await?;
        match (listed.state == State::Running, killed) {
            (true, 1..) if took < Duration::from_secs(10) => Ok(()),
            other => broken(format!("running, killed: {other:?} after {took:?}")),
        }
    })
}

const FLOOD: &str = r#"
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
def fill():
    for path in found:
        for _ in range(200):
            try:
                s = socket.socket(socket.AF_UNIX)
                s.setblocking(False)
                s.connect(path)
                held.append(s)
            except OSError:
                pass
fill()
open("flooding", "w").write("yes")
end = time.time() + 30
while time.time() < end:
    del held[:-400]
    fill()
    time.sleep(0.05)
"#;
