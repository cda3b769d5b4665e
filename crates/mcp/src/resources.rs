//! Files and outputs of commands as resources: what doesn't fit into a tool's result is read here.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use podbay::files::Read;
use podbay::{ExecId, Info, RawPath, utf8};
use rmcp::model::{MetaObject, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use crate::failure::Failure;
use crate::reply::{META, quoted, shown};
use crate::session::Session;
use crate::tools::page;

/// Where URIs of files begin; an absolute path follows.
const FILE: &str = "podbay://file";

/// Where URIs of outputs begin.
const EXEC: &str = "podbay://exec/";

/// The most bytes of one answer. An offset in the URI reaches the rest.
const MOST: u64 = 1 << 20;

/// How many commands a list has at most, the newest.
const LISTED: usize = 100;

/// How much of a command its output has as a title.
const TITLE: usize = 200;

/// The templates of the URIs.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{FILE}{{+path}}{{?offset}}"), "file")
            .with_title("A file in the sandbox")
            .with_description(
                "A file by its absolute path, at most 1 MiB from a byte offset on; _meta has the offset of the rest.",
            ),
        ResourceTemplate::new(format!("{EXEC}{{id}}/output{{?offset}}"), "output")
            .with_title("The output of a command")
            .with_description(
                "What a command printed, at most 1 MiB from a byte offset on; _meta has the offset of the rest.",
            )
            .with_mime_type("text/plain"),
    ]
}

/// The output of a command.
pub(crate) fn output(info: &Info) -> Resource {
    Resource::new(format!("{EXEC}{}/output", info.id), format!("output of {}", info.id))
        .with_title(quoted(&info.command, TITLE))
        .with_description("The whole output of the command")
        .with_mime_type("text/plain")
        .with_size(info.output_bytes)
}

/// A file.
pub(crate) fn file(path: &RawPath, size: u64) -> Resource {
    Resource::new(format!("{FILE}{}", encoded(path)), shown(path)).with_mime_type(mime_type(path)).with_size(size)
}

/// The outputs of the session's commands. No sandbox is created for this.
pub(crate) async fn list(session: &Session) -> Result<Vec<Resource>, Failure> {
    let Some(sandbox) = session.current() else { return Ok(Vec::new()) };
    let commands = sandbox.commands(false).await?;
    let newest = commands.iter().rev().filter(|info| info.output_bytes > 0).take(LISTED);
    Ok(newest.map(output).collect())
}

/// Reads a resource. `None` if the URI isn't one of this server's.
pub(crate) async fn read(session: &Session, uri: &str) -> Result<Option<ReadResourceResult>, Failure> {
    let (place, query) = uri.split_once('?').unwrap_or((uri, ""));
    let Some(offset) = offset(query) else { return Ok(None) };
    if let Some(path) = place.strip_prefix(FILE).filter(|path| path.starts_with('/')) {
        let Some(path) = decoded(path) else { return Ok(None) };
        return file_contents(session, uri, path.into(), offset).await.map(Some);
    }
    let id = place.strip_prefix(EXEC).and_then(|rest| rest.strip_suffix("/output"));
    let Some(id) = id.and_then(|id| ExecId::new(id).ok()) else { return Ok(None) };
    let page = page(&session.open().await?, &id, offset, MOST, Duration::ZERO).await?;
    let next = (page.next < page.info.output_bytes).then_some(page.next);
    let text = String::from_utf8_lossy(&page.bytes).into_owned();
    Ok(Some(contents(ResourceContents::text(text, uri), page.info.output_bytes, next)))
}

async fn file_contents(
    session: &Session,
    uri: &str,
    path: RawPath,
    offset: u64,
) -> Result<ReadResourceResult, Failure> {
    let kind = mime_type(&path);
    let request = Read::new(path).range(offset, Some(MOST));
    let (page, mut bytes) = session.open().await?.read(request).await?;
    if offset.saturating_add(bytes.len() as u64) < page.size {
        bytes.truncate(utf8::floor_char_boundary(&bytes));
    }
    let end = offset.saturating_add(bytes.len() as u64);
    let next = (end < page.size).then_some(end);
    let found = match String::from_utf8(bytes.to_vec()) {
        Ok(text) => {
            let kind = if kind == UNKNOWN { "text/plain" } else { kind };
            ResourceContents::text(text, uri).with_mime_type(kind)
        }
        Err(other) => ResourceContents::blob(BASE64.encode(other.as_bytes()), uri).with_mime_type(kind),
    };
    Ok(contents(found, page.size, next))
}

fn contents(found: ResourceContents, size: u64, next: Option<u64>) -> ReadResourceResult {
    let mut meta = MetaObject::default();
    meta.0.insert(META.to_owned(), json!({ "size": size, "next_offset": next }));
    ReadResourceResult::new(vec![found.with_meta(meta)])
}

/// The offset in a query; 0 if there is no query, none if it says something else.
fn offset(query: &str) -> Option<u64> {
    match query {
        "" => Some(0),
        query => query.strip_prefix("offset=")?.parse().ok(),
    }
}

/// A path in a URI: everything but plain characters is percent-encoded.
fn encoded(path: &RawPath) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let one = |byte: &u8| match plain(*byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.as_bytes().iter().map(one).collect()
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut path = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            path.push(byte);
            continue;
        }
        let mut digit = || (bytes.next()? as char).to_digit(16);
        let value = digit()? * 16 + digit()?;
        path.push(u8::try_from(value).ok()?);
    }
    Some(path)
}

/// The type of a file that isn't known.
const UNKNOWN: &str = "application/octet-stream";

/// The MIME type by a file's extension.
pub(crate) fn mime_type(path: &RawPath) -> &'static str {
    let name = path.to_string_lossy().to_ascii_lowercase();
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("svg") => "image/svg+xml",
        Some("pdf") => "application/pdf",
        Some("json") => "application/json",
        Some("html" | "htm") => "text/html",
        Some("css") => "text/css",
        Some("csv") => "text/csv",
        Some("md") => "text/markdown",
        Some("zip") => "application/zip",
        Some("gz") => "application/gzip",
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_its_uri() {
        for path in [&b"/workspace/a b.txt"[..], b"/x/%41", "/ä/ö?#".as_bytes(), b"/\xff\n"] {
            let raw = RawPath::from(path);
            assert!(encoded(&raw).bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte)));
            assert_eq!(decoded(&encoded(&raw)).unwrap(), path);
        }
        for bad in ["/%", "/%4", "/%zz", "/%é"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_query_is_an_offset_or_nothing() {
        assert_eq!((offset(""), offset("offset=7")), (Some(0), Some(7)));
        for bad in ["offset=", "offset=-1", "x=1", "offset=1&x=2"] {
            assert_eq!(offset(bad), None, "{bad}");
        }
    }
}
