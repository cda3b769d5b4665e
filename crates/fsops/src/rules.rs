//! Path rules of a scope: prefixes, compared component by component.

/// A path as its names.
pub(crate) type Names = Vec<Vec<u8>>;

/// The names of a path, without the empty ones and `.`.
pub(crate) fn names(path: &[u8]) -> Names {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec).collect()
}

/// Names as an absolute path.
pub(crate) fn absolute(names: &[Vec<u8>]) -> Vec<u8> {
    match names.is_empty() {
        true => b"/".to_vec(),
        false => names.iter().flat_map(|name| [b"/", &name[..]].concat()).collect(),
    }
}

/// The rules of a scope. All paths in it and given to it are real ones: absolute, with every link resolved.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) allow: Vec<Names>,
    pub(crate) deny: Vec<Names>,
}

impl Rules {
    pub(crate) fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether the path itself may be touched.
    pub(crate) fn allows(&self, path: &[Vec<u8>]) -> bool {
        let below = |prefix: &Names| path.starts_with(prefix);
        !self.deny.iter().any(below) && (self.allow.is_empty() || self.allow.iter().any(below))
    }

    /// Whether the path may appear in a listing: it is allowed, or leads to something that is.
    pub(crate) fn shows(&self, path: &[Vec<u8>]) -> bool {
        let below = |prefix: &Names| path.starts_with(prefix);
        let around = |prefix: &Names| path.starts_with(prefix) || prefix.starts_with(path);
        !self.deny.iter().any(below) && (self.allow.is_empty() || self.allow.iter().any(around))
    }

    /// Whether the path and everything below it may be touched.
    pub(crate) fn allows_all_below(&self, path: &[Vec<u8>]) -> bool {
        self.allows(path) && !self.deny.iter().any(|prefix| prefix.starts_with(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Rules {
        let all = |paths: &[&str]| paths.iter().map(|path| names(path.as_bytes())).collect();
        Rules { allow: all(allow), deny: all(deny) }
    }

    #[test]
    fn prefixes_are_whole_components_and_deny_beats_allow() {
        let rules = rules(&["/data"], &["/data/secret"]);
        for (path, expected) in [
            ("/data", true),
            ("/data/a", true),
            ("/database", false),
            ("/data/secret", false),
            ("/data/secret/key", false),
            ("/data/secrets", true),
            ("/", false),
        ] {
            assert_eq!(rules.allows(&names(path.as_bytes())), expected, "{path}");
        }
        assert!(rules.shows(&[]) && !rules.shows(&names(b"/etc")) && !rules.shows(&names(b"/data/secret")));
        assert!(!rules.allows_all_below(&names(b"/data")) && rules.allows_all_below(&names(b"/data/a")));
    }
}
