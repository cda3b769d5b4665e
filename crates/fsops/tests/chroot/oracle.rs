//! A process in a chroot that tells what is really there.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use podbay_proto::RawPath;
use serde_json::{Value, json};

/// The argument that makes this program the helper.
pub(crate) const HELPER: &str = "--in-chroot";

/// A running helper. It ends when this is dropped, for then its input does.
pub(crate) struct Oracle {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts a helper in `root`.
    pub(crate) fn start(root: &Path) -> Result<Self, String> {
        let mut child = Command::new(std::env::current_exe().map_err(|error| error.to_string())?)
            .arg(HELPER)
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut oracle = Self { child, input, output };
        match oracle.answer() {
            Value::Null => Ok(oracle),
            error => Err(error.to_string()),
        }
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, question: &str, path: &RawPath) -> Result<Value, i32> {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{}", json!([question, path.as_bytes()])).unwrap();
        match self.answer() {
            Value::Number(errno) => Err(errno.as_i64().unwrap() as i32),
            value => Ok(value),
        }
    }

    pub(crate) fn read(&mut self, path: &RawPath) -> Result<Vec<u8>, i32> {
        self.ask("read", path).map(|value| serde_json::from_value(value).unwrap())
    }

    pub(crate) fn list(&mut self, path: &RawPath) -> Result<Vec<Vec<u8>>, i32> {
        self.ask("list", path).map(|value| serde_json::from_value(value).unwrap())
    }

    pub(crate) fn is_dir(&mut self, path: &RawPath) -> Result<u64, i32> {
        self.ask("is_dir", path).map(|value| u64::from(value == Value::Bool(true)))
    }

    /// Whether there is something at the path, be it a link that leads nowhere.
    pub(crate) fn exists(&mut self, path: &RawPath) -> bool {
        self.ask("exists", path).is_ok()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.input = None;
        self.child.wait().unwrap();
    }
}

/// The helper itself.
pub(crate) fn serve(root: &Path) {
    let entered = enter(root).map_err(|error| error.to_string());
    println!("{}", entered.as_ref().map_or_else(|error| json!(error), |()| Value::Null));
    if entered.is_err() {
        return;
    }
    for line in std::io::stdin().lock().lines() {
        let (question, path): (String, Vec<u8>) = serde_json::from_str(&line.unwrap()).unwrap();
        let path = Path::new(OsStr::from_bytes(&path));
        let answer = match question.as_str() {
            "read" => std::fs::metadata(path).and_then(|data| match data.is_file() {
                true => std::fs::read(path).map(|bytes| json!(bytes)),
                false => Err(std::io::Error::from_raw_os_error(21)),
            }),
            "list" => std::fs::read_dir(path).map(|entries| {
                let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect();
                names.sort();
                json!(names)
            }),
            "is_dir" => std::fs::metadata(path).map(|data| json!(data.is_dir())),
            _ => std::fs::symlink_metadata(path).map(|_| json!(true)),
        };
        let answer = answer.unwrap_or_else(|error| json!(error.raw_os_error().unwrap_or(-1)));
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
}

/// Root can do it at once; everyone else in a user namespace of their own.
fn enter(root: &Path) -> std::io::Result<()> {
    if rustix::process::chroot(root).is_err() {
        new_user_namespace()?;
        rustix::process::chroot(root)?;
    }
    Ok(rustix::process::chdir("/")?)
}

#[allow(unsafe_code)]
fn new_user_namespace() -> std::io::Result<()> {
    // SAFETY: this process has one thread, and a new user namespace shares no descriptors or memory in a new way.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }?)
}
