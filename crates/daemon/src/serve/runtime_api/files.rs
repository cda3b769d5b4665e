//! `/upload`, `/download`, `/list` and `/exists`: files below the base directory.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use podbay_fsops::{Cancel, PendingWrite};
use podbay_proto::body::Payload;
use podbay_proto::files::{Download, Entry, Kind, Ls, Stat, Write};
use podbay_proto::{Error, ErrorCode, RawPath};
use serde::Serialize;
use serde_json::json;

use super::answer::{self, Answer};
use super::arriving::Arriving;
use super::base_dir::{ConfinedPath, PathRefusal};
use super::multipart::{Event, Malformed, Parser};
use super::{Request, RuntimeApi};
use crate::serve::blocking::blocking;

/// How much of a file is read at once.
const PIECE: usize = 256 << 10;

/// The most entries of a directory.
const MOST_ENTRIES: u64 = 100_000;

fn denied() -> Answer {
    answer::message(StatusCode::FORBIDDEN, "Access denied")
}

fn not_found() -> Answer {
    answer::message(StatusCode::NOT_FOUND, "File not found")
}

fn server_error(text: &str) -> Answer {
    answer::message(StatusCode::INTERNAL_SERVER_ERROR, text)
}

/// Whether an operation was refused because its path leads out of the base directory, or to what podbayd keeps in it.
fn is_denied(error: &Error) -> bool {
    matches!(error.code, ErrorCode::EscapesRoot | ErrorCode::PolicyDenied)
}

/// Does what blocks on a thread of its own.
async fn on_thread(work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    blocking(work).await.unwrap_or_else(|error| server_error(&error.message))
}

/// Receives a file.
pub(super) async fn upload(api: Arc<RuntimeApi>, request: Request) -> Answer {
    let parser = request.headers().get(CONTENT_TYPE).and_then(|kind| Parser::new(kind.as_bytes()));
    let mut body = Arriving::new(request.into_body());
    let received = match parser {
        Some(Ok(parser)) => receive(&api, parser, &mut body).await,
        Some(Err(Malformed)) => Err(answer::detail(StatusCode::BAD_REQUEST, "Missing boundary in multipart.").into()),
        None => Err(no_file().into()),
    };
    match received {
        Ok((pending, filename)) => {
            let commit = move || match pending.commit() {
                Ok(_) => {
                    let text = format!("File '{}' uploaded successfully.", String::from_utf8_lossy(&filename));
                    answer::message(StatusCode::OK, &text)
                }
                Err(error) => upload_failed(&error),
            };
            on_thread(commit).await
        }
        Err(answer) => {
            body.drain().await;
            *answer
        }
    }
}

fn no_file() -> Answer {
    answer::invalid("missing", &["body", "file"], "Field required")
}

fn upload_failed(error: &Error) -> Answer {
    match is_denied(error) {
        true => denied(),
        false => server_error(&format!("File upload failed: {}", error.message)),
    }
}

/// Writes the form's file beside its target. It takes the target's place only once the form is complete.
async fn receive(
    api: &Arc<RuntimeApi>,
    mut parser: Parser,
    body: &mut Arriving,
) -> Result<(PendingWrite, Vec<u8>), Box<Answer>> {
    let malformed =
        |_: Malformed| Box::new(answer::detail(StatusCode::BAD_REQUEST, "There was an error parsing the body"));
    let mut file: Option<(PendingWrite, Vec<u8>)> = None;
    let mut in_file = false;
    loop {
        let Some(event) = parser.next().map_err(malformed)? else {
            match body.next().await {
                Ok(Some(piece)) => parser.feed(&piece),
                // It ends before its last delimiter.
                Ok(None) | Err(_) => return Err(malformed(Malformed)),
            }
            continue;
        };
        match event {
            Event::Part(head) => {
                let filename = head.filename.filter(|_| head.name == b"file");
                in_file = filename.is_some();
                match (filename, &file) {
                    (Some(_), Some(_)) => {
                        return Err(answer::detail(StatusCode::BAD_REQUEST, "There is more than one file.").into());
                    }
                    (Some(filename), None) => file = Some((begin(api, filename.clone()).await?, filename)),
                    (None, _) => {}
                }
            }
            Event::Data(data) if in_file => {
                if let Some((pending, filename)) = file.take() {
                    file = Some((append(pending, data).await?, filename));
                }
            }
            Event::Data(_) => {}
            Event::End => return file.ok_or_else(|| no_file().into()),
        }
    }
}

async fn begin(api: &Arc<RuntimeApi>, filename: Vec<u8>) -> Result<PendingWrite, Box<Answer>> {
    let api = api.clone();
    let begun = blocking(move || {
        let ConfinedPath { scope, path } = api.base.resolve(&filename).map_err(|why| match why {
            PathRefusal::Denied => Box::new(denied()),
            PathRefusal::Missing => Box::new(server_error("File upload failed: the file can't have that name")),
        })?;
        let write = Write { scope, ..Write::new(path) };
        api.daemon.files.start_write(&write).map_err(|error| upload_failed(&error).into())
    });
    begun.await.unwrap_or_else(|error| Err(server_error(&error.message).into()))
}

async fn append(mut pending: PendingWrite, data: Bytes) -> Result<PendingWrite, Box<Answer>> {
    let written = blocking(move || pending.write(&data).map(|()| pending));
    written.await.and_then(|written| written).map_err(|error| upload_failed(&error).into())
}

