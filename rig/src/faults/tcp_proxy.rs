//! A TCP proxy whose connections can be cut, or hang, after a number of bytes.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::Cluster;

/// A TCP proxy in front of the API server. What passes is untouched, TLS included. Ends when dropped.
pub struct TcpProxy {
    port: u16,
    fault: watch::Sender<Fault>,
    counts: Arc<Counts>,
    _connections: JoinSet<()>,
}

/// What has happened on all connections.
#[derive(Default)]
struct Counts {
    cuts: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

impl Counts {
    fn carried(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

/// Which bytes a fault counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What the client sends.
    ToServer,
    /// What the server sends.
    ToClient,
}

/// What is wrong with connections now. Bytes are counted on each connection from when the fault was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Cut { direction: Direction, after: u64 },
    Freeze { direction: Direction, after: u64 },
}

impl TcpProxy {
    /// Starts a proxy to this cluster's API server. Use [`Access::through`](crate::Access::through) with its port.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        Self::to(cluster.port()).await
    }

    /// Starts a proxy to a port of this machine.
    async fn to(target: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let fault = watch::Sender::new(Fault::None);
        let faults = fault.subscribe();
        let counts = Arc::new(Counts::default());
        let shared = counts.clone();
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (faults, counts) = (faults.clone(), shared.clone());
                open.spawn(async move {
                    // An error here is what the client sees as one: a connection that ends.
                    let _ = carry_both_ways(client, target, faults, counts).await;
                });
                while open.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, fault, counts, _connections: connections })
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections were cut.
    pub fn cuts(&self) -> u64 {
        self.counts.cuts.load(Ordering::Relaxed)
    }

    /// How many bytes all connections together have carried one way.
    pub fn carried(&self, direction: Direction) -> u64 {
        self.counts.carried(direction).load(Ordering::Relaxed)
    }

    /// Resets every connection, new ones too, when it has carried just so many bytes from now on. 0 is at once.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.fault.send_replace(Fault::Cut { direction, after: bytes });
    }

    /// Carries so many bytes more on each connection, then nothing, without closing anything.
    pub fn freeze_after(&self, direction: Direction, bytes: u64) {
        self.fault.send_replace(Fault::Freeze { direction, after: bytes });
    }

    /// Ends the fault. Frozen connections go on where they stopped.
    pub fn mend(&self) {
        self.fault.send_replace(Fault::None);
    }
}

