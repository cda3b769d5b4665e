//! What a test's podbayd leaves behind when it is killed. podbayd's own tests use this file too.

use std::path::Path;
use std::process::{Command, Stdio};

/// Ends every process whose working directory lies below a path: shims and commands of a test.
pub fn kill_below(path: &Path) {
    for _ in 0..50 {
        let mut found = false;
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let Ok(cwd) = std::fs::read_link(format!("/proc/{pid}/cwd")) else { continue };
            if cwd.starts_with(path) && pid != std::process::id() as i32 {
                found = true;
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
            }
        }
        if !found {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
