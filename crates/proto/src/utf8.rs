//! Cutting text between characters.

/// The length of `bytes` without an incomplete UTF-8 character at their end.
///
/// Bytes that are no UTF-8 at all are not cut: nothing can complete them.
pub fn floor_char_boundary(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    let Some(lead) = bytes[tail..].iter().rposition(|&byte| byte >= 0xc0) else { return bytes.len() };
    match std::str::from_utf8(&bytes[tail + lead..]) {
        // No `error_len`: the end came too early.
        Err(error) if error.error_len().is_none() => tail + lead,
        _ => bytes.len(),
    }
}

/// How many bytes at the beginning of `bytes` continue a character that began before them.
pub fn ceil_char_boundary(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|&&byte| byte & 0xc0 == 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_never_inside_a_character() {
        for text in ["", "a", "aé", "a€", "a😀", "é€😀"] {
            for cut in 0..=text.len() {
                let (before, after) = text.as_bytes().split_at(cut);
                let end = floor_char_boundary(before);
                assert!(text.is_char_boundary(end) && cut - end < 4, "{text:?} at {cut}");
                assert!(end == cut || !text.is_char_boundary(cut), "{text:?} at {cut} loses a whole character");
                assert!(text.is_char_boundary(cut + ceil_char_boundary(after)), "{text:?} at {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_utf8_is_left_alone() {
        for bytes in [&b"\xff"[..], b"a\xc3(", b"\x80\x80\x80\x80", b"\xf0\x28\x8c"] {
            assert_eq!(floor_char_boundary(bytes), bytes.len(), "{bytes:?}");
        }
    }
}
