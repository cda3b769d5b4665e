//! Things that go wrong, on demand.
