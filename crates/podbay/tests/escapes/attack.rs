//! What an attack is, and the table of all of them.

use std::pin::Pin;

use crate::place::Kind;
use crate::site::Site;

/// What an attacker gains if the attack works, after gVisor's taxonomy of security issues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Code or files outside of the sandbox.
    Escape,
    /// Knowledge of something outside of the sandbox.
    Leak,
    /// The agent's own sandbox, or whoever waits for its answer, stops working.
    SandboxDenial,
    /// The machine suffers.
    HostDenial,
    /// Another sandbox suffers.
    PeerDenial,
}

impl Class {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Escape => "Escape",
            Self::Leak => "Leak",
            Self::SandboxDenial => "Denial of service: the sandbox and its caller",
            Self::HostDenial => "Denial of service: the host",
            Self::PeerDenial => "Denial of service: other sandboxes",
        }
    }
}

/// How an attack went: the error says what the attacker got hold of.
pub(crate) type Verdict = Result<(), String>;

/// A verdict that is being worked on.
pub(crate) type Pending<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// How an attack is done.
#[derive(Clone, Copy)]
pub(crate) enum Method {
    /// By a Python program in a sandbox of its own (`prelude.py` comes before it). It puts whatever it got hold of into
    /// `loot`.
    Inside {
        program: &'static str,
        /// What the same program finds when the attacker isn't in a sandbox: shows that the attempt is a real one. Only
        /// programs that do no harm have any.
        control: &'static [&'static str],
    },
    /// With something done outside, by the caller.
    Around(for<'a> fn(&'a Site) -> Pending<'a>),
}

/// One row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    /// Its name, for good: documents and people refer to it.
    pub(crate) id: &'static str,
    pub(crate) class: Class,
    /// What the attacker wants, in one line; with the incident that taught us, if there was one.
    pub(crate) story: &'static str,
    pub(crate) method: Method,
    /// Where it makes sense.
    pub(crate) places: &'static [Kind],
    /// Where it is known to work, and why that is accepted.
    pub(crate) open: &'static [(Kind, &'static str)],
}

/// Everywhere.
pub(crate) const ALL: &[Kind] = &[Kind::Namespaces, Kind::Landlock, Kind::Pod];
/// On this machine.
pub(crate) const LOCAL: &[Kind] = &[Kind::Namespaces, Kind::Landlock];

/// An attack by a program inside, everywhere, that works nowhere.
pub(crate) const fn inside(
    id: &'static str,
    class: Class,
    story: &'static str,
    program: &'static str,
    control: &'static [&'static str],
) -> Attack {
    Attack { id, class, story, method: Method::Inside { program, control }, places: ALL, open: &[] }
}

/// An attack that the caller takes part in, everywhere, that works nowhere.
pub(crate) const fn around(
    id: &'static str,
    class: Class,
    story: &'static str,
    run: for<'a> fn(&'a Site) -> Pending<'a>,
) -> Attack {
    Attack { id, class, story, method: Method::Around(run), places: ALL, open: &[] }
}

impl Attack {
    pub(crate) const fn only(self, places: &'static [Kind]) -> Self {
        Self { places, ..self }
    }

    pub(crate) const fn open(self, open: &'static [(Kind, &'static str)]) -> Self {
        Self { open, ..self }
    }
}

/// All attacks, class by class.
pub(crate) fn table() -> Vec<Attack> {
    let groups = [
        crate::escape::ATTACKS,
        crate::leak::ATTACKS,
        crate::sandbox_denial::ATTACKS,
        crate::host_denial::ATTACKS,
        crate::peer_denial::ATTACKS,
    ];
    groups.concat()
}
