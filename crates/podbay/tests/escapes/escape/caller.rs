//! Attacks on what the caller asks for: working directories, paths, downloads.

use podbay::Command;

use crate::attack::{Pending, verdict};
use crate::site::Site;

/// Every directory that podbayd or a shim may have open at that moment, as a working directory.
pub(super) fn working_directory(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let mut got = Vec::new();
        for number in 0..32 {
            for whose in ["self", "thread-self", "1"] {
                let cwd = format!("/proc/{whose}/fd/{number}");
                let script = "pwd -P; cat secret ../secret ../../secret ../../../secret 2>/dev/null";
                let command = Command { cwd: Some(cwd.as_str().into()), ..Command::shell(script) };
                if let Ok(output) = made.sandbox.run(command).await
                    && output.text().contains("secret")
                {
                    got.push(format!("{cwd}: {}", output.text()));
                }
            }
        }
        site.end(made).await?;
        verdict(got)
    })
}

/// Links and `..` out of a scope's root, for reading and for writing.
pub(super) fn root_of_a_scope(site: &Site) -> Pending<'_> {
    use podbay::files::{Grep, Ls, Read, Scope, Write};
    Box::pin(async {
        let made = site.make().await?;
        let sandbox = &made.sandbox;
        let script = "mkdir -p jail/sub jailed && echo outside > jailed/secret && cd jail && ln -s ../jailed away && \
                      ln -s ../jailed/secret leaf && ln -s sub/../../jailed chain && ln -s \"$PWD/../jailed\" whole && \
                      ln -s away again && ln -s ../jailed/new hole";
        let prepared = sandbox.run(script).await.map_err(|error| error.to_string())?;
        if !prepared.success() {
            return Err(format!("can't make the links: {}", prepared.text()).into());
        }
        let pwd = sandbox.run("pwd").await.map_err(|error| error.to_string())?;
        let pwd = pwd.text().trim_end().to_owned();
        let scope = Scope { root: Some(format!("{pwd}/jail").into()), ..Scope::default() };
        let scopes = [scope.clone(), Scope { virtual_paths: true, ..scope }];
        let mut got = Vec::new();
        for scope in scopes {
            let base = if scope.virtual_paths { String::new() } else { format!("{pwd}/jail") };
            for way in
                ["../jailed", "sub/../../jailed", "away", "chain", "whole", "again", "../jail/../jailed", "../jailed/."]
            {
                let secret = format!("{base}/{way}/secret");
                if sandbox.read(&Read { scope: scope.clone(), ..Read::new(secret.as_str()) }).await.is_ok() {
                    got.push(format!("read {secret}"));
                }
                let new = format!("{base}/{way}/new");
                if sandbox.write(&Write { scope: scope.clone(), ..Write::new(new.as_str()) }, "x").await.is_ok() {
                    got.push(format!("write {new}"));
                }
                let directory = format!("{base}/{way}");
                if sandbox.ls(&Ls { scope: scope.clone(), ..Ls::new(directory.as_str()) }).await.is_ok() {
                    got.push(format!("list {directory}"));
                }
            }
            for leaf in ["leaf", "hole"] {
                let path = format!("{base}/{leaf}");
                if sandbox.read(&Read { scope: scope.clone(), ..Read::new(path.as_str()) }).await.is_ok() {
                    got.push(format!("read {path}"));
                }
                if sandbox.write(&Write { scope: scope.clone(), ..Write::new(path.as_str()) }, "x").await.is_ok() {
                    got.push(format!("write {path}"));
                }
            }
            let grep = Grep { scope, path: Some(format!("{base}/").into()), ..Grep::new("outside") };
            match sandbox.grep(&grep).await {
                Ok(found) if found.count == 0 => {}
                other => got.push(format!("grep: {other:?}")),
            }
        }
        // What was written would be here.
        let after = sandbox.run("cat jailed/*").await.map_err(|error| error.to_string())?;
        if after.text() != "outside\n" {
            got.push(format!("changed: {}", after.text()));
        }
        site.end(made).await?;
        verdict(got)
    })
}

/// A tree whose links lead to the caller's files, taken twice: the second time its files would go through the links.
pub(super) fn download(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let outside = site.scratch.join("caller");
        std::fs::create_dir(&outside).map_err(|error| error.to_string())?;
        let target = outside.join("target");
        let script = format!(
            "mkdir -p tree/d && ln -s {outside} tree/whole && ln -s .. tree/up && ln -s ../.. tree/d/up2 && \
             ln -s {outside}/planted tree/leaf && echo x > tree/d/file && \
             ln -s . tree/dot && ln -s dot/.. tree/one && ln -s one/dot/.. tree/two && ln -s d/up2/dot/.. tree/three",
            outside = outside.display()
        );
        let output = made.sandbox.run(script.as_str()).await.map_err(|error| error.to_string())?;
        if !output.success() {
            return Err(format!("can't make the tree: {}", output.text()).into());
        }
        let replaced = "rm tree/whole tree/up tree/leaf && mkdir tree/whole tree/up && echo x > tree/whole/planted && \
                        echo x > tree/up/planted && echo x > tree/leaf";
        for script in ["true", replaced] {
            made.sandbox.run(script).await.map_err(|error| error.to_string())?;
            // Refusing is as good as leaving out.
            let _ = made.sandbox.download_tree("tree", &target, &podbay::Meter::new(&|_| {})).await;
        }
        site.end(made).await?;
        let mut names: Vec<_> = std::fs::read_dir(&outside)
            .map_err(|error| error.to_string())?
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        names.retain(|name| name != "target");
        let links = leading_out(&target, &target);
        let planted = names.iter().map(|name| format!("planted {name:?}"));
        verdict(planted.chain(links.iter().map(|link| format!("link {}", link.display()))).collect())
    })
}

/// The links below a directory that lead out of `root`.
fn leading_out(directory: &std::path::Path, root: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(real) = root.canonicalize() else { return Vec::new() };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_symlink() {
            if path.canonicalize().is_ok_and(|to| !to.starts_with(&real)) {
                found.push(path);
            }
        } else if path.is_dir() {
            found.extend(leading_out(&path, root));
        }
    }
    found
}
