//! Lets the module leave Node's symbols to the process that loads it.

fn main() {
    napi_build::setup();
}
