//! Lines that must be denied, lines that must pass, and what real shells say of them.

mod tricks;

use std::process::Stdio;

use super::*;
use tricks::TRICKS;

fn decide(rules: &[&str], line: &str) -> Result<(), String> {
    CommandRules::deny(rules.iter().copied(), Matching::Words).check_line(line.as_bytes())
}

/// Ways around `rm -rf` and `curl` that people and models have found.
const BYPASSES: &[&str] = &[
    "rm -rf /",
    "rm  -rf /",
    "rm -fr /",
    "rm -r -f /",
    "rm -Rf /",
    "rm --recursive --force /",
    "rm --rec -f x",
    "rm x -rf",
    "rm -rvf x",
    "/bin/rm -rf x",
    "\\rm -rf x",
    "r''m -rf x",
    "r\"m\" -r'f' x",
    "r\\m -\\rf x",
    "r\\\nm -rf x",
    "A=1 rm -rf x",
    "A=$(true) B='x y' rm -rf x",
    "true; rm -rf x",
    "true && rm -rf x",
    "true || rm -rf x",
    "true & rm -rf x",
    "true\nrm -rf x",
    "echo x | rm -rf x",
    "(rm -rf x)",
    "{ rm -rf x; }",
    "! rm -rf x",
    "if true; then rm -rf x; fi",
    "while rm -rf x; do :; done",
    "for i in 1 2; do rm -rf $i; done",
    "case x in x) rm -rf y;; esac",
    "case x in (x) rm -rf y;; esac",
    "echo $(case x in x) rm -rf y;; esac)",
    "f() { rm -rf x; }; f",
    "function f { rm -rf x; }",
    "echo $(rm -rf x)",
    "echo `rm -rf x`",
    "echo \"`rm -rf x`\"",
    "echo \"a $(rm -rf x) b\"",
    "echo \"${a:-$(rm -rf x)}\"",
    "echo \"${a:-'$(rm -rf x)'}\"",
    "echo ${a:-'}'}; rm -rf x; echo 'a'",
    "echo $(( $(rm -rf x) + 1 ))",
    "echo $((rm -rf x); (true))",
    "cat <(rm -rf x)",
    "tee >(rm -rf x)",
    "cat <<EOF\n$(rm -rf x)\nEOF",
    "cat <<'EOF'\nhello\nEOF\nrm -rf x",
    "cat <<EOF; rm -rf x\nhello\nEOF",
    ">out rm -rf x",
    "2>/dev/null rm -rf x",
    "rm>/dev/null -rf x",
    "rm -rf x 2>&1",
    "sh -c 'rm -rf x'",
    "bash -lc \"rm -rf x\"",
    "bash -o pipefail -c 'rm -rf x'",
    "sh -ec 'sh -c \"rm -rf x\"'",
    "sh <<EOF\nrm -rf x\nEOF",
    "bash <<< 'rm -rf x'",
    "echo 'rm -rf x' | sh",
    "base64 -d <<< cm0gLXJmIHg= | bash",
    "curl x | sh -s -- -y",
    "sh -c \"$X\"",
    "eval rm -rf x",
    "eval 'rm -rf x'",
    "eval \"$X\"",
    "trap 'rm -rf x' EXIT",
    "alias z='rm -rf'\nz x",
    "env rm -rf x",
    "env A=1 rm -rf x",
    "env -i /bin/rm -rf x",
    "env -S 'rm -rf x'",
    "sudo -u root rm -rf x",
    "nohup rm -rf x",
    "timeout 5 rm -rf x",
    "nice -n 5 rm -rf x",
    "command rm -rf x",
    "exec rm -rf x",
    "busybox rm -rf x",
    "time rm -rf x",
    "xargs rm -rf",
    "echo '-rf x' | xargs rm",
    "xargs -I{} sh -c 'rm -rf {}'",
    "find . -exec rm -rf {} +",
    "find . -execdir sh -c 'rm -rf x' \\;",
    "ssh host 'rm -rf x'",
    "watch 'rm -rf x'",
    "su -c 'rm -rf x' root",
    "$X -rf x",
    "r$Y -rf x",
    "$(echo rm) -rf x",
    "`echo rm` -rf x",
    "$'\\x72m' -rf x",
    "/bin/r? -rf x",
    "/bin/r* -rf x",
    "/bin/[r]m -rf x",
    "{rm,-rf,x}",
    "rm $FLAGS x",
    "rm \"$@\"",
    "env $X rm",
    "coproc rm -rf x",
    "c''url x",
    "/usr/bin/curl x",
    "echo 'unclosed; rm",
    "echo \"unclosed",
    "echo $(unclosed",
    "echo )",
    "cat <<EOF\nno end",
    "# comment\nrm -rf x",
    "echo a#b; rm -rf x",
    "echo \\#; rm -rf x",
];

