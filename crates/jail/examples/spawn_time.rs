//! How long it takes from the call of `spawn` to the first line inside.
//!
//! `cargo run --release -p podbay-jail --example spawn_time -- [N] [limits]`; with a directory in
//! `WORKSPACE` that is bound, else the workspace is temporary. Prints min, p50, p95 in microseconds.

use std::os::fd::AsFd;

use podbay_jail::{Jail, JailLimits, spawn};

fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(200), |n| n.parse())?;
    let limited = arguments.next().is_some();
    let workspace = std::env::var_os("WORKSPACE").map(std::path::PathBuf::from);
    let (read, write) = rustix::pipe::pipe()?;
    let (mut first_line, mut returned, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut jail = Jail::new(format!("time-{round}"));
        jail.workspace = workspace.clone();
        if limited {
            jail.limits =
                JailLimits { memory: Some(256 << 20), cpu: Some(1.0), processes: Some(64), ..JailLimits::default() };
        }
        let start = now();
        let mut jailed = spawn(&jail, &[write.as_fd()], || {
            let time = now().to_ne_bytes();
            i32::from(rustix::io::write(&write, &time) != Ok(time.len()))
        })?;
        returned.push(now() - start);
        let mut time = [0_u8; 8];
        rustix::io::read(&read, &mut time)?;
        first_line.push(u64::from_ne_bytes(time) - start);
        let kill = now();
        jailed.cleanup()?;
        gone.push(now() - kill);
    }
    for (what, mut times) in [("first line", first_line), ("spawn returned", returned), ("cleaned up", gone)] {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() - 1) * part / 100] / 1000;
        println!("{what:15} min {:5} µs  p50 {:5} µs  p95 {:5} µs  n {}", at(0), at(50), at(95), times.len());
    }
    Ok(())
}
