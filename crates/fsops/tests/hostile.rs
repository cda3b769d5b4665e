//! Requests as nobody should send them: every one is done or refused, none panics, none leaves a part of a write.
#![allow(clippy::unwrap_used)]

mod support;

use podbay_fsops::Cancel;
use podbay_proto::ErrorCode;
use podbay_proto::files::*;
use podbay_proto::message::decode_head;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::Fixture;

fn path() -> impl Strategy<Value = Value> {
    let hostile = vec![
        json!(""),
        json!("."),
        json!(".."),
        json!("../../../../../../etc/passwd"),
        json!("d"),
        json!("d/"),
        json!("f/"),
        json!("f"),
        json!("f/x"),
        json!("new"),
        json!("new/deep/er"),
        json!("loop"),
        json!("loop/x"),
        json!("dangling"),
        json!("fifo"),
        json!("a\u{0}b"),
        json!("n".repeat(5000)),
        json!("n/".repeat(2040)),
        json!("n".repeat(256)),
        json!({ "hex": "ff2fff" }),
        json!({ "hex": "00" }),
        json!("/dev/full"),
        json!("/proc/self/mem"),
        json!("/proc/self/fd/0"),
    ];
    prop::sample::select(hostile)
}

fn number() -> impl Strategy<Value = Value> {
    let numbers = vec![
        json!(0),
        json!(1),
        json!(-1),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e3),
        json!(0.5),
        json!(null),
    ];
    prop::sample::select(numbers)
}

fn scope() -> impl Strategy<Value = Value> {
    let scopes = vec![
        json!({}),
        json!({ "root": "/", "virtual_paths": false }),
        json!({ "virtual_paths": true }),
        json!({ "root": "ROOT", "virtual_paths": true, "surprise": 7 }),
        json!({ "root": "ROOT" }),
        json!({ "allow_prefixes": ["ROOT"], "deny_prefixes": ["d"], "rules_for_reads": true }),
        json!({ "root": "ROOT/f" }),
    ];
    prop::sample::select(scopes)
}

/// One request with all the fields that any operation knows: those that it doesn't know it has to tolerate.
fn request() -> impl Strategy<Value = Value> {
    (path(), path(), scope(), number(), number(), any::<bool>()).prop_map(|(path, other, scope, one, two, flag)| {
        json!({
            "path": path, "from": path, "to": other, "scope": scope, "offset": one, "limit": two, "max_bytes": one,
            "reserve_bytes": two, "length": one, "start": two, "mode": one, "create_only": flag, "pattern": "*", "glob": other,
            "max_count": one, "budget_ms": 1000, "max_line_bytes": two, "overwrite": flag, "recursive": flag, "max_depth": one,
            "old_length": 1, "new_length": 1, "bytes": if flag { json!({ "start": one, "length": two }) } else { Value::Null },
            "count_lines_up_to": one, "max_binary_bytes": two, "after": other,
        })
    })
}

/// The request as the daemon would read it, without what makes it unreadable for this operation.
fn decode<T: podbay_proto::Operation>(request: &Value, fixture: &Fixture) -> Option<T> {
    let text = request.to_string().replace("ROOT", fixture.path("").to_str().unwrap().trim_end_matches('/'));
    match decode_head(text.as_bytes()) {
        Ok(request) => Some(request),
        Err(error) => {
            assert_eq!(error.code, ErrorCode::BadMessage, "{error}");
            None
        }
    }
}

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.put("d/f", "text\n");
    fixture.put("f", "text\n");
    fixture.link("loop", "loop");
    fixture.link("nowhere/f", "dangling");
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path("fifo"), rustix::fs::Mode::RWXU).unwrap();
    fixture
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_done_or_refused(request in request()) {
        let fixture = fixture();
        let (files, none) = (&fixture.files, Cancel::new());
        let mut errors = Vec::new();
        macro_rules! run {
            ($type:ty, $call:expr) => {
                if let Some(request) = decode::<$type>(&request, &fixture) {
                    errors.extend($call(&request).err().map(|error| (stringify!($type), error)));
                }
            };
        }
        run!(Read, |request| fixture.read(request).map(drop));
        run!(Download, |request| files.open_download(request).map(drop));
        run!(Ls, |request| files.ls(request, &none).map(drop));
        run!(Stat, |request| files.stat(request).map(drop));
        // Not from the top of the machine, which would take the whole time each time.
        let top = request["path"] == json!("..") || request["scope"]["root"] == json!("/");
        if !top {
            run!(Tree, |request| files.tree(request, &none).map(drop));
            run!(Glob, |request| files.glob(request, &none).map(drop));
            run!(Grep, |request| fixture.grep(request).map(drop));
        }
        // Nothing outside of the fixture may be changed by a test.
        let outside = |name: &str| request[name].as_str().is_some_and(|path| path.starts_with('/') || path.contains(".."));
        if !outside("path") && !outside("to") {
            run!(Write, |request| fixture.write(request, b"written").map(drop));
            run!(Edit, |request| files.edit(request, b"tT").map(drop));
            run!(Mkdir, |request| files.mkdir(request).map(drop));
            run!(Move, |request| files.mv(request).map(drop));
            run!(Delete, |request| files.delete(request, &none).map(drop));
        }
        for (operation, error) in errors {
            prop_assert!(error.code != ErrorCode::Internal && !error.message.is_empty(), "{operation}: {error:?}");
            // What has no code of its own says at least what the kernel said.
            prop_assert!(error.code != ErrorCode::Io || error.message.contains("os error"), "{operation}: {error:?}");
        }
        for found in walk(&fixture.path("")) {
            let name = found.file_name().unwrap().to_string_lossy().into_owned();
            prop_assert!(!name.starts_with(".podbay-"), "left behind: {name}");
            if found.is_file() {
                let content = std::fs::read(&found).unwrap();
                prop_assert!([&b"text\n"[..], b"Text\n", b"Text", b"Tex\n", b"written"].contains(&&content[..]), "{name}: {content:?}");
            }
        }
    }
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(walk(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

#[test]
fn a_file_that_grows_and_shrinks_while_it_is_read_harms_nobody() {
    let fixture = Fixture::new();
    let path = fixture.put("f", "line\n".repeat(200_000));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            for length in [0, 3, 1_000_000, 8192, 70_000].iter().cycle() {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                file.set_len(*length).unwrap();
            }
        });
        for offset in (0..300).map(|step| step * 13) {
            // Any result will do, as long as there is one.
            let outcome = fixture.read(&Read { offset, ..Read::new("f") });
            assert!(!outcome.is_err_and(|error| error.code == ErrorCode::Internal));
            let outcome = fixture.read(&Read { bytes: Some(ByteRange { start: 100, length: None }), ..Read::new("f") });
            assert!(outcome.is_ok());
            assert!(fixture.grep(&Grep::new("line")).is_ok());
            let (output, file) = fixture.files.open_download(&Download::new("f")).unwrap();
            assert_eq!(file.limit(), output.length);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
