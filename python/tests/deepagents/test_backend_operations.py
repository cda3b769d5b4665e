"""What the standard suite doesn't test, in every mode: metadata, links, pipes, artefacts, limits."""

from __future__ import annotations

import pytest
from deepagents.backends.sandbox import MAX_OUTPUT_BYTES, TRUNCATION_MSG

from podbay.deepagents import ARTEFACT_PATHS


def put(backend, files):
    sent = backend.upload_files([(path, content) for path, content in files.items()])
    assert [response.error for response in sent] == [None] * len(files)


def paths(result):
    assert result.error is None, result.error
    return [entry["path"] for entry in result.matches]


def test_writing_replaces_and_keeps_what_a_file_is(backend, root):
    path = f"{root}/new/dir/tool.sh"
    assert backend.write(path, "echo one\r\n").path == path
    assert backend.execute(f"chmod 750 {path}; ln -s tool.sh {root}/new/dir/link").exit_code == 0
    assert backend.write(f"{root}/new/dir/link", "echo two").error is None
    assert (
        backend.execute(f"stat -c %a {path}; cat {path}; readlink {root}/new/dir/link").output
        == "750\necho twotool.sh\n"
    )


def test_writing_where_one_cannot(backend, root):
    assert backend.write(f"{root}/file", "x").error is None
    assert backend.write(root, "x").error == f"Failed to write file '{root}': is_directory"
    assert (
        backend.write(f"{root}/file/below", "x").error == f"Failed to write file '{root}/file/below': not_a_directory"
    )
    assert backend.write("/proc/nothing", "x").error.startswith("Failed to write file '/proc/nothing': ")


def test_pages_follow_one_another(backend, root):
    path = f"{root}/long.txt"
    put(backend, {path: b"".join(b"%d\n" % n for n in range(1, 1001))})
    offset, seen = 0, []
    while offset is not None:
        page = backend.read(path, offset, 300)
        assert (page.start_line, page.total_lines, page.no_lines_requested) == (offset + 1, 1000, False)
        seen += page.file_data["content"].split("\n")
        assert page.end_line == len(seen)
        offset = page.next_offset
    assert seen == [str(n) for n in range(1, 1001)]
    past = backend.read(path, 1000)
    assert (past.error, past.file_data) == (f"File '{path}': Line offset 1000 exceeds file length (1000 lines)", None)
    assert backend.read(path, 10**30).error.endswith("exceeds file length (1000 lines)")


def test_a_full_page_ends_at_a_whole_line(backend, root):
    path = f"{root}/wide.txt"
    put(backend, {path: (b"x" * 999 + b"\n") * 2000})
    page = backend.read(path)
    assert (page.start_line, page.end_line, page.next_offset, page.total_lines) == (1, 511, 511, 2000)
    assert page.file_data["content"].endswith("x" + TRUNCATION_MSG)
    assert len(page.file_data["content"].encode()) == MAX_OUTPUT_BYTES
    assert backend.read(path, page.next_offset, 1).file_data["content"] == "x" * 999


def test_reading_what_is_not_text(backend, root):
    invalid_late = b"a\n" * 10_000 + b"\xff\n"
    put(backend, {f"{root}/late.txt": invalid_late, f"{root}/big.dat": b"\xff" * 600_000})
    late = backend.read(f"{root}/late.txt", 0, 20_000)
    assert late.error is None
    assert late.file_data["encoding"] == "base64"
    # Upstream returns all 800 KB as base64 (langchain-ai/deepagents issue 4408).
    assert backend.read(f"{root}/big.dat").error == (
        f"File '{root}/big.dat': Binary file exceeds maximum preview size of 512000 bytes"
    )


def test_edits_keep_line_ends(backend, root):
    path = f"{root}/dos.txt"
    put(backend, {path: b"one\r\ntwo\r\nthree\r\n"})
    assert backend.edit(path, "one\ntwo\n", "1\n2\n").occurrences == 1
    assert backend.download_files([path])[0].content == b"1\r\n2\r\nthree\r\n"


