//! What the audit log adds to an operation: `cargo bench -p podbay --bench audit`.
// It prints a table.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use podbay::Command;
use podbay::audit::{Audit, AuditLog, Details, Digest, RecordedEffect, Rotation, verify};

const COUNT: usize = 20_000;
const WRITERS: usize = 8;

fn log(path: &Path) -> Audit {
    Audit::new(AuditLog::open(path, Rotation::default()).unwrap()).strict()
}

/// Both entries of a command.
fn record(audit: &Audit) {
    let command = Command::argv(["sh", "-c", "make all"]);
    let operation = audit.begin("pb-0123456789abcdef", "exec", || Details::command(&command)).unwrap();
    audit.end(operation, Ok(RecordedEffect::bytes(5))).unwrap();
}

fn row(name: &str, count: usize, mut work: impl FnMut(usize)) {
    let mut times: Vec<Duration> = (0..count)
        .map(|number| {
            let begun = Instant::now();
            work(number);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    let at = |share: usize| times[(count - 1) * share / 100].as_nanos() as f64 / 1e3;
    println!("| {name} | {:.1} | {:.1} | {:.1} | {count} |", at(0), at(50), at(95));
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    println!("| what, in µs | min | p50 | p95 | n |\n|---|---|---|---|---|");
    let (one, other) = (log(&path), log(&path));
    row("no audit", COUNT, |_| record(&Audit::default()));
    row("one writer", COUNT, |_| record(&one));
    row("two writers in turn", COUNT, |number| record(if number % 2 == 0 { &one } else { &other }));
    let content = vec![7; 1 << 20];
    row("digest of 1 MiB", 200, |_| drop(std::hint::black_box(Digest::of(&content))));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            let audit = log(&path);
            scope.spawn(move || (0..COUNT / WRITERS).for_each(|_| record(&audit)));
        }
    });
    println!("\n{WRITERS} writers: {:.0} operations a second", COUNT as f64 / begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let report = verify(&[&path], None).unwrap();
    assert!(report.intact);
    println!("verify: {:.0} entries a second", report.entries as f64 / begun.elapsed().as_secs_f64());
}
