"""Uploads and downloads of many files and whole directories."""

import os

import pytest

import podbay


def test_many_files_in_order(sandbox):
    files = [(f"/workspace/{i}", bytes([i])) for i in range(200)]
    files.insert(3, ("/proc/nope", b""))
    results = sandbox.upload(files)
    assert [result.path for result in results] == [path for path, _ in files]
    failed = [result for result in results if result.error]
    assert [result.path for result in failed] == ["/proc/nope"]
    assert failed[0].result is None
    assert isinstance(failed[0].error, podbay.OperationError)
    assert results[0].result.size == 1
    assert results[0].error is None
    paths = [path for path, _ in files]
    fetched = sandbox.download([*paths, "/workspace", "/nothing"])
    assert [result.content for result in fetched[:3]] == [b"\0", b"\1", b"\2"]
    assert [result.error.code if result.error else None for result in fetched[-2:]] == ["is_directory", "not_found"]
    assert sandbox.upload([]) == []
    again = sandbox.upload([("/workspace/0", "x")], create_only=True)
    assert isinstance(again[0].error, FileExistsError)


def test_files_with_progress(sandbox, tmp_path):
    local = tmp_path / "big"
    local.write_bytes(os.urandom(5 << 20))
    seen = []
    written = sandbox.upload_file(local, "/workspace/big", progress=seen.append)
    assert written.size == 5 << 20
    assert seen[-1].files == 1
    assert seen[-1].bytes == 5 << 20
    assert len(seen) > 2
    back = tmp_path / "back"
    seen.clear()
    assert sandbox.download_file("/workspace/big", back, progress=seen.append) == 5 << 20
    assert back.read_bytes() == local.read_bytes()
    assert seen[-1].bytes == 5 << 20
    with pytest.raises(podbay.LocalFileError, match="not-there"):
        sandbox.upload_file(tmp_path / "not-there", "x")
    with pytest.raises(FileNotFoundError):
        sandbox.download_file("/nothing", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_trees_with_progress(sandbox, tmp_path):
    source = tmp_path / "source"
    (source / "a" / "b").mkdir(parents=True)
    (source / "empty").mkdir()
    for i in range(50):
        (source / "a" / f"{i}.txt").write_text(str(i))
    (source / "a" / "b" / "run.sh").write_text("#!/bin/sh\n")
    (source / "a" / "b" / "run.sh").chmod(0o755)
    (source / "link").symlink_to("a")
    seen = []
    sent = sandbox.upload_tree(source, "/workspace/tree", progress=seen.append)
    assert sent.files == 51
    assert [name for name, _ in sent.skipped] == ["link"]
    assert sent.failed == []
    assert seen[-1].total_files == 51
    assert seen[-1].files == 51
    sandbox.run("ln -s a/0.txt tree/inner; ln -s /etc/passwd tree/outer; mkfifo tree/pipe")
    fetched = sandbox.download_tree("/workspace/tree", tmp_path / "target")
    assert fetched.files == 51
    assert {name for name, _ in fetched.skipped} == {"outer", "pipe"}
    assert (tmp_path / "target" / "a" / "49.txt").read_text() == "49"
    assert (tmp_path / "target" / "a" / "b" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "target" / "empty").is_dir()
    assert (tmp_path / "target" / "inner").read_text() == "0"
    with pytest.raises(FileNotFoundError):
        sandbox.download_tree("/nothing", tmp_path / "other")


def test_a_callback_that_raises_ends_the_transfer(sandbox, tmp_path):
    local = tmp_path / "big"
    local.write_bytes(bytes(8 << 20))

    def stop(progress):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        sandbox.upload_file(local, "/workspace/big", progress=stop)
    with pytest.raises(FileNotFoundError):
        sandbox.stat("/workspace/big")


def test_large_contents(sandbox):
    data = os.urandom(30 << 20)
    sandbox.write("big", data)
    assert sandbox.read_bytes("big") == data
