"""File operations."""

import os
import time
from pathlib import PurePosixPath

import pytest

import podbay


def test_pages_of_text(sandbox):
    written = sandbox.write("/workspace/a/b.txt", "".join(f"line {i}\n" for i in range(10)))
    assert (written.path, written.created, written.size) == ("/workspace/a/b.txt", True, 70)
    assert abs(written.modified - time.time()) < 60
    page = sandbox.read("a/b.txt", 2, 3)
    assert page.text == "line 2\nline 3\nline 4"
    assert page.content == page.text.encode()
    assert (page.start_line, page.end_line, page.total_lines, page.next_offset) == (3, 5, 10, 5)
    assert (page.encoding, page.truncated, page.empty, page.start) == ("utf-8", False, False, None)
    assert sandbox.read("a/b.txt", offset=9).next_offset is None
    assert sandbox.read("a/b.txt", limit=0).no_lines_requested
    with pytest.raises(podbay.OperationError) as raised:
        sandbox.read("a/b.txt", 10)
    assert (raised.value.code, raised.value.count) == ("offset_past_end", 10)


def test_full_pages_say_where_they_end(sandbox):
    sandbox.write("f", "0123456789\n" * 100)
    page = sandbox.read("f", max_bytes=100, reserve_bytes=20)
    assert page.truncated
    assert len(page.content) <= 80
    assert page.partial_line_bytes > 0
    assert page.next_offset == page.end_line
    assert not page.first_line_cut
    assert sandbox.read("f", max_bytes=5).first_line_cut


def test_binary_files(sandbox):
    data = bytes(range(256))
    sandbox.write("x.bin", data)
    sandbox.write("x.png", "text with a picture's name")
    assert (sandbox.read("x.bin").encoding, sandbox.read("x.bin").content) == ("binary", data)
    assert sandbox.read("x.png").binary_by_extension
    assert sandbox.read("x.png", binary_by_extension=False).encoding == "utf-8"
    with pytest.raises(podbay.OperationError) as raised:
        sandbox.read("x.bin", max_binary_bytes=100)
    assert (raised.value.code, raised.value.count) == ("too_large", 256)
    assert sandbox.read_bytes("x.bin") == data
    assert sandbox.read_bytes("x.bin", 10, 5) == data[10:15]
    assert sandbox.read_bytes("x.bin", start=250) == data[250:]
    sandbox.write("empty", b"")
    assert sandbox.read("empty").empty
    assert sandbox.read_bytes("empty") == b""


def test_contents_of_every_kind(sandbox):
    for content in ("hé", b"h\xc3\xa9", bytearray(b"h\xc3\xa9"), memoryview(b"xh\xc3\xa9")[1:]):
        sandbox.write("f", content)
        assert sandbox.read_bytes("f") == b"h\xc3\xa9"
    with pytest.raises(TypeError, match="expected str or bytes, got int"):
        sandbox.write("f", 7)
    with pytest.raises(ValueError, match="UTF-8"):
        sandbox.write("f", "\ud800")


def test_paths_of_every_kind(sandbox):
    for path in ("/workspace/p", b"/workspace/p", PurePosixPath("/workspace/p")):
        sandbox.write(path, "x")
        assert sandbox.stat(path).path == "/workspace/p"
    with pytest.raises(TypeError, match="expected a path"):
        sandbox.read(7)
    with pytest.raises(podbay.OperationError) as raised:
        sandbox.read("a\0b")
    assert raised.value.code == "invalid_path"


def test_names_that_are_not_utf8_survive(sandbox):
    name = os.fsdecode(b"/workspace/\xff\xfe.txt")
    sandbox.write(name, "odd")
    (entry,) = sandbox.ls()
    assert entry.path == name
    assert entry.name == os.fsdecode(b"\xff\xfe.txt")
    assert sandbox.read(entry.path).text == "odd"
    assert sandbox.glob("*.txt").matches[0].path == name
    assert sandbox.delete(os.fsencode(name)).removed == 1


