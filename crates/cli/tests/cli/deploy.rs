//! The manifests in `deploy/` are what the commands print that stand beside them.

use crate::home::{Home, text};

#[test]
fn manifests_are_what_install_prints() {
    let home = Home::new();
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let page = std::fs::read_to_string(dir.join("README.md")).unwrap();
    let mut named: Vec<&str> = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| [")) {
        let file = row.split(['[', ']']).nth(1).unwrap();
        let command = row.split('`').nth(1).unwrap();
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let output = home.output(&words);
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
        let committed = std::fs::read_to_string(dir.join(file)).unwrap();
        assert!(committed == text(&output.stdout), "deploy/{file} differs; write it anew: {command} > deploy/{file}");
        named.push(file);
    }
    for entry in std::fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "README.md" || named.contains(&name.as_str()), "deploy/README.md doesn't name {name}");
    }
}
