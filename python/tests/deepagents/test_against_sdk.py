"""The same calls to Podbay's backend and to the SDK's scripts, in one sandbox: the results must be equal."""

from __future__ import annotations

import dataclasses

import pytest
from deepagents.backends.utils import compile_grep_include_glob

from reference import Reference


@pytest.fixture(scope="module")
def reference(local):
    return Reference(local)


CONTENTS = {
    "empty": b"",
    "one line": b"alpha",
    "ended line": b"alpha\n",
    "only breaks": b"\n\n\n\n",
    "blank at the end": b"a\nb\n\n",
    "CRLF": b"a\r\nb\r\nc\r\n",
    "lone CR": b"a\rb\rc",
    "mixed": b"a\r\nb\nc\rd\n\r\n",
    "separators that end no line": "a\u2028b\x0bc\x0cd\x85e\n".encode(),
    "spaces": b"   \n\t\n",
    "byte order mark": b"\xef\xbb\xbfa\nb\n",
    "NUL": b"a\0b\nc\n",
    "not UTF-8": b"caf\xe9\n",
    "hundred lines": b"".join(b"line %d\n" % n for n in range(100)),
    "long lines": (b"x" * 999 + b"\n") * 2000,
    "one huge line": b"y" * 600_000,
    "huge second line": b"first\n" + b"y" * 600_000 + b"\nlast\n",
    "many characters of three bytes": "語" * 300_000 + "\n",
    "cut at the sniffed prefix": "é" * 4095 + "語" + "\nb\n",
}
WINDOWS = [(0, 2000), (0, 1), (1, 1), (0, 0), (0, -5), (-3, 2), (2, 2), (3, 100), (4, 1), (99, 1), (100, 1), (1000, 5)]


def as_bytes(content):
    return content.encode() if isinstance(content, str) else content


@pytest.mark.parametrize("name", CONTENTS)
def test_pages(local, reference, root, name):
    path = f"{root}/file.txt"
    assert local.upload_files([(path, as_bytes(CONTENTS[name]))])[0].error is None
    for offset, limit in WINDOWS:
        ours, theirs = local.read(path, offset, limit), reference.read(path, offset, limit)
        if theirs.total_lines is None and ours.total_lines is not None:
            # Counting is optional in large files; if there is a count, it has to be right.
            assert ours.total_lines == as_bytes(CONTENTS[name]).count(b"\n")
            ours = dataclasses.replace(ours, total_lines=None)
        assert ours == theirs, (name, offset, limit)


@pytest.mark.parametrize(
    "extension", ["png", "PNG", "jpeg", "mp4", "mkv", "wav", "pdf", "pptx", "svg", "txt", "bin", ""]
)
@pytest.mark.parametrize("size", [0, 5, 512_000, 512_001])
def test_extensions(local, reference, root, extension, size):
    path = f"{root}/file.{extension}"
    assert local.upload_files([(path, b"z" * size)])[0].error is None
    assert local.read(path) == reference.read(path)


def test_what_cannot_be_read(local, reference, root):
    made = f"mkdir -p {root}/dir; mkfifo {root}/fifo; ln -s nowhere {root}/broken; echo x > {root}/file"
    assert local.execute(made).exit_code == 0
    for name in ("missing", "dir", "fifo", "broken"):
        assert local.read(f"{root}/{name}") == reference.read(f"{root}/{name}")
    # Upstream's script ends with a traceback here. Podbay reports that the file doesn't exist.
    assert local.read(f"{root}/file/below").error == f"File '{root}/file/below': file_not_found"


def test_directories(local, reference, root):
    made = (
        f"mkdir -p {root}/sub/deep {root}/.hidden {root}/empty; cd {root}; touch a 'b c' .dot sub/x; mkfifo fifo;"
        " ln -s sub link; ln -s nowhere broken; ln -s a file-link; printf x > 'ü\"$(id)'"
    )
    assert local.execute(made).exit_code == 0
    for path in (root, f"{root}/", f"{root}/empty", f"{root}/a", f"{root}/missing", f"{root}/link", "/"):
        ours, theirs = local.ls(path), reference.ls(path)
        assert ours.error == theirs.error
        if theirs.entries is None:
            assert ours.entries is None
            continue
        # Kernel file systems are hidden from the model: there is nothing to search in them.
        kernel = {("/dev", True), ("/proc", True), ("/sys", True)}
        expected = {(entry["path"], entry["is_dir"]) for entry in theirs.entries} - kernel
        assert {(entry["path"], entry["is_dir"]) for entry in ours.entries} == expected