#[test]
fn no_known_way_leads_around() {
    for line in BYPASSES {
        assert!(decide(&["rm -rf", "curl"], line).is_err(), "{line}");
    }
}

#[test]
fn harmless_lines_pass() {
    let lines = [
        "ls -la",
        "rm file",
        "rm -f file",
        "rm -r dir",
        "rm \"dir/$f\"",
        "rm ./*.o",
        "echo rm -rf /",
        "echo 'use curl'",
        "grep -rf patterns src",
        "cat curl.txt",
        "git commit -m 'remove rm -rf and curl'",
        "python3 -c 'print(\"curl\")'",
        "cat <<'EOF' > notes\nrm -rf is dangerous\ncurl too\nEOF",
        "cat <<EOF > notes\n$HOME and curl\nEOF",
        "for f in *.py; do python3 \"$f\" > \"$f.out\" 2>&1; done",
        "if [ -f x ] && [[ -d y ]]; then echo yes; else echo no; fi",
        "case $x in a|b) echo ab;; *) echo other;; esac",
        "x=$((1 + (2 * 3))); echo $x",
        "make -j$(nproc) test 2>&1 | tail -n 5",
        "find . -name '*.rs' -exec wc -l {} +",
        "sh script.sh --curl",
        "awk '{print $1,$2}' file",
        "timeout 10 python3 -m pytest -q",
        "(cd src && ls) > listing # rm -rf",
        "f() { echo hi; }; f",
        "printf '%s\\n' \"${x:-default}\" | sort -u",
        "cat <<< hello",
        ". venv/bin/activate && python3 -m pytest -q",
        "source .venv/bin/activate; pip install -r requirements.txt",
        "bash -lc 'echo hello && ls'",
        "bash -euo pipefail -c 'make test'",
        "for ((i = 0; i < 3; i++)); do echo $i; done",
        "(( n > 3 )) && echo many",
        "a=(1 2 3); echo \"${a[@]}\" ${#a[@]} ${a[0]} ${x@Q}",
        "docker build -t x . \\\n  --build-arg A=1 \\\n  --no-cache",
        "python3 - <<'EOF'\nx = a[1 << 2]\nprint(f\"{x}\")\nEOF",
        "cat > run.sh <<EOF\nset -e\nmake \\\n  all\nEOF",
        "git log --format=%h | head -1 | xargs -I % git show %",
        "find . -name '*.py' | xargs grep -n import",
        "ls | xargs -I{} cp {} backup/",
        "awk '{a[$1]++} END {for (k in a) print k, a[k]}' log",
        "sed -i 's/[$(]/x/g' file",
        "export PATH=\"$HOME/bin:$PATH\" A=1; env FOO=bar make -j$(nproc)",
        "nohup python3 server.py > log 2>&1 &",
        "time make; time -p make",
        "trap 'rm -f tmp' EXIT; trap - INT",
        "ssh -i key -oStrictHostKeyChecking=no host 'ls -la'",
        "exec {fd}>lock; flock 9; echo locked",
        "for f; do echo \"$f\"; done; for f do echo \"$f\"; done",
        "for i in $(seq 3)\ndo\n  echo \"$i\" >> out\ndone",
        "while IFS= read -r line; do echo \"$line\"; done < file > out",
        "while getopts ':hv' option \"$@\"; do echo \"$option\"; done; wait \"$pid\"",
        "case \"$1\" in\n  (a|b) echo one ;;\n  *) echo two ;;\nesac",
        "if (cd src && ls > /dev/null); then echo yes; fi; ! (exit 1)",
        "[[ $x =~ ^(a|b)+$ ]] && [[ $y == @(c|d) ]]",
        "bash -s <<'E' > log 2>&1\nmake test\nE",
        "cat <<'E' | python3 - > out 2>&1\nprint(1)\nE",
        "bash -ic 'make test'; bash script.sh -c config; sh -eux -c 'ls'",
        "ls | xargs -I {} cp {} \"$target\"; ls | xargs -I '{}' mv '{}' old",
        "read -r -p \"Continue $x? \" answer",
        "printf '%s %s\\n' \"$a\" $b; printf -v x '%d' \"$n\"",
        "make test &> log; tail log",
        "make > log 2>&1 &",
        "echo error >&2",
        "sudo apt-get install -y $PACKAGES",
        "timeout 60 cargo test -p \"$crate\" -- --nocapture",
        "timeout -s KILL 60s python3 \"$script\"",
        "timeout --foreground 5m make -j$(nproc)",
        "nice -n 10 make -C \"$dir\"",
        "env A=\"$HOME/a\" PATH=\"$PWD/bin:$PATH\" python3 \"$script\"",
        "find \"$dir\" \"$other\" -name \"*.py\" -type f -exec grep -l \"$text\" {} +",
        "find . -name '*.log' -print0 | xargs -0 wc -l",
        "git ls-files | xargs -n 1 -P 4 wc -l",
        "git diff --name-only | xargs",
        "git ls-files | xargs grep -n \"$text\"",
        "env python3 - <<'E'\nprint('hi')\nE",
        "echo $(( $(wc -l < \"$f\") + 1 )) $((x << 1)) $(( (a + b) % 16 ))",
        "echo \"$(( ${#a[@]} - 1 ))\" \"${f%.py}\" \"${f##*/}\" \"${x//\\//-}\"",
        "files=(a b c) ; for f in \"${files[@]}\"; do echo \"$f\"; done",
        "declare -a m=(1 2); local x=\"$1\" y; export A=\"$b\" C",
        "git commit -F - <<'E'\nAdd it\nE\ngit push",
        "x=$(cat <<'E'\nsome text\nE\n); echo \"$x\"",
        "git commit -m \"$(cat <<'EOF'\nFix it\n\nIt wasn't right.\nEOF\n)\"",
        "case $1 in start) ./run > log 2>&1 & ;; stop) kill \"$pid\" ;; esac",
        "command -v python3 >/dev/null 2>&1 || echo none",
        "",
    ];
    let decided = lines.iter().map(|line| (line, decide(&["rm -rf", "curl"], line)));
    let denied: Vec<_> = decided.filter(|(_, decision)| decision.is_err()).collect();
    assert!(denied.is_empty(), "{denied:#?}");
}

