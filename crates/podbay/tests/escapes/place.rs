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
pub(crate) struct Place {
    pub(crate) kind: Kind,
    /// On this machine: whether the caller is root. In a pod: whether commands are.
    pub(crate) root: bool,
}

/// All of them.
pub(crate) const PLACES: [Place; 6] = [
    Place { kind: Kind::Namespaces, root: true },
    Place { kind: Kind::Namespaces, root: false },
    Place { kind: Kind::Landlock, root: true },
    Place { kind: Kind::Landlock, root: false },
    Place { kind: Kind::Pod, root: true },
    Place { kind: Kind::Pod, root: false },
];

impl Place {
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
        PLACES.into_iter().find(|place| place.name() == name)
    }
}
