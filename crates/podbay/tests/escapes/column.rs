//! One column of the table: all attacks in one confinement, in a process of that confinement's user.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::attack::{Attack, Fault, Verdict, table};
use crate::bait::CANARY;
use crate::confinement::{Confinement, Kind};
use crate::site::Site;

/// The user that root becomes for the columns of an ordinary user.
const NOBODY: u32 = 65_534;

/// How many attacks run at once: many wait, for time-outs and for pods to start.
const AT_ONCE: usize = 4;

/// How an attack went in a confinement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The attacker got nothing.
    Held,
    /// It works, which is known and documented, for this reason.
    Open(String),
    /// What is wrong: what the attacker got, or a mark that no longer applies.
    Failed(String),
}

/// All results of one confinement.
pub(crate) struct Column {
    pub(crate) confinement: Confinement,
    pub(crate) results: Vec<(String, Outcome)>,
    /// Why it couldn't run, or didn't finish.
    pub(crate) absent: Option<String>,
    /// Whether that is a failure.
    pub(crate) broken: bool,
}

impl Column {
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failed: Vec<String> = self
            .results
            .iter()
            .filter_map(|(id, outcome)| match outcome {
                Outcome::Failed(loot) => Some(format!("{id} ({}): {loot}", self.confinement.name())),
                _ => None,
            })
            .collect();
        failed.extend(
            self.absent.iter().filter(|_| self.broken).map(|why| format!("{}: {why}", self.confinement.name())),
        );
        failed
    }

    fn absent(confinement: Confinement, why: impl Into<String>) -> Self {
        let why = why.into();
        println!("left out: {}: {why}", confinement.name());
        let broken = std::env::var_os("PODBAY_REQUIRE").is_some_and(|value| value == "all");
        Self { confinement, results: Vec::new(), absent: Some(why), broken }
    }
}

/// Compares how an attack went with what its row says about this confinement.
fn judge(attack: &Attack, confinement: Confinement, verdict: Verdict) -> Outcome {
    let mark = attack.open.iter().find(|open| open.confinement == confinement);
    match (verdict, mark) {
        (Err(Fault::Broken(what)), _) => Outcome::Failed(what),
        (Ok(()), None) => Outcome::Held,
        (Err(Fault::Got(loot)), None) => Outcome::Failed(loot.join(", ")),
        (verdict, Some(open)) => {
            let loot = if let Err(Fault::Got(loot)) = verdict { loot } else { Vec::new() };
            let more: Vec<&str> = loot.iter().map(String::as_str).filter(|got| !open.loot.contains(got)).collect();
            let closed: Vec<&&str> = open.loot.iter().filter(|what| !loot.iter().any(|got| got == **what)).collect();
            match (more.is_empty(), closed.is_empty()) {
                (false, _) => Outcome::Failed(format!("more than is known to be open: {}", more.join(", "))),
                (_, false) => Outcome::Failed(format!("marked as open but closed now: {closed:?}; drop the mark")),
                _ => Outcome::Open(open.why.to_owned()),
            }
        }
    }
}

/// What is wrong with [`judge`], which decides whether anything fails at all.
pub(crate) fn check() -> Vec<String> {
    const HERE: Confinement = crate::confinement::POD_ROOT;
    const MARKS: &[crate::attack::Open] = &[crate::attack::known(HERE, &["a", "b"], "known")];
    let plain = table()[0].open(&[]);
    let marked = plain.open(MARKS);
    let got = |loot: &[&str]| Err(Fault::Got(loot.iter().map(|what| (*what).to_owned()).collect()));
    let cases = [
        (&plain, Ok(()), "held"),
        (&plain, got(&["a"]), "failed"),
        (&plain, Err(Fault::Broken(String::new())), "failed"),
        (&marked, got(&["a", "b"]), "open"),
        (&marked, got(&["a", "b", "c"]), "failed"),
        (&marked, got(&["a"]), "failed"),
        (&marked, Ok(()), "failed"),
        (&marked, Err(Fault::Broken(String::new())), "failed"),
    ];
    let named = |outcome| match outcome {
        Outcome::Held => "held",
        Outcome::Open(_) => "open",
        Outcome::Failed(_) => "failed",
    };
    let wrong = cases
        .into_iter()
        .filter(|(attack, verdict, expected)| named(judge(attack, HERE, verdict.clone())) != *expected);
    wrong.map(|(_, verdict, expected)| format!("{verdict:?} doesn't count as {expected}")).collect()
}

