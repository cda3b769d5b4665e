//! Offsets, repeats, gaps, bounds and the end of streams, without a server behind them.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::time::{Instant, sleep};

use super::*;

struct Fixture {
    all: Arc<Exchanges>,
    far: DuplexStream,
}

fn name(number: usize) -> String {
    format!("{number:032x}")
}

fn request(offset: u64, acknowledged: u64, number: u64) -> ExchangeRequest {
    let most = LARGEST_OUTPUT;
    ExchangeRequest { session: name(1), number, offset, acknowledged, most, wait_ms: 0, ..ExchangeRequest::default() }
}

impl Fixture {
    async fn new() -> Self {
        let all = Arc::new(Exchanges::default());
        let far = open(&all, &name(1)).await;
        Self { all, far }
    }

    async fn exchange(&self, request: ExchangeRequest, data: &[u8]) -> ExchangeAnswer {
        self.all.answer(&request, data, |_| panic!("it is open")).await
    }

    /// What podbayd's server gets, if it gets something at all.
    async fn arrived(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 8 << 20];
        let read = tokio::time::timeout(Duration::from_millis(20), self.far.read(&mut bytes)).await;
        bytes.truncate(read.map_or(0, Result::unwrap));
        bytes
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.far.write_all(bytes).await.unwrap();
        sleep(Duration::from_millis(5)).await;
    }
}

async fn open(all: &Arc<Exchanges>, session: &str) -> DuplexStream {
    let mut other = None;
    let request = ExchangeRequest { session: session.into(), open: true, ..ExchangeRequest::default() };
    let answer = all.answer(&request, &[], |far| other = Some(far)).await;
    assert_eq!(answer, ExchangeAnswer::only(ExchangeStatus::Open));
    other.unwrap()
}