async fn carry_both_ways(
    mut client: TcpStream,
    target: u16,
    faults: watch::Receiver<Fault>,
    counts: Arc<Counts>,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", target)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    let mut up = pin!(carry(from_client, to_server, Direction::ToServer, faults.clone(), &counts));
    let mut down = pin!(carry(from_server, to_client, Direction::ToClient, faults, &counts));
    // One way may come to its clean end while the other goes on; a cut ends both.
    let whole = tokio::select! {
        whole = &mut up => whole? && down.await?,
        whole = &mut down => whole? && up.await?,
    };
    if !whole {
        counts.cuts.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Carries bytes one way. `true` when the source came to its end, `false` when the connection was cut.
async fn carry(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    way: Direction,
    mut faults: watch::Receiver<Fault>,
    counts: &Counts,
) -> std::io::Result<bool> {
    let mut buffer = vec![0; 16 * 1024];
    let mut budget = Budget::of(*faults.borrow_and_update(), way);
    loop {
        if budget.is_cut() {
            return cut(&from, &to).await;
        }
        let count = tokio::select! {
            changed = faults.changed() => match changed {
                Ok(()) => { budget = Budget::of(*faults.borrow_and_update(), way); continue }
                Err(_) => return Ok(false), // the proxy was dropped
            },
            count = from.read(&mut buffer) => count?,
        };
        if count == 0 {
            to.shutdown().await?;
            return Ok(true);
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let pass = budget.take(rest.len());
            to.write_all(&rest[..pass]).await?;
            counts.carried(way).fetch_add(pass as u64, Ordering::Relaxed);
            rest = &rest[pass..];
            if rest.is_empty() {
                break;
            }
            if budget.is_cut() {
                return cut(&from, &to).await;
            }
            // Frozen: until something changes.
            if faults.changed().await.is_err() {
                return Ok(false);
            }
            budget = Budget::of(*faults.borrow_and_update(), way);
        }
    }
}

/// Makes both sockets end by a reset when they are closed. A reset throws away what the kernel hasn't delivered yet, so
/// this waits before: all that was to pass does arrive.
async fn cut(from: &ReadHalf<'_>, to: &WriteHalf<'_>) -> std::io::Result<bool> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while undelivered(to.as_ref())? > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    from.as_ref().set_zero_linger()?;
    to.as_ref().set_zero_linger()?;
    Ok(false)
}

/// How many bytes were written but not yet acknowledged, from the kernel's table of sockets.
fn undelivered(stream: &TcpStream) -> std::io::Result<u64> {
    let ports = (stream.local_addr()?.port(), stream.peer_addr()?.port());
    let ends = format!(" 0100007F:{:04X} 0100007F:{:04X} ", ports.0, ports.1);
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp")?;
    // Fields: number, local, remote, state, then the send and the receive queue as HEX:HEX.
    let queue = table.lines().find(|line| line.contains(&ends)).and_then(|line| {
        let queues = line.split_whitespace().nth(4)?;
        u64::from_str_radix(queues.split_once(':')?.0, 16).ok()
    });
    Ok(queue.unwrap_or(0))
}

/// How many bytes may still pass.
struct Budget {
    left: Option<u64>,
    cuts: bool,
}

impl Budget {
    fn of(fault: Fault, way: Direction) -> Self {
        match fault {
            Fault::Cut { direction, after } if direction == way => Self { left: Some(after), cuts: true },
            Fault::Freeze { direction, after } if direction == way => Self { left: Some(after), cuts: false },
            _ => Self { left: None, cuts: false },
        }
    }

    fn take(&mut self, wanted: usize) -> usize {
        let Some(left) = &mut self.left else { return wanted };
        let pass = wanted.min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= pass as u64;
        pass
    }

    fn is_cut(&self) -> bool {
        self.cuts && self.left == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends 100,000 bytes to whoever connects, then echoes; and a client of it through a proxy.
    async fn connected() -> (TcpProxy, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    stream.write_all(&[7; 100_000]).await?;
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        let proxy = TcpProxy::to(port).await.unwrap();
        let client = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        (proxy, client)
    }

    #[tokio::test]
    async fn a_cut_lets_exactly_the_bytes_before_it_through_and_then_resets() {
        let (proxy, mut before) = connected().await;
        before.read_exact(&mut [0; 100_000]).await.unwrap();
        proxy.cut_after(Direction::ToClient, 61_234);
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        let mut bytes = Vec::new();
        let error = client.read_to_end(&mut bytes).await.unwrap_err();
        assert_eq!((bytes.len(), error.kind()), (61_234, std::io::ErrorKind::ConnectionReset));
        // A connection that was there before counts from the fault on.
        before.write_all(&[1; 70_000]).await.unwrap();
        let mut bytes = Vec::new();
        before.read_to_end(&mut bytes).await.unwrap_err();
        assert_eq!(bytes.len(), 61_234);
        assert_eq!((proxy.cuts(), proxy.carried(Direction::ToClient)), (2, 100_000 + 2 * 61_234));
    }

    #[tokio::test]
    async fn a_cut_at_zero_ends_idle_connections_too() {
        let (proxy, mut client) = connected().await;
        client.read_exact(&mut [0; 100_000]).await.unwrap();
        proxy.cut_after(Direction::ToServer, 0);
        assert!(client.read(&mut [0]).await.is_err());
    }

    #[tokio::test]
    async fn a_frozen_connection_goes_on_where_it_stopped() {
        let (proxy, mut client) = connected().await;
        client.read_exact(&mut [0; 100_000]).await.unwrap();
        proxy.freeze_after(Direction::ToClient, 3);
        client.write_all(b"hello").await.unwrap();
        let mut three = [0; 3];
        client.read_exact(&mut three).await.unwrap();
        let mut rest = [0; 2];
        assert!(tokio::time::timeout(Duration::from_millis(100), client.read_exact(&mut rest)).await.is_err());
        proxy.mend();
        client.read_exact(&mut rest).await.unwrap();
        assert_eq!((&three, &rest), (b"hel", b"lo"));
        client.shutdown().await.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "a clean end stays one");
    }
}
