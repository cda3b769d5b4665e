//! Samples, and the table that they become.
#![allow(dead_code, reason = "each benchmark uses a part of this")]

use std::fmt::Display;
use std::time::{Duration, Instant};

/// A table in Markdown, printed row by row as it is measured.
pub struct Table {
    heading: String,
}

impl Table {
    /// Begins a table of times.
    pub fn times(heading: &str) -> Self {
        println!("\n## {heading}\n\n| what | min | p50 | p95 | n |\n|---|---|---|---|---|");
        Self { heading: heading.to_owned() }
    }

    /// Begins a table of figures.
    pub fn figures(heading: &str) -> Self {
        println!("\n## {heading}\n\n| what | measured |\n|---|---|");
        Self { heading: heading.to_owned() }
    }

    /// One row of a table of figures.
    pub fn figure(&self, what: &str, value: impl Display) {
        println!("| {what} | {value} |");
    }

    /// One row of a table of times.
    pub fn row(&self, what: &str, samples: &Samples) {
        let [min, p50, p95] = [0.0, 0.5, 0.95].map(|share| samples.at(share));
        println!("| {what} | {} | {} | {} | {} |", show(min), show(p50), show(p95), samples.0.len());
    }
}

/// Times, sorted.
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Measures an asynchronous piece of work, after a few rounds that don't count.
    pub async fn of<F: Future>(count: usize, mut work: impl FnMut(usize) -> F) -> Self {
        for round in 0..count.div_ceil(20).min(20) {
            work(usize::MAX - round).await;
        }
        let mut times = Vec::with_capacity(count);
        for round in 0..count {
            let begun = Instant::now();
            work(round).await;
            times.push(begun.elapsed());
        }
        Self::from(times)
    }

    /// Measures a blocking piece of work.
    pub fn of_blocking(count: usize, mut work: impl FnMut()) -> Self {
        for _ in 0..count.div_ceil(20).min(20) {
            work();
        }
        let times = (0..count).map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed()
        });
        Self::from(times.collect::<Vec<_>>())
    }

    /// The time that this share of the samples doesn't exceed.
    pub fn at(&self, share: f64) -> Duration {
        let last = self.0.len() - 1;
        self.0[((last as f64 * share).round() as usize).min(last)]
    }

    /// The median.
    pub fn p50(&self) -> Duration {
        self.at(0.5)
    }
}

impl From<Vec<Duration>> for Samples {
    fn from(mut times: Vec<Duration>) -> Self {
        assert!(!times.is_empty(), "nothing was measured");
        times.sort();
        Self(times)
    }
}

/// A time with three digits and its unit.
pub fn show(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        ..1_000.0 => format!("{micros:.0} µs"),
        1_000.0..1_000_000.0 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// A rate in megabytes a second.
pub fn rate(bytes: u64, time: Duration) -> String {
    format!("{:.0} MB/s", bytes as f64 / 1e6 / time.as_secs_f64())
}
