//! File operations and path rules of a sandbox. No network.
