//! Pods, whoever makes them.

pub(crate) mod startup;
