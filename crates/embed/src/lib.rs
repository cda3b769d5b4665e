//! podbayd's bytes, per architecture. Nothing else.

/// The static podbayd for an architecture, as Rust names it (`x86_64`, `aarch64`), if this build carries it.
pub fn daemon(arch: &str) -> Option<&'static [u8]> {
    include!(concat!(env!("OUT_DIR"), "/daemons.rs"))
}

/// The SHA-256 of those bytes, in hexadecimal.
pub fn digest(arch: &str) -> Option<&'static str> {
    include!(concat!(env!("OUT_DIR"), "/digests.rs"))
}

#[cfg(test)]
mod landlock_override;

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_has_a_daemon_that_is_small() {
        let bytes = super::daemon(std::env::consts::ARCH).unwrap();
        assert_eq!(&bytes[..4], b"\x7fELF");
        assert!(bytes.len() <= 5_000_000, "podbayd has {} bytes; 5 MB is the most", bytes.len());
        assert!(super::daemon("pdp11").is_none());
    }

    /// Without this, the build script's search in releases could be one that finds nothing anywhere.
    #[test]
    fn only_a_build_for_tests_has_the_override_of_landlocks_abi() {
        let bytes = super::daemon(std::env::consts::ARCH).unwrap();
        assert_eq!(super::landlock_override::is_in(bytes), cfg!(debug_assertions));
    }
}
