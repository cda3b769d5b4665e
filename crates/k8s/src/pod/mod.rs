//! Pods: their start, and whether they have ended.

pub(crate) mod container;
pub(crate) mod description;
pub(crate) mod health;
pub(crate) mod startup;
