//! The cable to the API server: it can be cut, or hang, after a number of bytes.

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::Cluster;

/// A TCP proxy in front of the API server. What passes is untouched, TLS included. Ends when dropped.
pub struct Cable {
    port: u16,
    fault: watch::Sender<Fault>,
    _connections: JoinSet<()>,
}

/// Which bytes a fault counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What the client sends.
    ToServer,
    /// What the server sends.
    ToClient,
}

/// What is wrong with the cable now. Bytes are counted on each connection from when the fault was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Cut { direction: Direction, after: u64 },
    Freeze { direction: Direction, after: u64 },
}

impl Cable {
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
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let faults = faults.clone();
                open.spawn(async move {
                    // An error here is what the client sees as one: a connection that ends.
                    let _ = carry_both_ways(client, target, faults).await;
                });
                while open.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, fault, _connections: connections })
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Resets every connection, new ones too, when it has carried so many bytes from now on. 0 is at once.
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

async fn carry_both_ways(client: TcpStream, target: u16, faults: watch::Receiver<Fault>) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", target)).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let mut up = tokio::spawn(carry(from_client, to_server, Direction::ToServer, faults.clone()));
    let mut down = tokio::spawn(carry(from_server, to_client, Direction::ToClient, faults));
    // `Ok(true)`: this way came to its clean end, the other may go on. Else both are over.
    let first = tokio::select! { end = &mut up => end, end = &mut down => end };
    if matches!(first, Ok(Ok(true))) {
        let _ = if up.is_finished() { (&mut down).await } else { (&mut up).await };
    }
    up.abort();
    down.abort();
    Ok(())
}

/// Carries bytes one way. `true` when the source came to its end, `false` when the cable was cut.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Direction,
    mut faults: watch::Receiver<Fault>,
) -> std::io::Result<bool> {
    let mut buffer = vec![0; 16 * 1024];
    let mut budget = Budget::of(*faults.borrow_and_update(), way);
    loop {
        if budget.is_cut() {
            return cut(&from, &to);
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
            rest = &rest[pass..];
            if rest.is_empty() {
                break;
            }
            if budget.is_cut() {
                return cut(&from, &to);
            }
            // Frozen: until something changes.
            if faults.changed().await.is_err() {
                return Ok(false);
            }
            budget = Budget::of(*faults.borrow_and_update(), way);
        }
    }
}

/// Makes both sockets end by a reset when they are closed, nothing in order: as a broken cable does, sooner or later.
fn cut(from: &OwnedReadHalf, to: &OwnedWriteHalf) -> std::io::Result<bool> {
    from.as_ref().set_zero_linger()?;
    to.as_ref().set_zero_linger()?;
    Ok(false)
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
