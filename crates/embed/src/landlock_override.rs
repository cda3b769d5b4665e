//! The variable by which tests make podbayd imitate an older kernel.
//!
//! Whoever sets a sandbox's environment could switch Landlock off by it, so the podbayd of a release mustn't know it. The build
//! script looks for it in each release; the tests show that it finds it where it is.

/// Whether a podbayd knows the variable.
pub(crate) fn is_in(podbayd: &[u8]) -> bool {
    let name = b"PODBAY_LANDLOCK_ABI";
    podbayd.windows(name.len()).any(|window| window == name)
}