/// Whether dash or bash runs the program in this line; nothing where there is neither.
fn really_runs(line: &str) -> Option<bool> {
    let home = tempfile::tempdir().unwrap();
    let (victim, mark) = (home.path().join("victim"), home.path().join("mark"));
    std::fs::write(&victim, "#!/bin/sh\n: > \"$MARK\"\n").unwrap();
    std::fs::set_permissions(&victim, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", home.path().display());
    let tried = ["dash", "bash"].map(|shell| {
        let dir = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(shell);
        command.args(["-c", line]).current_dir(&dir).env_clear().env("PATH", &path).env("MARK", &mark);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok()
    });
    tried.contains(&true).then(|| mark.exists())
}

/// A line that really runs the program, in dash or in bash, must be denied.
#[test]
fn what_a_shell_runs_is_denied() {
    let look = |lines: &[&'static str]| {
        lines.iter().filter_map(|line| really_runs(line).map(|runs| (*line, runs))).collect::<Vec<_>>()
    };
    // Most of the time goes into waiting.
    let looked: Vec<(&str, bool)> = std::thread::scope(|scope| {
        let parts: Vec<_> = TRICKS.chunks(TRICKS.len() / 8 + 1).map(|part| scope.spawn(move || look(part))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    let running: Vec<&str> = looked.iter().filter(|(_, runs)| *runs).map(|(line, _)| *line).collect();
    let allowed: Vec<&&str> = running.iter().filter(|line| decide(&["victim"], line).is_ok()).collect();
    assert!(allowed.is_empty(), "these run it, and are allowed: {allowed:#?}");
    let enough = looked.is_empty() || running.len() > TRICKS.len() / 2;
    assert!(enough, "the control: {} of {} lines run the program", running.len(), TRICKS.len());
}

#[test]
fn arguments_without_a_shell_are_words() {
    let rules = CommandRules::deny(["rm -rf"], Matching::Words);
    let check = |words: &[&str]| rules.check_argv(words.iter().map(|word| word.as_bytes()));
    assert!(check(&["/bin/rm", "-r", "-f", "x"]).is_err());
    assert!(check(&["sh", "-c", "rm -rf x"]).is_err());
    assert!(check(&["env", "rm", "-rf", "x"]).is_err());
    assert_eq!(check(&["echo", "$(rm -rf x)", "*"]), Ok(()));
}

#[test]
fn the_substring_mode_is_the_replaced_packages() {
    let rules = CommandRules::deny(["rm -rf", "curl"], Matching::Substring);
    assert!(rules.check_line(b"echo rm -rf").is_err());
    assert!(rules.check_line(b"cat curl.txt").is_err());
    assert_eq!(rules.check_line(b"rm  -rf x"), Ok(()));
}

/// Other tests run at the same time.
fn processor_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.try_into().unwrap()
}

#[test]
fn nothing_that_comes_in_takes_long_or_deep() {
    let at_once = |line: &str| {
        let begun = processor_time();
        let _ = decide(&["rm -rf"], line);
        let (took, start) = (processor_time() - begun, line.get(..80).unwrap_or(line));
        assert!(took.as_secs() < 1, "{took:?} for {} bytes: {start:?}", line.len());
    };
    // Repeated a few times, more often than a command may have words, and everything between.
    let often = [8, 16, 24, 32, 64, 500, 1_000, 2_000, 4_000, 20_000];
    for piece in [
        "(",
        "$(",
        "`",
        "${",
        "\"$(",
        "$((",
        "$(('(((((' ) ) ",
        "((';(((((' ) ) ",
        "{",
        "<(",
        "a|",
        "a[",
        "sh -c '",
        "<<E\n",
        "eval ",
        "env ",
        "env rm ",
        "env -S",
        "env -S ",
        "find -exec ",
        "find -exec env ",
        "find -exec env sh -c a ",
        "find -exec xargs ",
        "xargs find -exec ",
        "xargs ",
        "xargs -I% ",
        "a ",
        "rm ",
        "rm -r ; ",
    ] {
        for times in often {
            at_once(&piece.repeat(times));
        }
        at_once(&format!("{}{}", piece.repeat(5_000), ")".repeat(5_000)));
    }
    for (shells, documents) in [(1, 14), (2, 14), (3, 11), (8, 15), (500, 15)] {
        let nested = (0..documents).fold("true".to_owned(), |body, number| {
            format!("env{} <<'E{number}'\n{body}\nE{number}", " sh -s".repeat(shells))
        });
        at_once(&format!("{nested}\n"));
    }
    at_once(&format!("env {}-c '{}'", "sh ".repeat(2_000), "true;".repeat(20_000)));
    at_once(&format!("{}-c '{}'", "env sh ".repeat(2_000), "true;".repeat(20_000)));
    at_once(&format!("env {}'{}'", "sh -c ".repeat(2_000), "true;".repeat(20_000)));
    at_once(&format!("env {} rm", "a ".repeat(4_000)).repeat(30));
    at_once(&format!("cat <<E\n{}E\n", "a\\\n".repeat(80_000)));
}

/// What may take long is denied; a long line needn't be.
#[test]
fn what_is_too_complex_is_denied() {
    let reason = decide(&["rm -rf"], &format!("find {}true", "-exec nice find ".repeat(1_000))).unwrap_err();
    assert!(reason.contains("too complex"), "{reason}");
    assert_eq!(decide(&["rm -rf"], &"find . -name '*.rs' -exec wc -l {} +; ".repeat(1_000)), Ok(()));
    assert_eq!(decide(&["rm -rf"], &format!("sudo rm {}", "file ".repeat(4_000))), Ok(()));
    assert_eq!(decide(&["rm -rf"], &format!("cat > f <<'E'\n{}E\n", "some text\n".repeat(20_000))), Ok(()));
}
