//! The native module of the npm package `podbay`: converts arguments, results and errors between JavaScript and the core.
//!
//! Every operation is a function that copies its arguments and returns a promise, whose work runs on Tokio's threads
//! (`promise`). Failures cross the border as JSON; the package's TypeScript makes errors of them (`failure`).
#![cfg_attr(test, allow(dead_code, reason = "napi exports nothing in a test build, which only linters make"))]
// The macros of napi-rs generate `unsafe` code for each exported item; none is written by hand.
#![allow(unsafe_code)]

mod arguments;
mod audit;
mod conversions;
mod exec;
mod failure;
mod podbay;
mod progress;
mod promise;
mod results;
mod sandbox;
mod settings;
mod tables;
