//! Things that go wrong, on demand. Each is one call.
//!
//! | fault | call |
//! |---|---|
//! | the API server is down, or starts again | [`stop_api_server`], [`start_api_server`], [`restart_api_server`] |
//! | a container dies | [`kill_container`] |
//! | a pod's disk is full | [`fill_disk`] |
//! | a connection breaks or stalls at a byte count | [`Cable`] |
//! | the API server answers 429, 409, 410, 500 …, late, or with another time | [`Impostor`] |

mod api_server;
mod container;
#[cfg(target_os = "linux")]
mod disk;

#[cfg(feature = "test-client")]
mod cable;
#[cfg(feature = "test-client")]
mod impostor;

pub use api_server::{restart_api_server, start_api_server, stop_api_server};
pub use container::kill_container;
#[cfg(target_os = "linux")]
pub use disk::{FullDisk, fill_disk};

#[cfg(feature = "test-client")]
pub use cable::{Cable, Direction};
#[cfg(feature = "test-client")]
pub use impostor::{Answer, Held, Impostor};