def test_edits_of_megabytes(backend, root):
    path = f"{root}/history.md"
    old, new = "## turn\n" * 300_000, "## turn\n" * 300_001
    assert backend.write(path, old).error is None
    assert backend.edit(path, old, new).occurrences == 1
    assert backend.download_files([path])[0].content == new.encode()


def test_deleting(backend, root):
    put(backend, {f"{root}/tree/a/b/c": b"", f"{root}/tree/f": b"", f"{root}/kept/f": b""})
    assert backend.execute(f"cd {root}; ln -s kept link; ln -s nowhere broken").exit_code == 0
    for name in ("tree", "link", "broken"):
        result = backend.delete(f"{root}/{name}")
        assert (result.error, result.path) == (None, f"{root}/{name}")
    assert [entry["path"] for entry in backend.ls(root).entries] == [f"{root}/kept"]
    assert backend.read(f"{root}/kept/f").error is None
    assert backend.delete(f"{root}/tree").error == f"Error: '{root}/tree' not found"


def test_listing(backend, root):
    assert backend.execute(f"mkdir -p {root}/d; cd {root}; ln -s d link; ln -s nowhere broken; mkfifo p").exit_code == 0
    entries = {entry["path"]: entry["is_dir"] for entry in backend.ls(f"{root}/").entries}
    expected = {f"{root}/d": True, f"{root}/link": False, f"{root}/broken": False, f"{root}/p": False}
    assert entries == expected
    assert backend.ls(f"{root}/d").entries == []
    assert backend.ls(f"{root}/p").error == f"Path '{root}/p': not_a_directory"
    assert backend.ls(f"{root}/none").error == f"Path '{root}/none': path_not_found"
    assert {"/workspace", "/tmp"} <= {entry["path"] for entry in backend.ls("/").entries}


def test_globs_are_absolute_regular_files(backend, root):
    put(
        backend,
        {f"{root}/{name}": b"" for name in ("a.txt", "b.txt", "c.py", ".hidden", "sub/d.txt", "file1", "file22")},
    )
    made = f"cd {root}; mkdir folder; ln -s a.txt inside; ln -s /etc/passwd outside; ln -s sub dirlink; mkfifo pipe.txt"
    assert backend.execute(made).exit_code == 0
    assert paths(backend.glob("*.txt", root)) == [f"{root}/{name}" for name in ("a.txt", "b.txt", "sub/d.txt")]
    assert paths(backend.glob(".*", root)) == [f"{root}/.hidden"]
    assert paths(backend.glob("file?", root)) == [f"{root}/file1"]
    assert paths(backend.glob("[ab].txt", root)) == [f"{root}/a.txt", f"{root}/b.txt"]
    assert paths(backend.glob("sub/*", f"{root}/")) == [f"{root}/sub/d.txt"]
    assert f"{root}/folder" not in paths(backend.glob("*", root))
    assert paths(backend.glob("*side", root)) == [f"{root}/inside"]
    assert all(not entry["is_dir"] for entry in backend.glob("*", root).matches)


def test_searching_from_the_top(backend, root):
    put(backend, {f"{root}/needle.xyz": b"a needle 4711\n"})
    for start in (None, "/", "/workspace"):
        for found in (backend.glob("needle.xyz", start), backend.grep("needle 4711", start)):
            # Searching a whole image may exceed the time budget, which is then reported.
            assert f"{root}/needle.xyz" in paths(found) or (start == "/" and found.truncated)


