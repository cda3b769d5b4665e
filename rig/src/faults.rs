//! Things that go wrong, on demand. Each is one call.
//!
//! | fault | call |
//! |---|---|
//! | the API server is down, or starts again | [`stop_api_server`], [`start_api_server`], [`restart_api_server`] |
//! | a container dies | [`kill_container`] |
//! | a pod's disk is full | [`fill_disk`] |
//! | a connection breaks or stalls at a byte count | [`TcpProxy`] |
//! | the API server answers 429, 409, 410, 500 …, late, or with another time | [`ApiProxy`] |

#[cfg(feature = "test-client")]
mod api_proxy;
mod api_server;
mod container;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(feature = "test-client")]
mod tcp_proxy;

#[cfg(feature = "test-client")]
pub use api_proxy::{Answer, ApiProxy, Held};
pub use api_server::{restart_api_server, start_api_server, stop_api_server};
pub use container::kill_container;
#[cfg(target_os = "linux")]
pub use disk::{FullDisk, fill_disk};
#[cfg(feature = "test-client")]
pub use tcp_proxy::{Direction, TcpProxy};
