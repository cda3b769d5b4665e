//! Licences, sources, duplicates and bans of everything we depend on, by `deny.toml`.
//!
//! The file is cargo-deny's, but cargo-deny itself has 140 crates to compile and fetches its database from the network. What
//! it does beyond advisories is a look at `cargo metadata`, so that is done here. Advisories are checked where both cargo-deny
//! and a database are installed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::summary::Part;
use crate::tools::{self, cargo, root};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize, Clone)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for what is in this repository.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Named>,
    skip: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: BTreeSet<String>,
}

/// What a check finds wrong.
type Check = fn(&Deny, &[Package]) -> Vec<String>;

/// Runs all of the checks.
pub fn check(results: &mut Part) {
    let (deny, packages) = match read() {
        Ok(read) => read,
        Err(error) => return results.fail(format!("dependencies: {error:#}")),
    };
    let checks: [(&str, Check); 4] =
        [("licences", licences), ("bans", bans), ("duplicates", duplicates), ("sources", sources)];
    for (what, check) in checks {
        let wrong = check(&deny, &packages);
        let outcome = if wrong.is_empty() { Ok(()) } else { Err(anyhow::anyhow!("{}", wrong.join("; "))) };
        results.check(what, outcome);
    }
    advisories(results);
}

fn read() -> Result<(Deny, Vec<Package>)> {
    let file = root().join("deny.toml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("{} can't be read", file.display()))?;
    let deny = toml::from_str(&text).with_context(|| format!("{} is wrong", file.display()))?;
    let output = cargo().args(["metadata", "--format-version", "1", "--all-features", "--locked"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("can't parse the output of cargo metadata")?;
    Ok((deny, metadata.packages))
}

fn licences(deny: &Deny, packages: &[Package]) -> Vec<String> {
    let allowed = |package: &Package| -> Result<()> {
        let text = package.license.as_deref().context("declares no licence")?;
        let expression = spdx::Expression::parse_mode(text, spdx::ParseMode::LAX)
            .map_err(|error| anyhow::anyhow!("has an invalid licence expression, {text:?}: {error}"))?;
        let exception = deny.licenses.exceptions.iter().find(|exception| exception.name == package.name);
        let fits = expression.evaluate(|wanted| {
            let wanted = wanted.to_string();
            deny.licenses.allow.contains(&wanted) || exception.is_some_and(|one| one.allow.contains(&wanted))
        });
        if fits { Ok(()) } else { bail!("has the licence {text}, which deny.toml doesn't allow") }
    };
    let foreign = packages.iter().filter(|package| package.source.is_some());
    foreign.filter_map(|package| allowed(package).err().map(|error| format!("{} {error:#}", package.name))).collect()
}

fn bans(deny: &Deny, packages: &[Package]) -> Vec<String> {
    let banned = |package: &Package| deny.bans.deny.iter().find(|banned| banned.name == package.name);
    packages.iter().filter_map(banned).map(|banned| format!("{}: {}", banned.name, banned.reason)).collect()
}

fn duplicates(deny: &Deny, packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let covers = |skip: &Named, name: &str, version: &str| {
        let (of, from) = skip.name.split_once('@').unwrap_or((&skip.name, ""));
        let rest = version.strip_prefix(from);
        of == name && rest.is_some_and(|rest| from.is_empty() || rest.is_empty() || rest.starts_with('.'))
    };
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let mut left = Vec::new();
        for version in versions {
            match deny.bans.skip.iter().find(|skip| covers(skip, name, version)) {
                Some(skip) => {
                    used.insert(&skip.name);
                }
                None => left.push(*version),
            }
        }
        if left.len() > 1 {
            wrong.push(format!("{name} is used in versions {}: see `cargo tree -i {name}`", left.join(", ")));
        }
    }
    let stale = deny.bans.skip.iter().filter(|skip| !used.contains(&skip.name));
    wrong.extend(stale.map(|skip| format!("deny.toml skips {}, which is no longer duplicated", skip.name)));
    wrong
}

fn sources(deny: &Deny, packages: &[Package]) -> Vec<String> {
    let known =
        |source: &str| source.strip_prefix("registry+").is_some_and(|from| deny.sources.allow_registry.contains(from));
    let foreign = packages.iter().filter_map(|package| Some((package, package.source.as_deref()?)));
    foreign
        .filter(|(_, source)| !known(source))
        .map(|(package, source)| format!("{} comes from {source}", package.name))
        .collect()
}

fn advisories(results: &mut Part) {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).unwrap_or_default();
    let database = ["advisory-dbs", "advisory-db"].iter().any(|name| home.join(name).is_dir());
    let installed = cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    match (installed, database) {
        (true, true) => {
            results.check("advisories", tools::run(cargo().args(["deny", "--offline", "check", "advisories"])));
        }
        (false, _) => results.leave_out("advisories: cargo-deny isn't installed".to_owned()),
        (true, false) => results.leave_out("advisories: there is no database; `cargo deny fetch` gets one".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deny(text: &str) -> Deny {
        toml::from_str(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn package(name: &str, version: &str, license: &str, source: &str) -> Package {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Package { name: name.into(), version: version.into(), license: text(license), source: text(source) }
    }

    #[test]
    fn what_deny_toml_forbids_is_found() {
        let deny = deny(
            "licenses = { allow = [\"MIT\", \"Apache-2.0 WITH LLVM-exception\"], exceptions = [{ crate = \"data\", allow = [\"ISC\"] }] }
             bans = { deny = [{ crate = \"bad\", reason = \"no\" }], skip = [{ crate = \"two@1\", reason = \"x\" }, { crate = \"old@1\", reason = \"x\" }] }
             sources = { allow-registry = [\"https://index\"] }",
        );
        let from = "registry+https://index";
        let packages = [
            package("fine", "1.0.0", "GPL-3.0-only OR MIT", from),
            package("also", "1.0.0", "Apache-2.0 WITH LLVM-exception", from),
            package("slash", "1.0.0", "GPL-3.0/MIT", from),
            package("data", "1.0.0", "ISC", from),
            package("ours", "1.0.0", "", ""),
            package("both", "1.0.0", "MIT AND ISC", from),
            package("none", "1.0.0", "", from),
            package("bad", "1.0.0", "MIT", "git+https://index"),
            package("two", "1.4.0", "MIT", from),
            package("two", "2.0.0", "MIT", from),
            package("three", "1.0.0", "MIT", from),
            package("three", "10.0.0", "MIT", from),
        ];
        let names = |wrong: Vec<String>| -> Vec<String> {
            wrong.iter().map(|line| line.split([' ', ':']).next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(names(licences(&deny, &packages)), ["both", "none"]);
        assert_eq!(names(bans(&deny, &packages)), ["bad"]);
        assert_eq!(names(sources(&deny, &packages)), ["bad"]);
        let twice = duplicates(&deny, &packages);
        assert!(twice.len() == 2 && twice[0].starts_with("three is used") && twice[1].contains("old@1"), "{twice:?}");
    }
}
