//! `podbay cp`: files and directories between this machine and a sandbox.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::Args;
use podbay::files::{Download, Kind, Stat, Write};
use podbay::{ErrorCode, Meter, RawPath, Sandbox, Transferred};

use crate::commands;
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Bar;
use crate::settings::Settings;
use crate::terminal::{bytes, escape};

const EXAMPLES: &str = "\
Examples:
  podbay cp ./dir box:/workspace/dir      a directory and everything below it
  podbay cp notes.txt box:                into the working directory
  podbay cp box:/workspace/out ./out      and back
  podbay cp box:report.pdf .

A directory becomes the target, merged with what exists there; if the target ends with '/', it is copied into the target.
A file is copied into a target that is a directory. Existing files are replaced. Only files, directories and links that stay
below the copied directory come out of a sandbox; everything else is skipped with a note.
'./a:b' is a file on this machine, 'a:b' is the file b in the sandbox a.";

/// Copy files and directories into or out of a sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// What to copy: PATH, or NAME:PATH in a sandbox
    source: OsString,

    /// Where to copy it: NAME:PATH in a sandbox, or PATH
    target: OsString,
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Side {
    Here(PathBuf),
    There { name: String, path: RawPath },
}

/// Text before a colon names a sandbox if it has no `/`.
fn side(text: &OsStr) -> Side {
    let bytes = text.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':');
    match colon.map(|colon| (&bytes[..colon], &bytes[colon + 1..])) {
        Some((name, path)) if !name.is_empty() && !name.contains(&b'/') => Side::There {
            name: String::from_utf8_lossy(name).into_owned(),
            path: RawPath::from(if path.is_empty() { &b"./"[..] } else { path }),
        },
        _ => Side::Here(text.into()),
    }
}

/// Copies in one direction.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let bar = Bar::new(output.is_json());
    let seen = std::sync::atomic::AtomicU64::new(0);
    let tell = |progress: podbay::Progress| {
        seen.store(progress.bytes, std::sync::atomic::Ordering::Relaxed);
        bar.show(progress);
    };
    let meter = Meter::new(&tell);
    let (target, done) = match (side(&arguments.source), side(&arguments.target)) {
        (Side::Here(source), Side::There { name, path }) => {
            let sandbox = commands::find(settings, &name).await?;
            let (target, done) = upload(&sandbox, &source, &path, (&meter, &bar)).await.inspect_err(|_| bar.clear())?;
            (format!("{name}:{target}"), done)
        }
        (Side::There { name, path }, Side::Here(target)) => {
            let sandbox = commands::find(settings, &name).await?;
            let (target, done) =
                download(&sandbox, &path, &target, (&meter, &bar)).await.inspect_err(|_| bar.clear())?;
            (target.display().to_string(), done)
        }
        (Side::Here(_), Side::Here(_)) => {
            return Err(Failure::new("neither side is in a sandbox: write one of them as NAME:PATH").coded("usage"));
        }
        (Side::There { .. }, Side::There { .. }) => {
            let message = "both sides are in sandboxes: copy to this machine first, then to the other sandbox";
            return Err(Failure::new(message).coded("usage"));
        }
    };
    bar.clear();
    report(&target, done, seen.into_inner(), output)
}

fn report(target: &str, done: Transferred, count: u64, output: &Output) -> Result<u8, Failure> {
    let failed: Vec<(String, Failure)> = done.failed.into_iter().map(|(path, error)| (path, error.into())).collect();
    let code = u8::from(!failed.is_empty());
    if output.is_json() {
        let skipped: Vec<_> =
            done.skipped.iter().map(|(path, why)| serde_json::json!({ "path": path, "message": why })).collect();
        let failed: Vec<_> =
            failed.iter().map(|(path, failure)| serde_json::json!({ "path": path, "error": failure })).collect();
        output.json(&serde_json::json!({
            "target": target, "files": done.files, "bytes": count, "skipped": skipped, "failed": failed,
        }))?;
        return Ok(code);
    }
    for (path, why) in &done.skipped {
        output.note(&format!("skipped {path}: {why}"));
    }
    for (path, failure) in failed {
        output.failure(&failure.about(&path));
    }
    let files = if done.files == 1 { "1 file".to_owned() } else { format!("{} files", done.files) };
    output.text(&format!("{} ({files}, {})\n", escape(target), bytes(count)))?;
    Ok(code)
}

fn one_file() -> Transferred {
    Transferred { files: 1, ..Transferred::default() }
}

