//! The tools for files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use podbay::files::{Encoding, Entry, Kind, ReadOutput, WriteOutput};
use podbay::utf8;
use rmcp::model::{ContentBlock, JsonObject};
use serde_json::json;

use crate::arguments::{
    self, EditArguments, GlobArguments, GrepArguments, LsArguments, ReadArguments, UploadArguments, WriteArguments,
};
use crate::failure::Failure;
use crate::reply::{Lines, Reply, exact, one_line, shown};
use crate::resources;
use crate::session::Session;

/// The most entries or matches that are fetched. More wouldn't fit into a result.
const MOST: u64 = 5_000;

pub(super) async fn call(session: &Session, name: &str, arguments: Option<JsonObject>) -> Result<Reply, Failure> {
    let most = session.options().max_output;
    match name {
        "read" => {
            let request = arguments::parse::<ReadArguments>(name, arguments)?.request(most);
            let (page, content) = session.open().await?.read(request).await?;
            Ok(read(&page, &content, most))
        }
        "write" => {
            let arguments: WriteArguments = arguments::parse(name, arguments)?;
            let request = arguments.request();
            Ok(written(&session.open().await?.write(request, arguments.content).await?))
        }
        "upload" => {
            let arguments: UploadArguments = arguments::parse(name, arguments)?;
            let request = arguments.request();
            let content = BASE64.decode(arguments.content_base64.trim()).map_err(|error| {
                Failure::Arguments(format!("content_base64 isn't valid base64 ({error}): encode the content again"))
            })?;
            Ok(written(&session.open().await?.write(request, content).await?))
        }
        "edit" => {
            let arguments: EditArguments = arguments::parse(name, arguments)?;
            let edited =
                session.open().await?.edit(arguments.request(), &arguments.old_string, &arguments.new_string).await?;
            let (count, path, line) = (edited.occurrences, shown(&edited.path), edited.first_line);
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            Ok(Reply::text(format!("replaced {times} in {path}, first in line {line}")))
        }
        "ls" => {
            let request = arguments::parse::<LsArguments>(name, arguments)?.request(MOST);
            let listed = session.open().await?.ls(request).await?;
            let mut lines = Lines::new(most);
            listed.entries.iter().for_each(|entry| lines.push(&entry_line(entry)));
            Ok(lines.finish("[the directory is empty]", listed.partial.as_ref(), "use glob with a pattern"))
        }
        "glob" => {
            let request = arguments::parse::<GlobArguments>(name, arguments)?.request(MOST);
            let found = session.open().await?.glob(request).await?;
            let mut lines = Lines::new(most);
            found.matches.iter().for_each(|found| lines.push(&shown(&found.path)));
            Ok(lines.finish("[no files match]", found.partial.as_ref(), "use a narrower pattern or a deeper path"))
        }
        "grep" => {
            let request = arguments::parse::<GrepArguments>(name, arguments)?.request(MOST);
            let found = session.open().await?.grep(request).await?;
            let mut lines = Lines::new(most);
            for file in &found.files {
                let path = shown(&file.path);
                file.lines
                    .iter()
                    .for_each(|line| lines.push(&format!("{path}:{}:{}", line.line, one_line(&line.text))));
            }
            Ok(lines.finish("[no lines match]", found.partial.as_ref(), "search a smaller path, or set glob"))
        }
        // The table has rows for these only.
        name => Err(Failure::Arguments(format!("there is no tool {name:?}"))),
    }
}

fn read(page: &ReadOutput, content: &Bytes, most: u64) -> Reply {
    let path = shown(&page.path);
    if page.empty {
        return Reply::text(format!("[{path} is empty]"));
    }
    if page.encoding == Encoding::Binary {
        return binary(page, content, &path);
    }
    let text = String::from_utf8_lossy(within(content, most)).into_owned();
    let reply = if text.is_empty() { Reply::default() } else { Reply::text(text) };
    let Some(lines) = page.lines else { return reply };
    let total = lines.total_lines.map_or_else(String::new, |total| format!(" of {total}"));
    let window = format!("lines {} to {}{total}", lines.start_line, lines.end_line);
    let reply = match (lines.next_offset, page.truncated) {
        (_, Some(cut)) if cut.first_line_cut => reply.and_text(format!(
            "[line {} is longer than a page: use run with cut or another program to read the rest of it]",
            lines.start_line
        )),
        (Some(next), _) => reply.and_text(format!("[{window}; call read with offset {next} to read on]")),
        (None, _) if lines.start_line > 1 => reply.and_text(format!("[{window}]")),
        (None, _) => reply,
    };
    reply.with_meta(json!({ "path": exact(&page.path), "size": page.size, "next_offset": lines.next_offset }))
}

/// A file that isn't text: an image as one, anything else by its name.
fn binary(page: &ReadOutput, content: &Bytes, path: &str) -> Reply {
    let kind = resources::mime_type(&page.path);
    if kind.starts_with("image/") {
        return Reply::default().and(ContentBlock::image(BASE64.encode(content), kind));
    }
    let text = format!(
        "[{path} isn't text ({kind}, {} bytes): use run with a program that understands it, or read it as a resource]",
        page.size
    );
    match exact(&page.path) {
        Some(path) => Reply::text(text).and(ContentBlock::resource_link(resources::file(path, page.size))),
        None => Reply::text(text),
    }
}

/// As much of a text as was asked for. A podbayd that was tampered with may send as much as an image may have.
fn within(content: &Bytes, most: u64) -> &[u8] {
    match usize::try_from(most) {
        Ok(most) if content.len() > most => {
            let head = &content[..most];
            &head[..utf8::floor_char_boundary(head)]
        }
        _ => content,
    }
}

fn written(written: &WriteOutput) -> Reply {
    let done = if written.created { "created" } else { "replaced" };
    Reply::text(format!("{done} {} ({} bytes)", shown(&written.path), written.size))
        .with_meta(json!({ "path": exact(&written.path), "size": written.size, "created": written.created }))
}

fn entry_line(entry: &Entry) -> String {
    let path = shown(&entry.path);
    match (entry.kind, &entry.link) {
        (Kind::Dir, _) => format!("{}/", path.trim_end_matches('/')),
        (Kind::File, _) => format!("{path} ({} bytes)", entry.size),
        (_, Some(link)) => format!("{path} -> {}", shown(&link.target)),
        _ => format!("{path} (neither a file nor a directory)"),
    }
}
