//! Replacing text in a file.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read as _;

use memchr::memmem;
use podbay_proto::files::{Edit, EditOutput, LineEndings};
use podbay_proto::{Error, ErrorCode, RawPath, Result};
use rustix::fs::OFlags;

use crate::Files;
use crate::identity::{Identity, size};
use crate::read::expect_file;
use crate::resolve::{Access, Lookup};
use crate::resolved_path::ResolvedPath;
use crate::write::Target;

/// The largest file that can be edited: it is in memory twice.
const MOST: u64 = 256 << 20;

impl Files {
    /// Replaces text in a file. The payload is the old text, then the new one.
    ///
    /// # Errors
    /// When the old text isn't in the file, or more than once and not all are to be replaced; when the file isn't text, or
    /// can't be read or written; when someone else changes it meanwhile. The file is unchanged then.
    pub fn edit(&self, request: &Edit, payload: &[u8]) -> Result<EditOutput> {
        self.start_edit(request, payload)?.finish(request, payload)
    }

    /// Checks a request and finds its file. A caller with other work to do checks the file's [size](PendingEdit::size)
    /// before [finishing](PendingEdit::finish) the edit.
    ///
    /// # Errors
    /// When the request makes no sense, or the path doesn't lead to a regular file.
    pub fn start_edit(&self, request: &Edit, payload: &[u8]) -> Result<PendingEdit> {
        check_texts(request, payload)?;
        let resolver = self.resolver(&request.scope)?;
        let resolved = resolver.allowed(&request.path, Lookup { follow: true, parents: false }, Access::Change)?;
        let stat = resolved.stat()?;
        expect_file(&resolved, &stat)?;
        Ok(PendingEdit { files: self.clone(), resolved, size: size(&stat) })
    }
}

/// An edit whose file is known. Nothing has been read yet.
#[derive(Debug)]
pub struct PendingEdit {
    files: Files,
    resolved: ResolvedPath,
    size: u64,
}

impl PendingEdit {
    /// The file's size when it was found.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Replaces the text: the same request and payload that the edit was started with.
    ///
    /// # Errors
    /// As [`Files::edit`].
    pub fn finish(self, request: &Edit, payload: &[u8]) -> Result<EditOutput> {
        let Self { files, resolved, .. } = self;
        // No more than the payload's length, which fits.
        let (old, new) = payload.split_at((request.old_length as usize).min(payload.len()));
        // Opened under the lock: otherwise the file that another edit is about to replace would be read.
        let _lock = files.lock(resolved.lock_key());
        let mut file = File::from(resolved.open(OFlags::RDONLY | OFlags::NONBLOCK)?);
        let stat = rustix::fs::fstat(&file).map_err(|error| resolved.error(error))?;
        expect_file(&resolved, &stat)?;
        let length = size(&stat);
        if length > MOST {
            let message = format!("has {length} bytes; only files up to {MOST} bytes can be edited");
            return Err(Error::at(ErrorCode::TooLarge, &resolved.asked, message).with_count(length));
        }
        let mut content = Vec::with_capacity(length as usize + 1);
        (&mut file).take(MOST + 1).read_to_end(&mut content).map_err(|error| resolved.error(error))?;
        if std::str::from_utf8(&content).is_err() {
            let message = "isn't a text file: it has bytes that aren't UTF-8";
            return Err(Error::at(ErrorCode::NotText, &resolved.asked, message));
        }
        let edited = match old.is_empty() {
            true => Edited::fill(&content, new, &resolved.asked)?,
            false => replace(&content, old, new, request.replace_all, &resolved.asked)?,
        };
        let path = resolved.shown.clone();
        let mut in_place = false;
        if let Some(content) = &edited.content {
            let mut target = Target::new(resolved, false, None, Some(content.len() as u64))?;
            target.write(content)?;
            in_place = target.commit(Some(Identity::from(&stat)))?.in_place;
        }
        Ok(EditOutput {
            path,
            occurrences: edited.occurrences,
            line_endings: edited.line_endings,
            first_line: edited.first_line,
            size: edited.content.as_ref().map_or(length, |content| content.len() as u64),
            in_place,
        })
    }
}

