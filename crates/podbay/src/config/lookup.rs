//! Finding a setting by its key or variable, and guessing which one was meant.

use super::setting::{SETTINGS, Setting, variable};

/// Keys that had another name before Podbay's first release.
const RENAMED: [(&str, &str); 3] = [
    ("raw.kubeconfig", "cluster.kubeconfig"),
    ("raw.context", "cluster.context"),
    ("raw.namespace", "cluster.namespace"),
];

pub(super) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

pub(super) fn find_variable(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.variable() == name)
}

/// Whether a key is the beginning of others.
pub(super) fn is_section(key: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

/// What to write instead of an unknown key.
pub(super) fn hint(key: &str) -> String {
    if let Some((_, now)) = RENAMED.iter().find(|(before, _)| *before == key) {
        return format!("it is now {now:?}");
    }
    did_you_mean(nearest(key))
}

/// What to write instead of an unknown variable.
pub(super) fn hint_for_variable(name: &str) -> String {
    let renamed = RENAMED.iter().find(|(before, _)| variable(before) == name);
    if let Some((_, now)) = renamed {
        return format!("it is now {:?}", variable(now));
    }
    did_you_mean(closest(name, SETTINGS.iter().map(Setting::variable)).or_else(|| {
        let wanted = name.strip_prefix("PODBAY_")?;
        SETTINGS.iter().map(Setting::variable).find(|variable| variable.ends_with(&format!("_{wanted}")))
    }))
}

fn did_you_mean(nearest: Option<String>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => "'podbay config --all' lists all settings".to_owned(),
    }
}

fn nearest(key: &str) -> Option<String> {
    // A key in the wrong section is recognized by its last part.
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let keys = || SETTINGS.iter().map(|setting| setting.key.to_owned());
    closest(key, keys()).or_else(|| {
        let wanted = last(key);
        SETTINGS.iter().find(|setting| distance(&last(setting.key), &wanted) <= 1).map(|setting| setting.key.to_owned())
    })
}

fn closest(wanted: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    let (distance, nearest) =
        candidates.map(|candidate| (distance(&candidate, wanted), candidate)).min_by_key(|(distance, _)| *distance)?;
    (distance <= 2.max(wanted.len() / 4).min(4)).then_some(nearest)
}

/// The Levenshtein distance: how many characters have to be inserted, deleted or replaced.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
