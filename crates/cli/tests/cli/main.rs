//! The `podbay` command, from outside.

mod documents;
mod home;
mod hostile;
mod sessions;
