#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| podbay_fuzz::answer(data));
