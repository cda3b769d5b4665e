use super::*;

fn files() -> (File, File) {
    (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap())
}

fn writer((output, record): &(File, File)) -> LogWriter {
    LogWriter::new(output.try_clone().unwrap(), record.try_clone().unwrap(), u64::MAX)
}

fn reopened((output, record): &(File, File)) -> Log {
    Log::open(output.try_clone().unwrap(), record.try_clone().unwrap()).unwrap()
}

fn on_disk((output, record): &(File, File)) -> u64 {
    use std::os::unix::fs::MetadataExt;
    (output.metadata().unwrap().blocks() + record.metadata().unwrap().blocks()) * 512
}

fn read_all(log: &Log, from: u64) -> Vec<Piece> {
    let mut cursor = Cursor::at(from);
    let mut pieces: Vec<Piece> = Vec::new();
    while let Some(piece) = log.read(&mut cursor, 1000).unwrap() {
        match (pieces.last_mut(), piece) {
            (Some(Piece::Data(last, bytes)), Piece::Data(stream, more)) if *last == stream => bytes.extend(more),
            (Some(Piece::Lost(before)), Piece::Lost(more)) => *before += more,
            (_, piece) => pieces.push(piece),
        }
    }
    pieces
}

/// Kept and lost bytes; they must be all.
fn balance(log: &Log) -> (u64, u64) {
    let (mut kept, mut lost) = (0, 0);
    for piece in read_all(log, 0) {
        match piece {
            Piece::Lost(bytes) => lost += bytes,
            Piece::Data(_, bytes) => kept += bytes.len() as u64,
        }
    }
    assert_eq!(kept + lost, log.end());
    assert_eq!(lost, log.dropped());
    (kept, lost)
}

fn data(stream: Stream, text: &str) -> Piece {
    Piece::Data(stream, text.into())
}

#[test]
fn streams_are_told_apart_from_any_offset() {
    use Stream::{Stderr, Stdout};
    let files = files();
    let mut log = writer(&files);
    for (stream, text) in [(Stdout, "one "), (Stdout, "two "), (Stderr, "bad "), (Stdout, "three")] {
        log.append(stream, text.as_bytes());
    }
    let all = [data(Stdout, "one two "), data(Stderr, "bad "), data(Stdout, "three")];
    assert_eq!(read_all(log.log(), 0), all);
    assert_eq!(read_all(log.log(), 10), [data(Stderr, "d "), data(Stdout, "three")]);
    assert_eq!(read_all(log.log(), 17), []);
    assert_eq!(read_all(log.log(), 1000), []);
    assert_eq!(read_all(&reopened(&files), 0), all);
    assert_eq!(io::read_to_string(&files.0).unwrap(), "one two bad three");
}

#[test]
fn a_reader_that_started_before_standard_error_came_sees_it() {
    let mut log = writer(&files());
    let mut cursor = Cursor::default();
    log.append(Stream::Stdout, b"a");
    assert_eq!(log.log().read(&mut cursor, 9).unwrap(), Some(data(Stream::Stdout, "a")));
    log.append(Stream::Stderr, b"b");
    assert_eq!(log.log().read(&mut cursor, 9).unwrap(), Some(data(Stream::Stderr, "b")));
    assert_eq!(log.log().read(&mut cursor, 9).unwrap(), None);
}

/// Each line has its own number, so that a byte out of place is seen.
fn numbered(log: &mut LogWriter, from: u64, to: u64) {
    let mut chunk = Vec::new();
    for number in from..to {
        chunk.extend_from_slice(format!("{number:015}\n").as_bytes());
        if chunk.len() >= CHUNK - 16 || number + 1 == to {
            log.append(if number / 1000 % 7 == 0 { Stream::Stderr } else { Stream::Stdout }, &chunk);
            chunk.clear();
        }
    }
}

fn check_numbers(log: &Log) {
    let mut offset = 0;
    for piece in read_all(log, 0) {
        match piece {
            Piece::Lost(bytes) => offset += bytes,
            Piece::Data(_, bytes) => {
                for (at, line) in bytes.chunks(16).enumerate().skip(1) {
                    let number = (offset + at as u64 * 16) / 16;
                    let start = (offset % 16) as usize;
                    if start == 0 && line.len() == 16 {
                        assert_eq!(std::str::from_utf8(line).unwrap(), format!("{number:015}\n"));
                    }
                }
                offset += bytes.len() as u64;
            }
        }
    }
}

#[test]
fn the_beginning_and_the_end_are_kept_and_the_middle_is_counted() {
    let files = files();
    let mut log = writer(&files);
    let lines = (200 << 20) / 16;
    numbered(&mut log, 0, lines);
    let disk = on_disk(&files);
    assert!(disk <= HEAD_BYTES + TAIL_BYTES + (1 << 20), "{disk}");
    for log in [log.log(), &reopened(&files)] {
        assert_eq!(log.end(), lines * 16);
        assert_eq!(balance(log).0, HEAD_BYTES + TAIL_BYTES);
        check_numbers(log);
    }
}

