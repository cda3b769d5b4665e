//! A pod: until it runs, and whether it is over.

pub(crate) mod health;
pub(crate) mod startup;
