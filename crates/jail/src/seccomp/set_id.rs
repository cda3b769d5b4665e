//! Refuses to make files with set-id bits: in a directory shared with the host, such a file would run the sandbox's code with
//! its owner's rights.
//!
//! Every call that takes a mode is refused if the mode has such a bit. `openat2` has its mode behind a pointer, which a filter
//! can't read, so commands don't have that call; programs fall back to `openat`. Extended attributes can't be set either: an ACL
//! makes an existing file executable without clearing its set-id bits, and some file systems (CIFS, fuse-overlayfs) store whole
//! modes in attributes. These calls fail as on a file system without attributes, which programs that copy files can handle.

use seccompiler::SeccompCmpOp as Op;

use super::{Built, Rules, any_bit, rule};

const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;

/// Calls that set extended attributes, by path and by descriptor.
pub(super) const ATTRIBUTES: [libc::c_long; 4] =
    [libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, SETXATTRAT];

const BITS: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];

/// The flags with which `open` makes a file and takes a mode. Without them, the mode's register holds an unrelated value.
const MAKING: [u64; 2] = [libc::O_CREAT as u64, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64];

/// Refuses modes with a set-id bit, also for directories: a filter doesn't know what kind of file a call is about.
pub(super) fn refuse(rules: &mut Rules) -> Built<()> {
    #[cfg(target_arch = "x86_64")]
    {
        rules.insert(libc::SYS_open, opening(1)?);
        rules.insert(libc::SYS_creat, any_bit(1, &BITS)?);
        rules.insert(libc::SYS_mknod, any_bit(1, &BITS)?);
        rules.insert(libc::SYS_chmod, any_bit(1, &BITS)?);
    }
    rules.insert(libc::SYS_openat, opening(2)?);
    rules.insert(libc::SYS_mknodat, any_bit(2, &BITS)?);
    rules.insert(libc::SYS_fchmod, any_bit(1, &BITS)?);
    rules.insert(libc::SYS_fchmodat, any_bit(2, &BITS)?);
    rules.insert(FCHMODAT2, any_bit(2, &BITS)?);
    Ok(())
}

/// The rules for a call with its flags in this argument and its mode in the next.
fn opening(flags: u8) -> Built<Vec<seccompiler::SeccompRule>> {
    let all = MAKING.iter().flat_map(|making| BITS.map(|bit| (*making, bit)));
    all.map(|(making, bit)| rule(&[(flags, Op::MaskedEq(making), making), (flags + 1, Op::MaskedEq(bit), bit)]))
        .collect()
}