def test_grep_leaves_out_what_cannot_be_searched(backend, root):
    files = {
        ".git/config": b"needle\n",
        "sub/.git/x": b"needle\n",
        ".env": b"needle\n",
        "binary": b"\0needle\n",
        "dos.txt": b"a needle\r\n",
        "two.txt": b"needle needle\nnone\n",
    }
    put(backend, {f"{root}/{name}": content for name, content in files.items()})
    assert backend.execute(f"cd {root}; mkfifo pipe; ln -s two.txt link; ln -s . loop").exit_code == 0
    found = backend.grep("needle", root)
    assert found.matches == [
        {"path": f"{root}/.env", "line": 1, "text": "needle"},
        {"path": f"{root}/dos.txt", "line": 1, "text": "a needle"},
        {"path": f"{root}/two.txt", "line": 1, "text": "needle needle"},
    ]
    assert paths(backend.grep("needle", f"{root}/.git")) == [f"{root}/.git/config"]
    assert paths(backend.grep("needle", f"{root}/two.txt")) == [f"{root}/two.txt"]
    assert backend.grep("needle\nnone", root).matches == []
    assert paths(backend.grep("needle", root, "*.{txt,md}")) == [f"{root}/dos.txt", f"{root}/two.txt"]
    assert backend.grep("needle", f"{root}/none").error == f"Path '{root}/none': path_not_found"
    assert backend.grep("x", root, "../*").error == "Path traversal not allowed in glob pattern '../*'"


def test_grep_counts_all_files_together(backend, root):
    put(backend, {f"{root}/{n}.txt": b"hit\nhit\n" for n in range(5)})
    for cap, truncated in ((1, True), (3, True), (9, True), (10, False), (11, False), (None, False)):
        found = backend.grep("hit", root, max_count=cap)
        assert (len(found.matches), found.truncated) == (min(cap or 10, 10), truncated), cap


def test_transfers_keep_order_and_bytes(backend, root):
    contents = [bytes(range(256)) * n for n in range(20)] + [b"z" * (10 << 20)]
    files = [(f"{root}/up/{n}", content) for n, content in enumerate(contents)]
    # The uploads run concurrently, so the directory has to exist before.
    assert backend.write(f"{root}/before", "").error is None
    sent = backend.upload_files([*files[:3], ("relative", b""), (root, b"dir"), *files[3:]])
    assert [response.path for response in sent][3:5] == ["relative", root]
    assert [response.error for response in sent] == [*[None] * 3, "invalid_path", "is_directory", *[None] * 18]
    wanted = [path for path, _ in reversed(files)]
    got = backend.download_files([*wanted, f"{root}/none", root, "relative"])
    assert [response.content for response in got] == [*reversed(contents), None, None, None]
    assert [response.error for response in got[-3:]] == ["file_not_found", "is_directory", "invalid_path"]
    assert backend.upload_files([]) == []
    assert backend.download_files([]) == []


@pytest.mark.parametrize("directory", ARTEFACT_PATHS)
def test_artefacts(backend, directory, root):
    """Deep Agents writes to the root of the file system, even where its user has no permission."""
    path = f"{directory}{root}/note.md"
    assert backend.write(path, "kept\n").error is None
    assert backend.edit(path, "kept", "kept and changed").error is None
    assert backend.read(path).file_data["content"] == "kept and changed"
    assert backend.execute(f"cat {path}").output == "kept and changed\n"
    assert path in paths(backend.glob("note.md", directory))
    assert backend.delete(f"{directory}{root}").error is None


def test_names_of_any_bytes(backend, root):
    """A file name that isn't UTF-8 must not end a run when its message is encoded."""
    assert backend.execute(f"mkdir -p {root}; cd {root}; printf needle > \"$(printf 'b\\377d')\"").exit_code == 0
    shown = f"{root}/b\ufffdd"
    assert [entry["path"] for entry in backend.ls(root).entries] == [shown]
    assert paths(backend.glob("*", root)) == [shown]
    assert paths(backend.grep("needle", root)) == [shown]


def test_hostile_paths(backend, root):
    for path in ("", "\0", "/" + "x" * 300, "/x" * 3000, "/workspace/$(touch /tmp/pwned)", "/workspace/a\nb"):
        assert backend.read(path).error is not None
        assert backend.ls(path).error is not None
        assert backend.delete(path).error is not None
        assert backend.edit(path, "a", "b").error is not None
    assert backend.read("/tmp/pwned").error == "File '/tmp/pwned': file_not_found"
    assert backend.write(f"{root}/surrogate", "\ud83d").error.startswith(f"Failed to write file '{root}/surrogate': ")
