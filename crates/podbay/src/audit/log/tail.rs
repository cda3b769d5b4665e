//! The end of the log: which entry is the last, and what stands behind it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::super::chain::{Head, LONGEST, Link, is_torn};
use super::{Last, rotation};

/// How far back an entry is looked for. A torn line has at most [`LONGEST`] bytes.
const FARTHEST: u64 = 2 * LONGEST as u64;

/// How much is read first: the last line is seldom longer.
const FIRST: u64 = 4096;

/// The end of a log file.
#[derive(Debug)]
pub(super) struct Tail {
    /// The last entry, of this file or of the one before; none at the beginning of a log.
    pub(super) last: Option<Last>,
    /// The file's length.
    pub(super) length: u64,
    /// What stands behind the last entry and isn't one.
    pub(super) unreadable: Vec<u8>,
    /// Whether the file ends with a newline, or is empty.
    terminated: bool,
    device: u64,
    inode: u64,
}

impl Tail {
    /// Looks at the end of an open file. `known` is the last entry that this writer knows of.
    pub(super) fn find(file: &File, meta: &Metadata, path: &Path, known: Option<&Last>) -> io::Result<Self> {
        let (device, inode, length) = (meta.dev(), meta.ino(), meta.len());
        let same_file = known.filter(|last| (last.device, last.inode) == (device, inode));
        let mut tail = Self { last: None, length, unreadable: Vec::new(), terminated: true, device, inode };
        if let Some(last) = same_file.filter(|last| last.length == length) {
            tail.last = Some(last.clone());
            return Ok(tail);
        }
        let (link, unreadable, terminated) = read(file, length)?;
        (tail.unreadable, tail.terminated) = (unreadable, terminated);
        tail.last = match link {
            Some(link) => {
                let number = match same_file {
                    Some(last) => last.number,
                    None => first_number(file)?.unwrap_or(1),
                };
                Some(Last { link, number, device, inode, length })
            }
            None => previous(path)?,
        };
        // If the log has become shorter than it was, someone has cut it. Going on from what this writer knows leaves a gap, which
        // will be found; going on from what is there would cover it up.
        if let Some(known) = known.filter(|known| tail.last.as_ref().is_none_or(|last| last.link.seq < known.link.seq))
        {
            tail.last = Some(known.clone());
        }
        Ok(tail)
    }

    /// Where the chain continues.
    pub(super) fn link(&self) -> Link {
        self.last.as_ref().map_or_else(Link::genesis, |last| last.link.clone())
    }

    /// The number of this file in the sequence of rotated files.
    pub(super) fn number(&self) -> u64 {
        match &self.last {
            Some(last) if (last.device, last.inode) == (self.device, self.inode) => last.number,
            Some(last) => last.number.saturating_add(1),
            None => 1,
        }
    }

    /// Whether the next entry is the first of this file.
    pub(super) fn has_no_entry(&self) -> bool {
        self.unreadable.len() as u64 == self.length
    }

    /// Whether the file has content, but no entry, nor the beginning of its first one.
    pub(super) fn is_foreign(&self) -> bool {
        !self.unreadable.is_empty()
            && self.last.as_ref().is_none_or(|last| (last.device, last.inode) != (self.device, self.inode))
            && !is_torn(self.unreadable_line(), &self.link())
    }

    /// What stands behind the last entry, without its last newline.
    pub(super) fn unreadable_line(&self) -> &[u8] {
        self.unreadable.strip_suffix(b"\n").unwrap_or(&self.unreadable)
    }

    /// Writes a line at the end; what is then the last entry. A write that fails halfway is taken back.
    pub(super) fn write(&self, mut file: &File, mut line: Vec<u8>, link: Link) -> io::Result<Last> {
        if !self.terminated {
            line.insert(0, b'\n');
        }
        if let Err(error) = file.write_all(&line) {
            // Where that isn't possible either, the next writer finds an incomplete line.
            if let Err(error) = file.set_len(self.length) {
                tracing::warn!(%error, "can't remove an incomplete entry from the audit log");
            }
            return Err(error);
        }
        let length = self.length + line.len() as u64;
        Ok(Last { link, number: self.number(), device: self.device, inode: self.inode, length })
    }
}

/// The last entry of a file, what stands behind it, and whether the file ends with a newline.
fn read(file: &File, length: u64) -> io::Result<(Option<Link>, Vec<u8>, bool)> {
    let mut span = FIRST.min(length);
    loop {
        let start = length - span;
        let mut bytes = vec![0; usize::try_from(span).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, start)?;
        // The first line counts only when its beginning is among what was read.
        let whole =
            if start == 0 { 0 } else { bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1) };
        let terminated = bytes.is_empty() || bytes.ends_with(b"\n");
        let mut end = bytes.len();
        while end > whole {
            let line_end = if bytes[..end].ends_with(b"\n") { end - 1 } else { end };
            let line_start =
                bytes[whole..line_end].iter().rposition(|byte| *byte == b'\n').map_or(whole, |at| whole + at + 1);
            let line = &bytes[line_start..line_end];
            // A line without its newline is complete if its hash says so.
            if let Some(head) = Head::parse(line).filter(|head| line_end < end || head.fits(line)) {
                return Ok((Some(head.link()), bytes.split_off(end), terminated));
            }
            end = line_start;
        }
        if start == 0 || span >= FARTHEST {
            return Ok((None, bytes, terminated));
        }
        span = (span * 16).min(length).min(FARTHEST);
    }
}

/// The number that the first line of a file says.
fn first_number(mut file: &File) -> io::Result<Option<u64>> {
    file.seek(SeekFrom::Start(0))?;
    let mut line = Vec::new();
    BufReader::new(file).take(LONGEST as u64).read_until(b'\n', &mut line)?;
    Ok(Head::parse(line.trim_ascii_end()).and_then(|head| head.file))
}

/// The last entry of the newest full file, with which a new file begins.
fn previous(path: &Path) -> io::Result<Option<Last>> {
    for (number, path) in rotation::rotated(path)?.into_iter().rev() {
        let Some((file, meta)) = open_full(&path)? else { continue };
        let (link, ..) = read(&file, meta.len())?;
        // Other files may have such a name too.
        if let Some(link) = link {
            return Ok(Some(Last { link, number, device: meta.dev(), inode: meta.ino(), length: meta.len() }));
        }
    }
    Ok(None)
}

/// Whether a file is one that a log has filled: its first entry says that it is the first of a file. An incomplete line may stand
/// before it.
pub(super) fn begins_a_file_of_a_log(path: &Path) -> io::Result<bool> {
    let Some((file, _)) = open_full(path)? else { return Ok(false) };
    let mut lines = BufReader::new(file);
    for _ in 0..2 {
        let mut line = Vec::new();
        lines.by_ref().take(LONGEST as u64).read_until(b'\n', &mut line)?;
        if let Some(head) = Head::parse(line.trim_ascii_end()) {
            return Ok(head.file.is_some());
        }
    }
    Ok(false)
}

/// Opens a file that has the name of a full one; nothing if it isn't a regular file of this user's, whatever it says, or has been
/// removed meanwhile.
fn open_full(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let is_ours = |meta: &Metadata| meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
    match std::fs::symlink_metadata(path) {
        Ok(meta) if is_ours(&meta) => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => return Ok(None),
        opened => opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?,
    };
    let meta = file.metadata()?;
    Ok(is_ours(&meta).then_some((file, meta)))
}
