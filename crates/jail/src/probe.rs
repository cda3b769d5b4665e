//! What this machine can do.

use std::fs;

/// The likeliest reason for a refused namespace or mount, and its fix.
pub(crate) fn refused() -> String {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        return "ordinary users may not make user namespaces here: sysctl kernel.unprivileged_userns_clone=1".into();
    }
    if read("/proc/sys/user/max_user_namespaces") == "0" {
        return "user namespaces are switched off: sysctl user.max_user_namespaces=15000".into();
    }
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        return "AppArmor keeps ordinary users from using user namespaces: sysctl \
                kernel.apparmor_restrict_unprivileged_userns=0, or give this program an AppArmor profile with `userns,`"
            .into();
    }
    "a container's seccomp or LSM policy forbids namespaces here: run outside of it, or use --isolation landlock".into()
}
