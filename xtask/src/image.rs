//! `cargo xtask image`: Podbay's own images, made without a container engine.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use rig::Runtime;

use crate::tools::{cargo, run, say, target_dir};

#[derive(Args)]
pub struct Options {
    /// Where to write them.
    #[arg(long, value_name = "DIR", default_value_os_t = target_dir().join("images"))]
    out: PathBuf,
}

/// Writes an archive for each image, and podbayd as it is in them.
pub fn make(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let podbayd = options.out.join("podbayd");
    // A debug build's podbayd can be told to do without Landlock, for tests.
    run(cargo()
        .args(["run", "--quiet", "--release", "--package", "podbay-embed", "--example", "write"])
        .arg(&podbayd))?;
    let program = std::fs::read(&podbayd).with_context(|| format!("cannot read {}", podbayd.display()))?;
    for runtime in Runtime::ALL {
        let archive = options.out.join(format!("{}.tar", runtime.name()));
        runtime.image(&program, "release")?.save(&archive)?;
        say(&format!("{} ({} MB)", archive.display(), std::fs::metadata(&archive)?.len() / 1_000_000));
    }
    Ok(())
}
