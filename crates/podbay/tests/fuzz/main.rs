//! Drives the fuzz targets (`fuzz/`) on any compiler: random input, mutated from a corpus that grows with what was accepted
//! without a panic. A moment each by `cargo test`; longer, or one target alone, by `cargo xtask fuzz`.
#![cfg(target_os = "linux")]

mod input;
#[path = "../../../../fuzz/src/lib.rs"]
#[allow(missing_docs, unreachable_pub, clippy::unwrap_used)]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use input::Inputs;
use rustix::time::{ClockId, clock_gettime};
use targets::{TARGETS, Target};

/// How long each target runs when nobody says.
const MOMENT: Duration = Duration::from_millis(500);

/// One input that takes the processor longer than this is a failure: somebody waits for the answer. Not time on the clock: beside
/// other tests the targets run at low priority, and may not run at all for seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time on the clock after which an input is a failure, however busy the machine: it waits for something.
const STUCK: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|word| word == "--list") {
        TARGETS.iter().for_each(|(name, ..)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let seconds = number("PODBAY_FUZZ_SECONDS").map_or(MOMENT, Duration::from_secs);
    let seed = number("PODBAY_FUZZ_SEED").unwrap_or_else(rand::random);
    let names: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let wanted = |target: &&Target| names.is_empty() || names.iter().any(|name| *name == target.0);
    let waiting: Mutex<Vec<&Target>> = Mutex::new(TARGETS.iter().filter(wanted).collect());
    // A panic is the end of a target, and its input is told below.
    std::panic::set_hook(Box::new(|_| {}));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let failed: Vec<&str> = std::thread::scope(|scope| {
        let work = || {
            let mut failed = Vec::new();
            while let Some(target) = waiting.lock().ok().and_then(|mut waiting| waiting.pop()) {
                if !drive(target, seconds, seed) {
                    failed.push(target.0);
                }
            }
            failed
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|_| vec!["the driver itself"])).collect()
    });
    for name in &failed {
        println!("FAILED fuzz target {name}");
    }
    let passed = TARGETS.iter().filter(wanted).count() - failed.len();
    println!("{passed} passed, {} failed", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a target until its time is up. Whether nothing was found.
fn drive(&(name, run, pieces): &Target, seconds: Duration, seed: u64) -> bool {
    let mut inputs = Inputs::new(pieces, seed);
    let begun = Instant::now();
    let mut count = 0_u64;
    while begun.elapsed() < seconds {
        let input = inputs.next();
        let (since, worked) = (Instant::now(), processor_time());
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&input)));
        let (took, worked) = (since.elapsed(), processor_time().saturating_sub(worked));
        count += 1;
        if let Err(panic) = outcome {
            let said =
                panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            report(name, seed, count, &input, said.unwrap_or("a panic"));
            return false;
        }
        if worked > PATIENCE || took > STUCK {
            report(name, seed, count, &input, &format!("took {took:?}, and {worked:?} of the processor"));
            return false;
        }
        inputs.keep(input);
    }
    println!("{name}: {count} inputs in {:.1} s, seed {seed}", begun.elapsed().as_secs_f64());
    true
}

/// How long this thread has had the processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn report(name: &str, seed: u64, count: u64, input: &[u8], what: &str) {
    println!("{name}: input {count} of seed {seed}: {what}\n  {}", input.escape_ascii());
    println!("  again: PODBAY_FUZZ_SEED={seed} cargo test -p podbay --test fuzz -- {name}");
}
