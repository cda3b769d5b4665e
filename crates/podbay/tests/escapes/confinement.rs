//! Where attacks run: the columns of the table.

/// What confines a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Namespaces,
    Landlock,
    Pod,
}

/// A provider, an isolation and a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confinement {
    pub(crate) kind: Kind,
    /// Local sandboxes: whether the caller is root. Pods: whether commands run as root.
    pub(crate) root: bool,
}

pub(crate) const NAMESPACES_ROOT: Confinement = Confinement { kind: Kind::Namespaces, root: true };
pub(crate) const NAMESPACES_USER: Confinement = Confinement { kind: Kind::Namespaces, root: false };
pub(crate) const LANDLOCK_ROOT: Confinement = Confinement { kind: Kind::Landlock, root: true };
pub(crate) const LANDLOCK_USER: Confinement = Confinement { kind: Kind::Landlock, root: false };
pub(crate) const POD_ROOT: Confinement = Confinement { kind: Kind::Pod, root: true };
pub(crate) const POD_USER: Confinement = Confinement { kind: Kind::Pod, root: false };

/// All columns, in the order of the report.
pub(crate) const CONFINEMENTS: [Confinement; 6] =
    [NAMESPACES_ROOT, NAMESPACES_USER, LANDLOCK_ROOT, LANDLOCK_USER, POD_ROOT, POD_USER];

impl Confinement {
    pub(crate) fn name(self) -> &'static str {
        match (self.kind, self.root) {
            (Kind::Namespaces, true) => "namespaces, root",
            (Kind::Namespaces, false) => "namespaces, user",
            (Kind::Landlock, true) => "landlock, root",
            (Kind::Landlock, false) => "landlock, user",
            (Kind::Pod, true) => "pod, root",
            (Kind::Pod, false) => "pod, user",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        CONFINEMENTS.into_iter().find(|confinement| confinement.name() == name)
    }
}