/// Up to 64 MiB the file is the output itself, for whoever looks at it with plain tools.
#[test]
fn an_output_that_fits_is_the_file() {
    let files = files();
    let mut log = writer(&files);
    let lines = (HEAD_BYTES + TAIL_BYTES) / 16;
    numbered(&mut log, 0, lines);
    let text = io::read_to_string(&files.0).unwrap();
    assert!(text.lines().enumerate().all(|(at, line)| line.parse() == Ok(at)));
    assert_eq!(text.len() as u64, lines * 16);
    assert_eq!(balance(&reopened(&files)), (lines * 16, 0));
}

/// A command that changes the stream with every byte stays in bounds too.
#[test]
fn many_short_runs_are_bounded_and_told_apart() {
    let files = files();
    let mut log = writer(&files);
    let total: u64 = 600_000;
    for at in 0..total {
        log.append(if at % 2 == 0 { Stream::Stdout } else { Stream::Stderr }, b"x");
    }
    assert!(on_disk(&files) <= 12 << 20, "{}", on_disk(&files));
    let reopened = reopened(&files);
    for log in [log.log(), &reopened] {
        let (kept, lost) = balance(log);
        assert!(kept > 400_000 && lost > 0, "{kept} {lost}");
        let mut cursor = Cursor::at(total - 1000);
        for at in total - 1000..total {
            let stream = if at % 2 == 0 { Stream::Stdout } else { Stream::Stderr };
            assert_eq!(log.read(&mut cursor, 9).unwrap(), Some(data(stream, "x")), "{at}");
        }
    }
}

#[test]
fn a_slow_reader_makes_the_command_wait() {
    let mut log = writer(&files());
    let chunk = vec![b'x'; CHUNK];
    let mut written = 0;
    while log.has_room(Some(5)) {
        log.append(Stream::Stdout, &chunk);
        written += chunk.len() as u64;
        assert!(written <= HEAD_BYTES + TAIL_BYTES);
    }
    assert_eq!(log.log().dropped(), 0);
    assert_eq!(written, HEAD_BYTES + TAIL_BYTES);
    assert!(log.has_room(Some(written)), "the reader has caught up");
}

/// Where all logs together are too large, one grows by a step at most, and keeps its end.
#[test]
fn a_restricted_log_stops_growing() {
    for before in [0, 1 << 20, 30 << 20] {
        let files = files();
        let mut log = writer(&files);
        let lines = (before + (20 << 20)) / 16;
        numbered(&mut log, 0, before / 16);
        log.restrict();
        numbered(&mut log, before / 16, lines);
        assert!(on_disk(&files) <= before + STEP_BYTES + (1 << 20), "{before}: {}", on_disk(&files));
        for log in [log.log(), &reopened(&files)] {
            assert!(balance(log).0 >= STEP_BYTES);
            check_numbers(log);
            let end = read_all(log, lines * 16 - 16);
            assert!(matches!(&end[..], [Piece::Data(_, bytes)] if *bytes == format!("{:015}\n", lines - 1).as_bytes()));
        }
    }
}

/// Where files may not be large, the end is kept all the same.
#[test]
fn a_log_keeps_to_the_largest_file() {
    let files = files();
    let mut log = LogWriter::new(files.0.try_clone().unwrap(), files.1.try_clone().unwrap(), 4 << 20);
    numbered(&mut log, 0, (10 << 20) / 16);
    assert!(files.0.metadata().unwrap().len() <= 4 << 20);
    for log in [log.log(), &reopened(&files)] {
        assert_eq!(balance(log).0, 4 << 20);
        check_numbers(log);
    }
}

#[test]
fn a_log_that_was_taken_away_reads_as_lost() {
    let files = files();
    let mut log = writer(&files);
    log.append(Stream::Stdout, b"gone");
    files.0.set_len(0).unwrap();
    assert_eq!(read_all(log.log(), 1), [Piece::Lost(3)]);
    let mut reopened = reopened(&files);
    reopened.extend_to(4);
    assert_eq!(read_all(&reopened, 1), [Piece::Lost(3)]);
}

/// A command may write anything where it can write to podbayd's directory: reading it ends, and takes no more than a log.
#[test]
fn nonsense_is_bounded() {
    let garbage = |byte: u8| vec![byte; 1 << 20];
    for (layout, fill) in [
        ([0, 0, 0], 0xff),
        ([u64::MAX; 3], 0),
        ([0, 1, u64::MAX], 0xff),
        ([HEAD_BYTES, TAIL_BYTES, u64::MAX], 1),
        ([5, 7, 1 << 60], 2),
    ] {
        let files = files();
        files.1.write_all_at(&garbage(fill), LAYOUT_AT).unwrap();
        files.1.write_all_at(layout.map(u64::to_le_bytes).as_flattened(), LAYOUT_AT).unwrap();
        files.0.set_len(1 << 40).unwrap();
        let Ok(log) = Log::open(files.0.try_clone().unwrap(), files.1.try_clone().unwrap()) else { continue };
        let mut cursor = Cursor::default();
        let mut kept = 0;
        while let Some(piece) = log.read(&mut cursor, CHUNK).unwrap() {
            if let Piece::Data(_, bytes) = piece {
                assert!(!bytes.is_empty());
                kept += bytes.len() as u64;
            }
        }
        assert!(kept <= HEAD_BYTES + TAIL_BYTES);
    }
}