def test_writing_exclusively(sandbox):
    sandbox.write("f", "1", create_only=True)
    with pytest.raises(FileExistsError) as raised:
        sandbox.write("f", "2", create_only=True)
    assert isinstance(raised.value, podbay.AlreadyExists)
    assert sandbox.read("f").text == "1"
    assert sandbox.write("f", "3").created is False
    assert sandbox.write("script", "#!/bin/sh\necho ran", mode=0o755).mode == 0o755
    assert sandbox.run("./script").output == "ran\n"
    with pytest.raises(FileNotFoundError):
        sandbox.write("no/dir/f", "x", parents=False)


def test_edits(sandbox):
    sandbox.write("f", "a b a\r\nc\r\n")
    with pytest.raises(podbay.OperationError) as raised:
        sandbox.edit("f", "a", "x")
    assert (raised.value.code, raised.value.count) == ("string_not_unique", 2)
    assert sandbox.edit("f", "a", "x", replace_all=True).occurrences == 2
    edited = sandbox.edit("f", "x\nc", "y\nd")
    assert (edited.line_endings, edited.first_line, edited.occurrences) == ("crlf", 1, 1)
    assert sandbox.read_bytes("f") == b"x b y\r\nd\r\n"
    with pytest.raises(podbay.OperationError) as raised:
        sandbox.edit("f", "not there", "")
    assert raised.value.code == "string_not_found"
    sandbox.write("e", "")
    assert sandbox.edit("e", "", "filled", fill_empty=True).size == 6


def test_listing(sandbox):
    sandbox.write("d/.hidden", "1")
    sandbox.mkdir("d/sub")
    sandbox.run("ln -s sub d/link; ln -s nowhere d/broken; mkfifo d/pipe")
    listing = sandbox.ls("d")
    assert [(entry.name, entry.kind, entry.is_dir) for entry in listing] == [
        (".hidden", "file", False),
        ("broken", "link", False),
        ("link", "link", False),
        ("pipe", "fifo", False),
        ("sub", "dir", True),
    ]
    assert len(listing) == 5
    assert listing.path == "/workspace/d"
    assert [entry.target_kind for entry in listing] == [None, None, "dir", None, None]
    assert listing.entries[2].target == "sub"
    assert listing.entries[0].modified_ns > 10**18
    assert sandbox.ls("d", limit=2).partial.limit_reached
    with pytest.raises(NotADirectoryError):
        sandbox.ls("d/.hidden")
    with pytest.raises(FileNotFoundError):
        sandbox.ls("nothing")


def test_stat(sandbox):
    sandbox.write("f", "123", mode=0o640)
    sandbox.run("ln -s f l")
    assert (sandbox.stat("l").kind, sandbox.stat("l", follow=False).kind) == ("file", "link")
    stat = sandbox.stat("f")
    assert (stat.size, stat.mode, stat.links, stat.name, stat.is_dir) == (3, 0o640, 1, "f", False)
    assert stat.inode > 0
    assert stat.uid == int(sandbox.run("id -u").output)
    assert stat.gid == int(sandbox.run("id -g").output)


def test_searching(sandbox):
    sandbox.write("a/x.py", "import os\nprint(os)\n")
    sandbox.write("a/b/y.py", "import sys\n")
    sandbox.write("a/z.txt", "import\n")
    sandbox.write(".git/x.py", "import git\n")
    found = sandbox.glob("*.py", "a")
    assert [(match.path, match.relative) for match in found] == [
        ("/workspace/a/b/y.py", "b/y.py"),
        ("/workspace/a/x.py", "x.py"),
    ]
    assert found.partial is None
    assert sandbox.glob("*", "a", limit=1).partial.reason == "budget"
    assert [match.relative for match in sandbox.glob("b", "a", directories=True)] == ["b"]
    with pytest.raises(podbay.OperationError) as raised:
        sandbox.glob("../*")
    assert raised.value.code == "invalid_pattern"
    lines = sandbox.grep("import", glob="*.py")
    assert [(match.path, match.line, match.text) for match in lines] == [
        ("/workspace/a/b/y.py", 1, "import sys"),
        ("/workspace/a/x.py", 1, "import os"),
    ]
    assert sandbox.grep("import", exclude_dirs=[]).count == 4
    assert sandbox.grep("import", max_count=2).partial is not None
    assert sandbox.grep("import", "a/z.txt").matches[0].line == 1
    assert sandbox.grep("nothing like it").matches == []
    assert sandbox.grep("import", max_line_bytes=3).matches[0].cut
    with pytest.raises(FileNotFoundError):
        sandbox.grep("x", "nothing")