/// Whether the payload is the old and the new text that the request announces.
fn check_texts(request: &Edit, payload: &[u8]) -> Result<()> {
    let total = request.old_length.checked_add(request.new_length);
    if total != Some(payload.len() as u64) {
        let message = format!(
            "{} and {} bytes were announced for the old and the new text, but {} arrived",
            request.old_length,
            request.new_length,
            payload.len()
        );
        return Err(Error::at(ErrorCode::BadMessage, &request.path, message));
    }
    // No more than the payload's length, which fits.
    let (old, new) = payload.split_at(request.old_length as usize);
    if old.is_empty() && !request.fill_empty {
        let message = "the text to replace is empty: give the exact text to replace";
        return Err(Error::at(ErrorCode::InvalidArgument, &request.path, message));
    }
    if std::str::from_utf8(old).is_err() || std::str::from_utf8(new).is_err() {
        let message = "the old and the new text must each be UTF-8";
        return Err(Error::at(ErrorCode::InvalidArgument, &request.path, message));
    }
    Ok(())
}

/// An edited text.
#[derive(Debug)]
pub(crate) struct Edited {
    /// The new content; none if nothing has to be written.
    pub(crate) content: Option<Vec<u8>>,
    pub(crate) occurrences: u64,
    pub(crate) line_endings: LineEndings,
    pub(crate) first_line: u64,
}

impl Edited {
    fn fill(content: &[u8], new: &[u8], path: &RawPath) -> Result<Self> {
        if !content.is_empty() {
            let message = "the text to replace is empty and the file isn't: give the exact text to replace";
            return Err(Error::at(ErrorCode::InvalidArgument, path, message));
        }
        let occurrences = u64::from(!new.is_empty());
        let content = (!new.is_empty()).then(|| new.to_vec());
        Ok(Self { content, occurrences, line_endings: LineEndings::AsSent, first_line: 1 })
    }
}

/// Replaces `old` by `new`: as sent, else with CRLF line endings, else with LF; the first form that occurs is used.
pub(crate) fn replace(content: &[u8], old: &[u8], new: &[u8], all: bool, path: &RawPath) -> Result<Edited> {
    let forms = [LineEndings::AsSent, LineEndings::Crlf, LineEndings::Lf];
    for line_endings in forms {
        let (old, new) = (form(old, line_endings), form(new, line_endings));
        let finder = memmem::Finder::new(&old);
        let Some(first) = finder.find(content) else { continue };
        let mut result = Vec::with_capacity(content.len() + new.len());
        let mut rest = 0;
        let mut occurrences = 0;
        for at in finder.find_iter(content) {
            occurrences += 1;
            if all || occurrences == 1 {
                result.extend_from_slice(&content[rest..at]);
                result.extend_from_slice(&new);
                rest = at + old.len();
            }
        }
        if occurrences > 1 && !all {
            let message = format!(
                "the text to replace occurs {occurrences} times: include more of the surrounding text, or replace all"
            );
            return Err(Error::at(ErrorCode::StringNotUnique, path, message).with_count(occurrences));
        }
        result.extend_from_slice(&content[rest..]);
        let first_line = memchr::memchr_iter(b'\n', &content[..first]).count() as u64 + 1;
        let content = (old != new).then_some(result);
        return Ok(Edited { content, occurrences, line_endings, first_line });
    }
    let trimmed = old.strip_suffix(b"\n").filter(|trimmed| !trimmed.is_empty());
    let message = match trimmed.is_some_and(|trimmed| content.ends_with(trimmed)) {
        true => {
            "the text to replace isn't in the file: it ends with a line break and the file doesn't; omit the line \
                 break"
        }
        false => "the text to replace isn't in the file",
    };
    Err(Error::at(ErrorCode::StringNotFound, path, message))
}

/// A text with its line endings in one form.
fn form(text: &[u8], line_endings: LineEndings) -> Cow<'_, [u8]> {
    match line_endings {
        LineEndings::AsSent => Cow::Borrowed(text),
        LineEndings::Lf => Cow::Owned(with_lf(text)),
        LineEndings::Crlf => {
            let text = with_lf(text);
            let mut out = Vec::with_capacity(text.len() + text.len() / 16);
            for line in text.split_inclusive(|&byte| byte == b'\n') {
                match line.strip_suffix(b"\n") {
                    Some(line) => out.extend_from_slice(&[line, b"\r\n"].concat()),
                    None => out.extend_from_slice(line),
                }
            }
            Cow::Owned(out)
        }
    }
}

fn with_lf(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = 0;
    for at in memmem::find_iter(text, b"\r\n") {
        out.extend_from_slice(&text[rest..at]);
        rest = at + 1;
    }
    out.extend_from_slice(&text[rest..]);
    out
}
