//! `podbayd self-install`: the last step of the bootstrap in a container. That podbayd runs at all shows that programs can
//! run from where it was put; and it does at once what would take three programs of the container.

use std::fs;
use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

/// A program that has just been sent.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The file that was written.
    pub from: &'a Path,
    /// How many bytes were sent.
    pub bytes: u64,
    /// Their SHA-256, in hexadecimal.
    pub digest: &'a str,
    /// The path that it gets.
    pub to: &'a Path,
    /// The lock that other callers wait for meanwhile.
    pub lock: &'a Path,
}

/// Checks that all of it has arrived, renames it and releases the lock.
///
/// # Errors
/// In the form that the client parses.
pub fn run(arrival: &Arrival<'_>) -> Result<(), String> {
    let below = arrival.to.parent().unwrap_or(arrival.to);
    let write = |error: io::Error| format!("write {}: {error}", below.display());
    let came = fs::metadata(arrival.from).map_err(write)?.len();
    if came != arrival.bytes {
        return Err(format!("count {came} {}", arrival.bytes));
    }
    let digest = Sha256::digest(fs::read(arrival.from).map_err(write)?);
    if digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>() != arrival.digest {
        return Err("digest".into());
    }
    fs::rename(arrival.from, arrival.to).map_err(write)?;
    // Where the lock can't be removed, those who wait for it find the program.
    let _ = fs::remove_dir_all(arrival.lock);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrived_whole_takes_its_name_and_what_did_not_leaves_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (from, to, lock) = (path("new"), path("podbayd"), path("lock"));
        let arrive = |bytes, digest| {
            fs::write(&from, "12345").unwrap();
            fs::create_dir_all(&lock).unwrap();
            run(&Arrival { from: &from, bytes, digest, to: &to, lock: &lock })
        };
        let digest = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5";
        assert_eq!(arrive(6, digest), Err("count 5 6".into()));
        assert_eq!(arrive(5, "5994471abb"), Err("digest".into()));
        assert!(!to.exists() && lock.exists());
        assert_eq!(arrive(5, digest), Ok(()));
        assert_eq!(fs::read(&to).unwrap(), b"12345");
        assert!(!from.exists() && !lock.exists());
    }
}