fn data(answer: &ExchangeAnswer) -> Vec<u8> {
    STANDARD.decode(&answer.data).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_has_no_effect() {
    let mut fixture = Fixture::new().await;
    for _ in 0..3 {
        let answer = fixture.exchange(request(0, 0, 1), b"hello").await;
        assert_eq!((answer.status, answer.received), (ExchangeStatus::Open, 5));
    }
    assert_eq!(fixture.arrived().await, b"hello");
    // One that repeats a part brings the rest.
    assert_eq!(fixture.exchange(request(3, 0, 2), b"lo world").await.received, 11);
    assert_eq!(fixture.arrived().await, b" world");
    assert_eq!(fixture.exchange(request(0, 0, 3), b"hello").await.received, 11);
    assert_eq!(fixture.arrived().await, b"");
    // Opening it again, because the answer got lost, finds it as it is.
    let again = ExchangeRequest { open: true, ..request(11, 0, 4) };
    assert_eq!(fixture.exchange(again, b"").await.received, 11);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_can_be_had_again() {
    let mut fixture = Fixture::new().await;
    fixture.say(b"abcdef").await;
    for _ in 0..3 {
        let answer = fixture.exchange(request(0, 0, 1), b"").await;
        assert_eq!((answer.offset, data(&answer)), (0, b"abcdef".to_vec()));
    }
    // What was acknowledged is gone; a request that was overtaken gets what is left.
    let answer = fixture.exchange(request(0, 4, 2), b"").await;
    assert_eq!((answer.offset, data(&answer)), (4, b"ef".to_vec()));
    let answer = fixture.exchange(request(0, 0, 1), b"").await;
    assert_eq!((answer.offset, data(&answer)), (4, b"ef".to_vec()));
    let little = ExchangeRequest { most: 1, ..request(0, 4, 3) };
    assert_eq!(data(&fixture.exchange(little, b"").await), b"e");
}

#[tokio::test(start_paused = true)]
async fn bytes_behind_a_gap_wait_for_those_before_them() {
    let mut fixture = Fixture::new().await;
    let (later, sooner) = tokio::join!(fixture.exchange(request(3, 0, 2), b"def"), async {
        sleep(Duration::from_millis(50)).await;
        fixture.exchange(request(0, 0, 1), b"abc").await
    });
    assert!(later.received == 6 && sooner.received >= 3, "{later:?} {sooner:?}");
    assert_eq!(fixture.arrived().await, b"abcdef");
    // If they don't come, nothing is taken, and the answer says what is missing.
    let begun = Instant::now();
    assert_eq!(fixture.exchange(request(9, 0, 3), b"x").await.received, 6);
    assert!(begun.elapsed() >= Duration::from_secs(5));
    assert_eq!(fixture.arrived().await, b"");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_stream_is_gone() {
    let fixture = Fixture::new().await;
    let other = ExchangeRequest { session: name(2), ..request(0, 0, 1) };
    assert_eq!(fixture.exchange(other, b"x").await.status, ExchangeStatus::Gone);
    // So is one whose client claims to have what was never sent.
    assert_eq!(fixture.exchange(request(0, 1, 1), b"").await.status, ExchangeStatus::Gone);
    sleep(Duration::from_millis(5)).await;
    assert_eq!(fixture.exchange(request(0, 0, 2), b"").await.status, ExchangeStatus::Gone);
}

#[tokio::test(start_paused = true)]
async fn both_directions_are_bounded() {
    let mut fixture = Fixture::new().await;
    // A server that doesn't read: as much is taken as fits between, and the rest is left to the client.
    let much = vec![b'i'; 1 << 20];
    let answer = fixture.exchange(request(0, 0, 1), &much).await;
    assert_eq!(answer.received, BETWEEN as u64);
    assert_eq!(fixture.arrived().await.len(), BETWEEN);
    // A client that doesn't read: the server has to wait.
    let (mut reader, mut writer) = tokio::io::split(std::mem::replace(&mut fixture.far, tokio::io::duplex(1).0));
    let writing = tokio::spawn(async move { writer.write_all(&vec![b'o'; 4 << 20]).await });
    sleep(Duration::from_secs(1)).await;
    assert!(!writing.is_finished());
    // That doesn't hold back what the client sends for longer than it takes to say so.
    let begun = Instant::now();
    let rest = fixture.exchange(request(answer.received, 0, 2), &much[BETWEEN..]).await;
    assert!(begun.elapsed() < Duration::from_millis(10) && rest.received < 1 << 20, "{:?}", begun.elapsed());
    let mut has = 0;
    for number in 3.. {
        let answer = fixture.exchange(ExchangeRequest { wait_ms: 100, ..request(0, has, number) }, b"").await;
        let got = data(&answer);
        assert!(answer.offset == has && got.len() <= LARGEST_OUTPUT, "{} {}", answer.offset, got.len());
        has += got.len() as u64;
        if has == 4 << 20 {
            break;
        }
    }
    writing.await.unwrap().unwrap();
    assert!(reader.read_u8().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_bytes_and_for_a_newer_one() {
    let mut fixture = Fixture::new().await;
    let waits = |number| ExchangeRequest { wait_ms: 20_000, ..request(0, 0, number) };
    let begun = Instant::now();
    let all = fixture.all.clone();
    let first = tokio::spawn(async move { all.answer(&waits(2), &[], |_| ()).await });
    sleep(Duration::from_secs(1)).await;
    // An older one, which was overtaken, doesn't take its place.
    assert_eq!(data(&fixture.exchange(waits(1), b"x").await), b"");
    sleep(Duration::from_secs(1)).await;
    assert!(!first.is_finished());
    let all = fixture.all.clone();
    let second = tokio::spawn(async move { all.answer(&waits(3), &[], |_| ()).await });
    assert_eq!(first.await.unwrap().status, ExchangeStatus::Open);
    fixture.say(b"answer").await;
    assert_eq!(data(&second.await.unwrap()), b"answer");
    assert!(begun.elapsed() < Duration::from_secs(3));
    // Nothing comes.
    let begun = Instant::now();
    let answer = fixture.exchange(ExchangeRequest { acknowledged: 6, ..waits(4) }, b"").await;
    assert!(answer.data.is_empty() && begun.elapsed() >= Duration::from_secs(20));
}

/// Each of them holds a thread of the stock runtime, which has few.
#[tokio::test(start_paused = true)]
async fn few_requests_wait_at_the_same_time() {
    let all = Arc::new(Exchanges::default());
    let mut tasks = Vec::new();
    let mut others = Vec::new();
    for number in 1..=6 {
        others.push(open(&all, &name(number)).await);
        let waits = ExchangeRequest { session: name(number), wait_ms: 20_000, ..request(0, 0, 1) };
        let all = all.clone();
        tasks.push(tokio::spawn(async move { all.answer(&waits, &[], |_| ()).await.status }));
        sleep(Duration::from_millis(1)).await;
    }
    let finished: Vec<bool> = tasks.iter().map(tokio::task::JoinHandle::is_finished).collect();
    assert_eq!(finished, [true, true, false, false, false, false]);
    assert_eq!(tasks.remove(0).await.unwrap(), ExchangeStatus::Busy);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_uses_is_dropped() {
    let mut fixture = Fixture::new().await;
    for number in 1..=3 {
        sleep(Duration::from_secs(80)).await;
        assert_eq!(fixture.exchange(request(0, 0, number), b"").await.status, ExchangeStatus::Open);
    }
    sleep(Duration::from_secs(100)).await;
    assert!(fixture.all.lock().is_empty());
    assert_eq!(fixture.far.read(&mut [0]).await.unwrap(), 0, "the server's end stays open");
    assert_eq!(fixture.exchange(request(0, 0, 4), b"").await.status, ExchangeStatus::Gone);
}

#[tokio::test(start_paused = true)]
async fn one_stream_too_many_takes_the_place_of_the_oldest() {
    let mut fixture = Fixture::new().await;
    let mut others = Vec::new();
    for number in 2..=MOST_SESSIONS + 1 {
        sleep(Duration::from_millis(1)).await;
        others.push(open(&fixture.all, &name(number)).await);
    }
    assert_eq!(fixture.all.lock().len(), MOST_SESSIONS);
    assert_eq!(fixture.exchange(request(0, 0, 1), b"").await.status, ExchangeStatus::Gone);
    assert_eq!(fixture.far.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_comes_after_the_last_byte() {
    let mut fixture = Fixture::new().await;
    fixture.say(b"last").await;
    drop(std::mem::replace(&mut fixture.far, tokio::io::duplex(1).0));
    sleep(Duration::from_millis(5)).await;
    let little = ExchangeRequest { most: 3, ..request(0, 0, 1) };
    assert_eq!(fixture.exchange(little, b"").await.status, ExchangeStatus::Open);
    let answer = fixture.exchange(request(0, 3, 2), b"").await;
    assert_eq!((answer.status, data(&answer)), (ExchangeStatus::Ended, b"t".to_vec()));

    let mut fixture = Fixture::new().await;
    let close = ExchangeRequest { close: true, ..request(0, 0, 1) };
    assert_eq!(fixture.exchange(close, b"bye").await.received, 3);
    let mut rest = Vec::new();
    fixture.far.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"bye");
}
