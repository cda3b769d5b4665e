//! An attack, and the table of all of them.

use std::pin::Pin;

use crate::confinement::{Confinement, Kind};
use crate::site::Site;

/// What an attacker gains if the attack works, after gVisor's taxonomy of security issues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Code execution or file changes outside the sandbox.
    Escape,
    /// Information from outside the sandbox, or a way to send data out.
    Leak,
    /// The agent's own sandbox stops working or lies, or whoever waits for its answer waits forever.
    SandboxDenial,
    /// The machine or the cluster suffers.
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

/// Why an attack didn't come away empty-handed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What the attacker got hold of. Accepted only where the row says that it is open.
    Got(Vec<String>),
    /// The attack couldn't be carried out as written, or the sandbox broke. Never accepted.
    Broken(String),
}

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Self::Broken(what)
    }
}

/// A step of an attack; the error says what went wrong.
pub(crate) type Step<T = ()> = Result<T, String>;

/// How an attack went.
pub(crate) type Verdict = Result<(), Fault>;

/// A verdict in the making.
pub(crate) type Pending<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// The verdict on what an attacker got hold of.
pub(crate) fn verdict(mut loot: Vec<String>) -> Verdict {
    loot.sort();
    loot.dedup();
    if loot.is_empty() { Ok(()) } else { Err(Fault::Got(loot)) }
}

/// How an attack is carried out.
#[derive(Clone, Copy)]
pub(crate) enum Method {
    /// By a Python program in a sandbox of its own (`prelude.py` comes before it). It puts whatever it got hold of into
    /// `loot`.
    Inside {
        program: &'static str,
        /// What the same program gets outside a sandbox, which shows that the attempt is a real one. Only programs that do
        /// no harm have a control.
        control: &'static [&'static str],
    },
    /// With the caller's participation.
    Around(for<'a> fn(&'a Site) -> Pending<'a>),
}

/// A confinement where an attack is known to work, and why that is accepted.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) confinement: Confinement,
    /// Exactly what the attacker gets there. More is a failure; less is one too, so that marks don't outlive their reason.
    pub(crate) loot: &'static [&'static str],
    pub(crate) why: &'static str,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    /// Its name, for good: documents and people refer to it.
    pub(crate) id: &'static str,
    pub(crate) class: Class,
    /// What the attacker wants, in one line, with the incident that taught us if there was one.
    pub(crate) story: &'static str,
    pub(crate) method: Method,
    /// Where it makes sense.
    pub(crate) kinds: &'static [Kind],
    pub(crate) open: &'static [Open],
}

/// Everywhere.
pub(crate) const ALL: &[Kind] = &[Kind::Namespaces, Kind::Landlock, Kind::Pod];
/// On this machine.
pub(crate) const LOCAL: &[Kind] = &[Kind::Namespaces, Kind::Landlock];

/// An attack by a program inside, tried everywhere, that works nowhere.
pub(crate) const fn inside(
    id: &'static str,
    class: Class,
    story: &'static str,
    program: &'static str,
    control: &'static [&'static str],
) -> Attack {
    Attack { id, class, story, method: Method::Inside { program, control }, kinds: ALL, open: &[] }
}

/// An attack that the caller takes part in, tried everywhere, that works nowhere.
pub(crate) const fn around(
    id: &'static str,
    class: Class,
    story: &'static str,
    run: for<'a> fn(&'a Site) -> Pending<'a>,
) -> Attack {
    Attack { id, class, story, method: Method::Around(run), kinds: ALL, open: &[] }
}

/// A known opening.
pub(crate) const fn known(confinement: Confinement, loot: &'static [&'static str], why: &'static str) -> Open {
    Open { confinement, loot, why }
}

impl Attack {
    pub(crate) const fn only(self, kinds: &'static [Kind]) -> Self {
        Self { kinds, ..self }
    }

    pub(crate) const fn open(self, open: &'static [Open]) -> Self {
        Self { open, ..self }
    }
}

/// All attacks, class by class.
pub(crate) fn table() -> Vec<Attack> {
    let groups = [
        crate::escape::ATTACKS,
        crate::leak::ATTACKS,
        crate::sandbox_denial::ATTACKS,
        crate::podbayd::ATTACKS,
        crate::host_denial::ATTACKS,
        crate::peer_denial::ATTACKS,
    ];
    let mut all = groups.concat();
    all.sort_by_key(|attack| attack.class);
    all
}
