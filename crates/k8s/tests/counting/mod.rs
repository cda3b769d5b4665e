//! A command that prints numbers for a while, to see whether output arrives whole and once.

use anyhow::{Result, ensure};
use podbay_client::{Event, Exec};

/// Notes in the file `ran` that it runs, then prints 5,000 numbers a second.
pub(crate) fn command(seconds: u32) -> String {
    format!("echo x >> ran; for i in $(seq 1 {seconds}); do seq $((i*5000-4999)) $((i*5000)); sleep 1; done")
}

/// Reads it to its end: no byte is missing or there twice.
pub(crate) async fn arrives_whole(exec: &mut Exec, seconds: u32) -> Result<()> {
    let mut output = Vec::new();
    while let Some(event) = exec.next().await? {
        match event {
            Event::Output(_, data) => output.extend_from_slice(&data),
            Event::Lost(bytes) => anyhow::bail!("{bytes} bytes were lost"),
            Event::End(_) => {}
        }
    }
    let expected: String = (1..=5000 * seconds).map(|number| format!("{number}\n")).collect();
    ensure!(output == expected.as_bytes(), "{} bytes of {}", output.len(), expected.len());
    Ok(())
}
