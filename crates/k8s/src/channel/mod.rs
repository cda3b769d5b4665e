//! Ways to reach the podbayd in a pod as a byte stream.
//!
//! A channel turns (namespace, pod) into a byte stream; [`exec`] does so by pods/exec. Those that go through a router's
//! WebSocket belong beside it.

pub mod exec;
pub mod exec_stream;
pub mod websocket;