EDITS = [
    (b"hello world", "world", "there", False),
    (b"a a a", "a", "b", False),
    (b"a a a", "a", "b", True),
    (b"aaaa", "aa", "b", True),
    (b"abc", "x", "y", False),
    (b"abc", "", "y", False),
    (b"abc", "abc", "", False),
    (b"abc", "b", "b", False),
    (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", False),
    (b"a\nb\nc\n", "a\r\nb", "x\r\ny", False),
    (b"a\r\nb\na\nb\n", "a\nb", "x\ny", False),
    (b"a\r\nb\na\nb\n", "a\nb", "x\ny", True),
    (b"cost: $100.00 [a-z]*\n", "$100.00", "\\1 $&", False),
    ("grüße 🌍".encode(), "🌍", "語", False),
    (b"caf\xe9", "caf", "x", False),
    (b"a\0b", "a", "x", False),
    (b"no end", "end\n", "x", False),
    (b"", "a", "b", False),
    (b"x" * 60_000 + b"needle", "x" * 60_000, "y" * 70_000, False),
]


@pytest.mark.parametrize(("content", "old", "new", "every"), EDITS)
def test_edits(local, reference, root, content, old, new, every):
    for name, backend in (("ours", local), ("theirs", reference)):
        assert local.upload_files([(f"{root}/file", content)])[0].error is None
        result = backend.edit(f"{root}/file", old, new, every)
        after = local.download_files([f"{root}/file"])[0].content
        if name == "ours":
            ours, ours_after = result, after
    assert ours_after == after
    assert ours == result


def test_what_cannot_be_edited(local, reference, root):
    assert local.execute(f"mkdir -p {root}/dir; mkfifo {root}/fifo").exit_code == 0
    for name in ("missing", "dir", "fifo"):
        assert local.edit(f"{root}/{name}", "a", "b") == reference.edit(f"{root}/{name}", "a", "b")


def test_deleting(local, reference, root):
    made = f"mkdir -p {root}/{{}}/deep; cd {root}/{{}}; touch f deep/g; ln -s deep link; ln -s nowhere broken"
    for name, backend in (("ours", local), ("theirs", reference)):
        assert local.execute(made.format(name, name)).exit_code == 0
        for target in ("f", "link", "broken", "deep", "missing"):
            result = backend.delete(f"{root}/{name}/{target}")
            expected = None if target != "missing" else f"Error: '{root}/{name}/missing' not found"
            assert result.error == expected
        assert local.ls(f"{root}/{name}").entries == []


TREE = [
    "a.py", "b.txt", "ab.py", "[x].py", "{a}.py", "!a.py", ".dot.py", "A.PY", "sub/a.py", "sub/deep/a.py",
    "sub/deep/er/b.txt", ".github/workflows/ci.yml", ".github/a.yml", "sub/.hid/c.yml", "x/y.yml", "sub/deep/.dot",
    "a b.py", "ü.py", "sub/a,b.txt", "sub/{c}", "d1", "d2", "d-", "q?.py",
]  # fmt: skip
PATTERNS = [
    "*.py", "**/*.py", "*", "**", "*.yml", "**/*.yml", "*.{py,txt}", "{a,b}.*", "{a}.py", "{a,{b,ab}}.py", "sub/*",
    "sub/**", "sub/**/*.py", "**/deep/*", "/a.py", "/sub/*.py", "?.py", "[ab].py", "[!a].py", "[^a].py", "[a-c]*",
    "!a.py", ".*", ".*/**", "**/.*", ".github/**/*.yml", "sub//a.py", "sub/", "sub/**/", "", "a\\.py", "\\*.py",
    "d[0-9]", "d[!0-9]", "*[", "[", "]", "a.p[y", "*.PY", "[[]x].py", "sub/.hid/*", "**/.hid/*", "./a.py",
    "sub/./a.py", "***", "**/**/*.py", "sub/**/deep/**", "a*b.py", "x/*.yml", "sub/a,b.txt", "sub/{c}", "q[?].py",
    "[.]dot.py", "{.,}dot.py",
]  # fmt: skip


def test_patterns(local, reference, root):
    assert all(sent.error is None for sent in local.upload_files([(f"{root}/{name}", b"") for name in TREE]))
    differences = []
    for pattern in PATTERNS:
        if pattern == "a\\.py":
            # The script doesn't support escapes, but the shared matcher does, and that defines the contract.
            continue
        ours = local.glob(pattern, root)
        theirs = reference.glob(pattern, root)
        assert (ours.error, ours.truncated) == (theirs.error, theirs.truncated), pattern
        names = [match["path"] for match in ours.matches]
        if names != [match["path"] for match in theirs.matches]:
            differences.append((pattern, names, [match["path"] for match in theirs.matches]))
    assert differences == []


def test_patterns_against_the_matcher(local, root):
    """The SDK's scripts promise to follow the matcher that all of its backends share, and so does Podbay."""
    assert all(sent.error is None for sent in local.upload_files([(f"{root}/{name}", b"") for name in TREE]))
    differences = []
    for pattern in PATTERNS:
        matches = compile_grep_include_glob(pattern)
        expected = sorted(name for name in TREE if matches(name))
        found = sorted(match["path"].removeprefix(f"{root}/") for match in local.glob(pattern, root).matches)
        searched = sorted(
            match["path"].removeprefix(f"{root}/") for match in (local.grep("", root, pattern).matches or [])
        )
        if found != expected:
            differences.append((pattern, found, expected, searched))
    assert differences == []


@pytest.mark.parametrize("pattern", ["../x", "a/../b", "{a,b}" * 11, "{a,b}" * 9])
def test_patterns_that_are_refused(local, reference, root, pattern):
    assert local.write(f"{root}/file", "x").error is None
    ours, theirs = local.glob(pattern, root), reference.glob(pattern, root)
    assert (ours.error, ours.matches) == (theirs.error, theirs.matches)


def test_where_nothing_can_be_found(local, reference, root):
    assert local.write(f"{root}/file", "x").error is None
    for path in (f"{root}/missing", f"{root}/file", f"{root}/file/below"):
        ours, theirs = local.glob("*", path), reference.glob("*", path)
        assert (ours.error, ours.matches) == (theirs.error, theirs.matches)


COMMANDS = [
    "seq 3", "true", "exit 7", "seq 100000", "seq 100000; exit 3", "yes no | head -n 50000", "seq 11 | tr -d '\\n'",
    "printf 'x%.0s' $(seq 30000)", "for i in 1 2 3; do printf 'x%.0s' $(seq 5000); echo; done",
    "for i in $(seq 40); do printf 'x%.0s' $(seq 900); echo; done", "seq 2000 | tr '\\n' ' '; seq 5; printf end",
    "seq 1000; echo end >&2; printf 'no break'", "cd /tmp && pwd", "seq 400000",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("limits", [(4000, None), (100, 20_000), (80_000, None)])
def test_previews(local, reference, root, command, limits):
    inline, capture = limits
    results = []
    for name, backend in (("ours", local), ("theirs", reference)):
        path = f"{root}/{name}"
        result = backend.execute_with_offload(command, path, max_inline_bytes=inline, max_capture_bytes=capture)
        results.append((result, local.download_files([path])[0].content))
    (ours, our_file), (theirs, their_file) = results
    if theirs.response.truncated:
        # Over the limit, the SDK saves the beginning, Podbay the beginning and the end.
        assert (ours.offloaded, ours.response.truncated) == (True, True)
        assert ours.response.exit_code == theirs.response.exit_code
        assert b"bytes omitted here" in our_file
        assert our_file.startswith(their_file[: len(their_file) // 3])
    else:
        assert ours == theirs
        assert our_file == their_file