/// Starts a process for the confinement and collects its results.
pub(crate) fn start(confinement: Confinement, filters: &[&str]) -> Column {
    let root = rustix::process::geteuid().is_root();
    match confinement.kind {
        Kind::Pod if std::env::var_os("PODBAY_RIG").is_none() => {
            return Column::absent(confinement, "no cluster: PODBAY_RIG isn't set");
        }
        Kind::Namespaces | Kind::Landlock if confinement.root && !root => {
            return Column::absent(confinement, "this isn't root");
        }
        Kind::Namespaces if podbay::local::probe().isolation != Some(podbay::local::Isolation::Namespaces) => {
            return Column::absent(confinement, "this machine gives no user namespaces");
        }
        _ => {}
    }
    // The ordinary user must be able to read the binary and what is made here. Sockets have short paths.
    let open = Permissions::from_mode(0o755);
    let home = tempfile::Builder::new().prefix("pb-").permissions(open).tempdir_in("/tmp").unwrap();
    let (binary, scratch) = (home.path().join("escapes"), home.path().join("s"));
    fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    fs::create_dir(&scratch).unwrap();
    let mut command = Command::new(&binary);
    command.args(["--column", confinement.name()]).arg(&scratch).args(filters).current_dir(&scratch);
    command.env(CANARY, format!("canary-{:x}", std::process::id())).stdin(Stdio::null()).stdout(Stdio::piped());
    if root && !confinement.root && confinement.kind != Kind::Pod {
        chown(&scratch, Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY).env("HOME", &scratch);
    }
    let begun = Instant::now();
    let mut child = command.spawn().unwrap();
    let mut column = Column { confinement, results: Vec::new(), absent: None, broken: false };
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Ok((id, outcome, took)) = serde_json::from_str::<(String, Outcome, Duration)>(&line) else {
            println!("{line}");
            continue;
        };
        let said = match &outcome {
            Outcome::Held => "ok".to_owned(),
            Outcome::Open(why) => format!("open: {why}"),
            Outcome::Failed(loot) => format!("FAILED: {loot}"),
        };
        println!("{id} ({}) ... {said} {:.1} s", confinement.name(), took.as_secs_f64());
        column.results.push((id, outcome));
    }
    let status = child.wait().unwrap();
    println!("{}: {} attacks in {:.1} s", confinement.name(), column.results.len(), begun.elapsed().as_secs_f64());
    if status.code() == Some(ABSENT.into()) {
        return Column::absent(confinement, "there is no cluster");
    }
    if !status.success() {
        column.absent = Some(format!("the attacks ended early: {status}"));
        column.broken = true;
    }
    column
}

/// What a process of a column exits with when its confinement isn't there.
const ABSENT: u8 = 77;

/// Runs the attacks, in the process of the confinement's user. Each result is a line.
pub(crate) fn run(confinement: Confinement, scratch: &Path, filters: &[&str]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let applies = |attack: &Attack| attack.kinds.contains(&confinement.kind);
    let wanted = |attack: &Attack| filters.is_empty() || filters.iter().any(|filter| attack.id.contains(filter));
    let attacks: Vec<Attack> = table().into_iter().filter(|attack| applies(attack) && wanted(attack)).collect();
    runtime.block_on(async {
        let site = match Site::open(confinement, scratch.to_owned()).await {
            Ok(Some(site)) => Arc::new(site),
            Ok(None) => return ExitCode::from(ABSENT),
            Err(why) => panic!("{why}"),
        };
        let (mut waiting, mut running) = (attacks.into_iter(), tokio::task::JoinSet::new());
        loop {
            while running.len() < AT_ONCE
                && let Some(attack) = waiting.next()
            {
                let site = Arc::clone(&site);
                running.spawn(async move {
                    let begun = Instant::now();
                    let outcome = judge(&attack, confinement, site.attack(&attack).await);
                    (attack.id, outcome, begun.elapsed())
                });
            }
            let Some(done) = running.join_next().await else { break };
            println!("{}", serde_json::to_string(&done.unwrap()).unwrap());
        }
        ExitCode::SUCCESS
    })
}
