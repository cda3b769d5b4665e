//! The fuzz targets' functions, as property tests.
#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/src/lib.rs"]
#[allow(missing_docs, unreachable_pub)]
mod bodies;

use proptest::prelude::*;

/// Bytes that come near what the functions expect.
fn pieces(of: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        9 => prop::sample::select(of).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pattern_is_matched_or_refused(data in pieces(&["*", "**", "?", "/", "{a,b}", "{", "}", ",", "[", "]", "!", "-", "\\", ".", "a", "é", "\0", "{1..9}", "[:alpha:]"])) {
        bodies::glob(&data);
    }

    #[test]
    fn any_head_is_read_or_refused(body in pieces(&["{", "}", "\"path\":", "\"/a\"", ",", "\"scope\":", "{}", "\"limit\":", "-1", "18446744073709551615", "\"mode\":7", "1e400", "null"]), lie in -3i64..3) {
        let length = (body.len() as i64 + lie).max(0) as u32;
        bodies::head(&[&length.to_be_bytes()[..], &body].concat());
        bodies::head(&body);
    }

    #[test]
    fn any_path_survives_json(data in pieces(&["{\"hex\":\"", "2f", "ff", "\"}", "\"", "/", "\\u0000", "\\ud800", "a"])) {
        bodies::path(&data);
    }

    #[test]
    fn any_edit_is_the_plain_one_or_changes_nothing(data in pieces(&["a", "b", "\n", "\r\n", "\r", "\0", "aa", "é"])) {
        bodies::edit(&data);
    }
}
