//! Commands on disk: a directory for each, with its record and its log, and what keeps all of them within bounds.
//!
//! This is the format that podbayd, its successor after a restart and the shims agree on. It knows nothing of processes.

pub mod collect;
pub mod directory;
pub mod disk_reserve;
pub mod log;
pub mod log_quota;
pub mod record;
pub mod retention;
