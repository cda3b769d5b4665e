//! A gigabyte to a sandbox and back, beside a plain copy over a socket to a pod.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use podbay_client::files::{Download, Write};
use podbay_client::{Meter, Sandbox};

use crate::measure::{Samples, Table, rate};
use crate::operations::Way;
use crate::stock_http::StockConnection;

const SIZE: u64 = 1_000_000_000;
const ROUNDS: usize = 3;

/// The stock runtime holds a file in memory as a whole.
const STOCK_SIZE: usize = 64_000_000;

/// Where the plain copy listens.
const PORT: u16 = 9999;

/// The pod's side of the plain copy: `u`, and it keeps what comes in a file; `d`, and it sends that file.
const PLAIN: &str = "
import socket
listener = socket.create_server(('', 9999))
while True:
    connection, _ = listener.accept()
    with connection:
        if connection.recv(1) == b'u':
            with open('plain', 'wb', buffering=0) as file:
                while data := connection.recv(1 << 18):
                    file.write(data)
            connection.sendall(b'.')
        else:
            with open('plain', 'rb', buffering=0) as file:
                while data := file.read(1 << 18):
                    connection.sendall(data)
";

pub async fn measure(ways: &[Way<'_>], stock: &str, by_stock: &Sandbox) {
    let pod = stock.rsplit_once(':').unwrap().0.to_owned();
    let mut connection = StockConnection::open(stock).await;
    connection.upload("plain.py", PLAIN.as_bytes()).await;
    connection.run("sh -c 'python3 plain.py >/dev/null 2>&1 &'").await;
    let dir = tempfile::tempdir().unwrap();
    let (local, back) = (dir.path().join("local"), dir.path().join("back"));
    fill(&local);

    let mut times = vec![Vec::new(); 2 * (ways.len() + 1)];
    let meter = Meter::new(&|_| {});
    for _ in 0..ROUNDS {
        let mut taken: Vec<Duration> = Vec::new();
        let mut step = Instant::now();
        let mut took = || taken.push(std::mem::replace(&mut step, Instant::now()).elapsed());
        plain_up(&pod, &local);
        took();
        plain_down(&pod, &back);
        took();
        for Way(_, sandbox) in ways {
            sandbox.upload_file(&local, &Write::new("large"), &meter).await.unwrap();
            took();
            sandbox.download_file(&Download::new("large"), &back, &meter).await.unwrap();
            took();
        }
        assert_eq!(std::fs::metadata(&back).unwrap().len(), SIZE);
        times.iter_mut().zip(taken).for_each(|(times, taken)| times.push(taken));
    }
    let median: Vec<Duration> = times.into_iter().map(|times| Samples::from(times).p50()).collect();
    let names: Vec<&str> =
        std::iter::once("baseline: a plain copy over a socket to a pod").chain(ways.iter().map(|way| way.0)).collect();

    let table = Table::figures(&format!("1 GB, file to file (median of {ROUNDS} interleaved runs)"));
    for (name, times) in names.iter().zip(median.chunks(2)) {
        table.figure(
            &format!("{name}: upload, download"),
            format!("{}, {}", rate(SIZE, times[0]), rate(SIZE, times[1])),
        );
    }
    let compared = |one: usize, other: usize| {
        let factor = |way: usize| median[2 * other + way].as_secs_f64() / median[2 * one + way].as_secs_f64();
        format!("{:.2} and {:.2}", factor(0), factor(1))
    };
    table.figure("at the pod's address / the plain copy (at least 0.6)", compared(1, 0));
    table.figure("through the router / through exec (at least 3)", compared(2, ways.len()));

    let table = Table::figures("The stock runtime's own transfers, and those by its API, 64 MB");
    let mut connection = StockConnection::open(stock).await;
    let data = vec![7_u8; STOCK_SIZE];
    let begun = Instant::now();
    connection.upload("large", &data).await;
    table.figure("`/upload`", rate(STOCK_SIZE as u64, begun.elapsed()));
    let begun = Instant::now();
    assert_eq!(connection.download("large").await.len(), STOCK_SIZE);
    table.figure("`/download`", rate(STOCK_SIZE as u64, begun.elapsed()));
    let begun = Instant::now();
    by_stock.write("large", data).await.unwrap();
    table.figure("podbay, through the router, over that API: upload", rate(STOCK_SIZE as u64, begun.elapsed()));
    let begun = Instant::now();
    assert_eq!(by_stock.download("large").await.unwrap().len(), STOCK_SIZE);
    table.figure("podbay, through the router, over that API: download", rate(STOCK_SIZE as u64, begun.elapsed()));
}

fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    let block: Vec<u8> = (0..1_000_000).map(|number: u32| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    (0..SIZE / block.len() as u64).for_each(|_| file.write_all(&block).unwrap());
}

/// The server in the pod may still be starting.
fn dial(pod: &str, what: &[u8]) -> TcpStream {
    let begun = Instant::now();
    let mut socket = loop {
        match TcpStream::connect((pod, PORT)) {
            Ok(socket) => break socket,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    socket.write_all(what).unwrap();
    socket
}

fn plain_up(pod: &str, from: &Path) {
    let mut socket = dial(pod, b"u");
    copy(&mut std::fs::File::open(from).unwrap(), &mut socket);
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(socket.read(&mut [0]).unwrap(), 1);
}

fn plain_down(pod: &str, to: &Path) {
    copy(&mut dial(pod, b"d"), &mut std::fs::File::create(to).unwrap());
}

fn copy(from: &mut impl std::io::Read, to: &mut impl std::io::Write) {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer).unwrap() {
            0 => return,
            count => to.write_all(&buffer[..count]).unwrap(),
        }
    }
}
