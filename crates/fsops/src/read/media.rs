//! File extensions of binary formats.

/// Images, video, audio and documents, as the agent frameworks list them. Everything else is decided by content.
const EXTENSIONS: [&str; 26] = [
    "png", "jpeg", "jpg", "webp", "gif", "heic", "heif", // images
    "mp4", "mpeg", "mov", "avi", "flv", "mpg", "webm", "wmv", "3gpp", "mkv", // video
    "wav", "mp3", "aiff", "aac", "ogg", "flac", // sound
    "pdf", "ppt", "pptx", // documents
];

/// Whether the path has the extension of a binary format.
pub(super) fn is_binary(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else { return false };
    // The dot at the beginning of a name doesn't start an extension.
    let extension = &name[dot + 1..];
    dot > 0 && !extension.is_empty() && EXTENSIONS.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(extension))
}

#[cfg(test)]
mod tests {
    use super::is_binary;

    #[test]
    fn extensions_decide_whatever_their_case() {
        for (path, expected) in [
            ("/a/b.png", true),
            ("/a/b.PNG", true),
            ("x.tar.pdf", true),
            (".png", false),
            ("png", false),
            ("a.", false),
            ("a.svg", false),
            ("a.zip", false),
            ("/a.png/b", false),
        ] {
            assert_eq!(is_binary(path.as_bytes()), expected, "{path}");
        }
    }
}
