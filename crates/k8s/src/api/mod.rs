//! Requests to the API server: retried while refusals are transient, listed page by page, followed by a watch.

pub(crate) mod follow;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod retry;