def test_deleting_making_moving(sandbox):
    assert sandbox.mkdir("d/e").created
    assert sandbox.mkdir("d/e").created is False
    with pytest.raises(FileExistsError):
        sandbox.mkdir("d/e", exist_ok=False)
    with pytest.raises(FileNotFoundError):
        sandbox.mkdir("x/y", parents=False)
    sandbox.write("d/f", "1")
    moved = sandbox.move("d/f", "n/g")
    assert (moved.source, moved.target, moved.kind, moved.copied) == ("/workspace/d/f", "/workspace/n/g", "file", False)
    sandbox.write("h", "2")
    with pytest.raises(FileExistsError):
        sandbox.move("h", "n/g")
    sandbox.move("h", "n/g", overwrite=True)
    assert sandbox.read("n/g").text == "2"
    with pytest.raises(podbay.OperationError) as raised:
        sandbox.delete("n", recursive=False)
    assert raised.value.code == "not_empty"
    deleted = sandbox.delete("n")
    assert (deleted.kind, deleted.removed) == ("dir", 2)
    with pytest.raises(podbay.NotFound):
        sandbox.delete("n")
    assert sandbox.delete("n", missing_ok=True).kind is None


def test_failures_are_also_those_of_python(sandbox):
    sandbox.mkdir("d")
    with pytest.raises(IsADirectoryError) as raised:
        sandbox.read_bytes("d")
    assert isinstance(raised.value, podbay.IsDirectory)
    assert raised.value.path == "d"
    with pytest.raises(PermissionError) as denied:
        sandbox.write("/proc/x", "")
    assert isinstance(denied.value, podbay.OperationError)


def test_where_agents_put_things_works(sandbox):
    for place in ("/large_tool_results/x", "/conversation_history/y.md", "/blobs/z"):
        sandbox.write(place, "kept")
        assert sandbox.read(place).text == "kept"


def test_a_tree_is_listed_whole_and_page_by_page(sandbox):
    sandbox.upload([("t/a/x.txt", b"12345"), ("t/b.txt", b""), ("t/a/deep/y.txt", b"y")])
    sandbox.run("ln -s b.txt t/link").check()
    tree = sandbox.tree("t")
    assert (tree.path, len(tree), tree.partial) == ("/workspace/t", 6, None)
    assert [(entry.relative, entry.kind) for entry in tree] == [
        ("a", "dir"),
        ("a/deep", "dir"),
        ("a/deep/y.txt", "file"),
        ("a/x.txt", "file"),
        ("b.txt", "file"),
        ("link", "link"),
    ]
    by_name = {entry.relative: entry for entry in tree.entries}
    assert (by_name["a/x.txt"].path, by_name["a/x.txt"].size) == ("/workspace/t/a/x.txt", 5)
    assert (by_name["link"].target, by_name["b.txt"].target) == ("b.txt", None)
    assert [entry.relative for entry in sandbox.tree("t", max_depth=1)] == ["a", "b.txt", "link"]
    first = sandbox.tree("t", limit=2)
    assert first.partial is not None
    rest = sandbox.tree("t", after=first.entries[-1].relative)
    assert [entry.path for entry in [*first, *rest]] == [entry.path for entry in tree]
    assert any(entry.relative == "t/a/x.txt" for entry in sandbox.tree())
