//! No file with a set-id bit can be made: in a directory shared with the host, one with the sandbox's content would give
//! its owner's rights to whoever runs it there.
//!
//! Every call that takes a mode is refused when the mode has such a bit. `openat2` has its mode behind a pointer, where no
//! filter can look, so commands don't have that call; programs fall back to `openat`. Nobody can set extended attributes:
//! an ACL makes an existing file executable without clearing its bits, and some file systems (CIFS, fuse-overlayfs) keep
//! whole modes in attributes of their own. The calls answer as a file system without attributes does, which every program
//! that copies files copes with.

use seccompiler::SeccompCmpOp as Op;

use super::{Built, Rules, any_bit, rule};

const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;

/// Calls that set extended attributes, by path and by descriptor.
pub(super) const ATTRIBUTES: [libc::c_long; 4] =
    [libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, SETXATTRAT];

const BITS: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];

/// The flags with which `open` makes a file and takes a mode. Without them its last argument is whatever the register held.
const MAKING: [u64; 2] = [libc::O_CREAT as u64, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64];

/// Refuses modes with a set-id bit. Directories can't have one either: the kernel tells the filter nothing of the file.
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

/// The rules for a call that has flags in this argument and a mode in the next.
fn opening(flags: u8) -> Built<Vec<seccompiler::SeccompRule>> {
    let all = MAKING.iter().flat_map(|making| BITS.map(|bit| (*making, bit)));
    all.map(|(making, bit)| rule(&[(flags, Op::MaskedEq(making), making), (flags + 1, Op::MaskedEq(bit), bit)]))
        .collect()
}
