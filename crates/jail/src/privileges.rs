//! Giving up all privileges, for good.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::error::{FailedStep, Step};

/// Empties the five capability sets, and locks the bits that could fill them again.
pub(crate) fn drop_all() -> Result<(), FailedStep> {
    drop_bounding()?;
    use CapabilitiesSecureBits as Bits;
    let bits = Bits::NO_ROOT
        | Bits::NO_ROOT_LOCKED
        | Bits::NO_SETUID_FIXUP
        | Bits::NO_SETUID_FIXUP_LOCKED
        | Bits::KEEP_CAPS_LOCKED
        | Bits::NO_CAP_AMBIENT_RAISE
        | Bits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits).step(|| "lock the secure bits".into())?;
    drop_held()
}

/// Empties the two sets from which new programs get capabilities.
pub(crate) fn drop_bounding() -> Result<(), FailedStep> {
    // The kernel may know more capabilities than rustix, so try all 64 bits.
    for capability in 0..64 {
        // SAFETY: this call takes numbers only.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match (result, std::io::Error::last_os_error().raw_os_error()) {
            (0, _) => {}
            (_, Some(libc::EINVAL)) if capability > 0 => break,
            (_, errno) => {
                let error = std::io::Error::from_raw_os_error(errno.unwrap_or(0));
                return Err(FailedStep::new(format!("drop capability {capability} from the bounding set"), error));
            }
        }
    }
    match rustix::thread::clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(FailedStep::new("clear the ambient capabilities", error)),
    }
    Ok(())
}

/// The part of [`drop_all`] that a process without privileges can do: it drops what it holds, and with no_new_privs no program
/// gives it more.
pub(crate) fn drop_held() -> Result<(), FailedStep> {
    rustix::thread::set_no_new_privs(true).step(|| "set no_new_privs".into())?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).step(|| "drop all capabilities".into())
}

/// Makes this process die with its parent. Changing credentials undoes that, so it must be repeated afterwards.
pub(crate) fn tie_to_maker() -> Result<(), FailedStep> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step(|| "set the parent-death signal".into())
}

/// Keeps other processes of the jail from reading this process's memory, which is a copy of the caller's.
pub(crate) fn become_undumpable() -> Result<(), FailedStep> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step(|| "become non-dumpable".into())
}