/// Sends a file.
pub(super) async fn download(api: Arc<RuntimeApi>, path: Vec<u8>) -> Answer {
    on_thread(move || {
        let (output, file) = match api.base.resolve(&path) {
            Err(PathRefusal::Denied) => return denied(),
            Err(PathRefusal::Missing) => return not_found(),
            Ok(ConfinedPath { scope, path }) => {
                match api.daemon.files.open_download(&Download { scope, ..Download::new(path) }) {
                    Ok(opened) => opened,
                    Err(error) if is_denied(&error) => return denied(),
                    Err(error) if error.code == ErrorCode::PermissionDenied => return server_error(&error.message),
                    Err(_) => return not_found(),
                }
            }
        };
        let mut file = file;
        // A small file takes no second trip to a thread.
        let mut first = match next_piece(&mut file) {
            Ok(first) => first.unwrap_or_default(),
            Err(error) => return server_error(&error.to_string()),
        };
        let whole = first.len() as u64 == output.length;
        let mut answer = match whole {
            true => answer::content(Payload::Bytes(std::mem::take(&mut first))),
            false => {
                let chained = io::Cursor::new(first).chain(file);
                answer::content(answer::stream(chained, next_piece))
            }
        };
        let headers = answer.headers_mut();
        headers.insert(CONTENT_LENGTH, output.length.into());
        headers.insert(CONTENT_DISPOSITION, disposition(&path));
        answer
    })
    .await
}

fn next_piece(file: &mut impl Read) -> io::Result<Option<Bytes>> {
    let mut piece = Vec::with_capacity(PIECE);
    file.take(PIECE as u64).read_to_end(&mut piece)?;
    Ok((!piece.is_empty()).then(|| piece.into()))
}

/// Under which name a file is saved: plain where no character needs to be encoded.
fn disposition(path: &[u8]) -> HeaderValue {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-~/".contains(byte);
    let value = match path.iter().all(plain) {
        true => [&b"attachment; filename=\""[..], path, b"\""].concat(),
        false => {
            let encode = |byte: u8| if plain(&byte) { vec![byte] } else { format!("%{byte:02X}").into_bytes() };
            let encoded = path.iter().copied().flat_map(encode);
            b"attachment; filename*=utf-8''".iter().copied().chain(encoded).collect()
        }
    };
    HeaderValue::from_bytes(&value).unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}

#[derive(Serialize)]
struct Listed {
    name: String,
    size: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    mod_time: f64,
}

/// Lists a directory.
pub(super) async fn list(api: Arc<RuntimeApi>, path: Vec<u8>) -> Answer {
    // Long lists take memory until they are sent.
    let Ok(room) = api.lists.clone().acquire_owned().await else { return server_error("podbayd is shutting down") };
    let listed = on_thread(move || {
        let place = match api.base.resolve(&path) {
            Ok(place) => place,
            Err(PathRefusal::Denied) => return denied(),
            Err(PathRefusal::Missing) => return not_a_directory(),
        };
        let failed = |why: &str| server_error(&format!("List files failed: {why}"));
        let request = Ls { path: Some(place.path), scope: place.scope, limit: MOST_ENTRIES };
        match api.daemon.files.ls(&request, &Cancel::new()) {
            Ok(output) => match output.partial {
                Some(partial) => failed(&partial.detail),
                None => {
                    let list = |entry| listed(&api, entry);
                    answer::json(StatusCode::OK, &output.entries.into_iter().map(list).collect::<Vec<_>>())
                }
            },
            Err(error) if is_denied(&error) => denied(),
            Err(error) if error.code == ErrorCode::PermissionDenied => failed(&error.message),
            Err(_) => not_a_directory(),
        }
    });
    answer::keeping(listed.await, room)
}

fn not_a_directory() -> Answer {
    answer::message(StatusCode::NOT_FOUND, "Path is not a directory")
}

/// A link is described by what it leads to, as in the stock runtime; one that leads nowhere, or out of the base directory, by
/// itself.
fn listed(api: &RuntimeApi, entry: Entry) -> Listed {
    let path = entry.path.clone();
    let target = (entry.kind == Kind::Link).then(|| {
        let ConfinedPath { scope, path } = api.base.resolve(path.as_bytes()).ok()?;
        api.daemon.files.stat(&Stat { scope, ..Stat::new(path) }).ok()
    });
    let entry = target.flatten().map_or(entry, |target| target.entry);
    Listed {
        name: name_of(&path),
        size: entry.size,
        kind: if entry.kind == Kind::Dir { "directory" } else { "file" },
        mod_time: entry.modified.secs as f64 + f64::from(entry.modified.nanos) * 1e-9,
    }
}

fn name_of(path: &RawPath) -> String {
    let name = path.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Says whether something exists.
pub(super) async fn exists(api: Arc<RuntimeApi>, path: Vec<u8>) -> Answer {
    on_thread(move || {
        let exists = match api.base.resolve(&path) {
            Err(PathRefusal::Denied) => return denied(),
            Err(PathRefusal::Missing) => false,
            Ok(place) => match api.daemon.files.stat(&Stat { scope: place.scope, ..Stat::new(place.path) }) {
                Err(error) if is_denied(&error) => return denied(),
                found => found.is_ok(),
            },
        };
        let path = String::from_utf8_lossy(&path);
        answer::json(StatusCode::OK, &json!({"path": path, "exists": exists}))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_has_a_name_that_no_header_can_be_made_of() {
        for (path, value) in [
            ("a/b.txt", "attachment; filename=\"a/b.txt\""),
            ("a b", "attachment; filename*=utf-8''a%20b"),
            ("a\"\r\nX: y", "attachment; filename*=utf-8''a%22%0D%0AX%3A%20y"),
            ("ü", "attachment; filename*=utf-8''%C3%BC"),
        ] {
            assert_eq!(disposition(path.as_bytes()), value, "{path:?}");
        }
    }
}
