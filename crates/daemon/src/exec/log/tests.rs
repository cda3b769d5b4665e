use super::*;

fn writer(root: &tempfile::TempDir) -> LogWriter {
    let dir = root.path().join("exec");
    std::fs::create_dir(&dir).unwrap();
    LogWriter::new(File::open(dir).unwrap().into())
}

fn read_all(log: &Log, from: u64) -> Vec<Piece> {
    let mut cursor = Cursor::at(from);
    let mut pieces: Vec<Piece> = Vec::new();
    while let Some(piece) = log.read(&mut cursor, 1000).unwrap() {
        match (pieces.last_mut(), piece) {
            (Some(Piece::Data(last, bytes)), Piece::Data(stream, more)) if *last == stream => bytes.extend(more),
            (_, piece) => pieces.push(piece),
        }
    }
    pieces
}

fn data(stream: Stream, text: &str) -> Piece {
    Piece::Data(stream, text.into())
}

#[test]
fn streams_are_told_apart_from_any_offset() {
    use Stream::{Stderr, Stdout};
    let root = tempfile::tempdir().unwrap();
    let mut log = writer(&root);
    for (stream, text) in [(Stdout, "one "), (Stdout, "two "), (Stderr, "bad "), (Stdout, "three")] {
        log.append(stream, text.as_bytes());
    }
    let all = [data(Stdout, "one two "), data(Stderr, "bad "), data(Stdout, "three")];
    assert_eq!(read_all(log.log(), 0), all);
    assert_eq!(read_all(log.log(), 10), [data(Stderr, "d "), data(Stdout, "three")]);
    assert_eq!(read_all(log.log(), 17), []);
    assert_eq!(read_all(log.log(), 1000), []);
    let reopened = Log::open(File::open(root.path().join("exec")).unwrap().into()).unwrap();
    assert_eq!(read_all(&reopened, 0), all);
    assert_eq!(std::fs::read_to_string(root.path().join("exec/output")).unwrap(), "one two bad three");
}

#[test]
fn a_reader_that_started_before_standard_error_came_sees_it() {
    let root = tempfile::tempdir().unwrap();
    let mut log = writer(&root);
    let mut cursor = Cursor::default();
    log.append(Stream::Stdout, b"a");
    assert_eq!(log.log().read(&mut cursor, 9).unwrap(), Some(data(Stream::Stdout, "a")));
    log.append(Stream::Stderr, b"b");
    assert_eq!(log.log().read(&mut cursor, 9).unwrap(), Some(data(Stream::Stderr, "b")));
    assert_eq!(log.log().read(&mut cursor, 9).unwrap(), None);
}

#[test]
fn the_beginning_and_the_end_are_kept_and_the_middle_is_counted() {
    let root = tempfile::tempdir().unwrap();
    let mut log = writer(&root);
    let total = 200 << 20;
    let chunk = vec![b'x'; CHUNK];
    for at in 0..total / CHUNK {
        assert!(log.make_room(None));
        log.append(if at % 7 == 0 { Stream::Stderr } else { Stream::Stdout }, &chunk);
    }
    let on_disk: u64 = std::fs::read_dir(root.path().join("exec"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(on_disk <= HEAD_BYTES + TAIL_BYTES, "{on_disk}");
    assert!(on_disk > HEAD_BYTES + TAIL_BYTES - 2 * SEGMENT_BYTES, "{on_disk}");
    let (mut lost, mut kept) = (0, 0);
    for piece in read_all(log.log(), 0) {
        match piece {
            Piece::Lost(bytes) => lost += bytes,
            Piece::Data(_, bytes) => kept += bytes.len() as u64,
        }
    }
    assert_eq!(lost + kept, total as u64);
    assert_eq!(lost, log.log().dropped());
}

#[test]
fn a_slow_reader_makes_the_command_wait() {
    let root = tempfile::tempdir().unwrap();
    let mut log = writer(&root);
    let chunk = vec![b'x'; CHUNK];
    let mut written = 0;
    while log.make_room(Some(5)) {
        log.append(Stream::Stdout, &chunk);
        written += chunk.len() as u64;
        assert!(written <= HEAD_BYTES + TAIL_BYTES);
    }
    assert_eq!(log.log().dropped(), 0);
    assert!(written > HEAD_BYTES + TAIL_BYTES - 2 * SEGMENT_BYTES);
    assert!(log.make_room(Some(written)), "the reader has caught up");
}

#[test]
fn a_log_that_was_taken_away_reads_as_lost() {
    let root = tempfile::tempdir().unwrap();
    let mut log = writer(&root);
    log.append(Stream::Stdout, b"gone");
    std::fs::remove_file(root.path().join("exec/output")).unwrap();
    assert_eq!(read_all(log.log(), 1), [Piece::Lost(3)]);
}