async fn upload(
    sandbox: &Sandbox,
    source: &Path,
    target: &RawPath,
    (meter, bar): (&Meter<'_>, &Bar),
) -> Result<(RawPath, Transferred), Failure> {
    let meta = std::fs::metadata(source).map_err(|error| Failure::local(source, "can't be copied", &error))?;
    // `.` and `..` have no name of their own; the directory that they mean has.
    let real = std::fs::canonicalize(source).map_err(|error| Failure::local(source, "can't be copied", &error))?;
    let name = source.file_name().or(real.file_name()).unwrap_or_default();
    let into = target.as_bytes().ends_with(b"/");
    if meta.is_dir() {
        let target = if into { below(target, name.as_bytes()) } else { target.clone() };
        let done = sandbox.upload_tree(source, &target, meter).await?;
        return Ok((target, done));
    }
    if !meta.is_file() {
        let message = "is neither a file nor a directory; pass it through standard input with 'podbay write'";
        return Err(Failure::new(format!("{} {message}", source.display())).coded("local_file"));
    }
    let into = into || is_dir(sandbox, target).await?;
    let target = if into { below(target, name.as_bytes()) } else { target.clone() };
    use std::os::unix::fs::PermissionsExt;
    let request = Write { mode: Some(meta.permissions().mode() & 0o777), ..Write::new(target) };
    bar.expect(meta.len());
    let written = sandbox.upload_file(source, &request, meter).await?;
    Ok((written.path, one_file()))
}

async fn download(
    sandbox: &Sandbox,
    source: &RawPath,
    target: &Path,
    (meter, bar): (&Meter<'_>, &Bar),
) -> Result<(PathBuf, Transferred), Failure> {
    let found = sandbox.stat(&Stat::new(source.clone())).await?;
    let into = target.as_os_str().as_bytes().ends_with(b"/");
    let name = last_name(source);
    let inside = || match &name {
        Some(name) => Ok(target.join(name)),
        None => Err(Failure::new(format!("'{source}' has no file name: give the target's full name"))),
    };
    match found.entry.kind {
        Kind::Dir => {
            let target = if into { inside()? } else { target.to_owned() };
            let done = sandbox.download_tree(source, &target, meter).await?;
            Ok((target, done))
        }
        Kind::File => {
            let target = if into || target.is_dir() { inside()? } else { target.to_owned() };
            let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
            if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
                let message =
                    format!("the directory {} doesn't exist on this machine; create it first", parent.display());
                return Err(Failure::new(message).coded("local_file"));
            }
            bar.expect(found.entry.size);
            sandbox.download_file(&Download::new(source.clone()), &target, meter).await?;
            Ok((target, one_file()))
        }
        _ => {
            Err(Failure::new(format!("can't copy '{source}': it is neither a file nor a directory"))
                .coded("not_a_file"))
        }
    }
}

async fn is_dir(sandbox: &Sandbox, path: &RawPath) -> Result<bool, Failure> {
    match sandbox.stat(&Stat::new(path.clone())).await {
        Ok(found) => Ok(found.entry.kind == Kind::Dir),
        Err(error) if error.code() == Some(ErrorCode::NotFound) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A name in a directory of the sandbox.
fn below(dir: &RawPath, name: &[u8]) -> RawPath {
    let mut path = dir.as_bytes().to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path.into()
}

/// The last part of a path, if it is a name.
fn last_name(path: &RawPath) -> Option<OsString> {
    let last = path.as_bytes().split(|byte| *byte == b'/').rfind(|part| !part.is_empty())?;
    (last != b"." && last != b"..").then(|| OsString::from_vec(last.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_names_a_sandbox_unless_it_is_in_a_path() {
        let there = |name: &str, path: &str| Side::There { name: name.into(), path: path.into() };
        assert_eq!(side(OsStr::new("box:/a")), there("box", "/a"));
        assert_eq!(side(OsStr::new("box:")), there("box", "./"));
        assert_eq!(side(OsStr::new("box:a:b")), there("box", "a:b"));
        for here in ["a", "./a:b", "/x/a:b", ":a"] {
            assert_eq!(side(OsStr::new(here)), Side::Here(here.into()));
        }
    }

    #[test]
    fn a_name_never_leads_elsewhere() {
        assert_eq!(last_name(&"/a/b/".into()), Some("b".into()));
        for none in ["/", "..", "/a/..", "./"] {
            assert_eq!(last_name(&none.into()), None, "{none}");
        }
    }
}
