"""README section "File Operations"."""

import asyncio

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

provider = KubernetesProvider(
    KubernetesProviderConfig(
        mode=MODE,
        template_name=TEMPLATE,
        image=IMAGE,
        namespace=NAMESPACE,
        workdir="/app" if MODE == "raw" else "/workspace",
    )
)
APP = "/app" if MODE == "raw" else "/workspace"
sandbox = provider.get_or_create()
try:
    # Write / read files
    assert sandbox.write("/tmp/script.py", "print('hello')\n").error is None
    content = sandbox.read("/tmp/script.py")
    assert str(content) == "print('hello')"
    assert "hello" in content

    # Edit (string replacement)
    assert sandbox.edit("/tmp/script.py", "hello", "world").occurrences == 1
    assert sandbox.execute("python3 /tmp/script.py").output == "world\n"

    # List directory
    entries = sandbox.ls_info("/tmp")
    assert "/tmp/script.py" in [entry["path"] for entry in entries]

    sandbox.write(f"{APP}/deep/main.py", "import sys\n\ndef main():\n    pass\n")

    # Glob
    matches = sandbox.glob_info("**/*.py", path=APP)
    assert [match["path"] for match in matches] == [f"{APP}/deep/main.py"]

    # Grep
    hits = sandbox.grep_raw("def main", path=APP)
    assert [(hit["path"], hit["line"], hit["text"]) for hit in hits] == [(f"{APP}/deep/main.py", 3, "def main():")]
    assert isinstance(sandbox.grep_raw("x", path="/no/such/place"), str)

    # Batch upload (bytes): the original waited forever
    large = bytes(range(256)) * 8192
    uploaded = sandbox.upload_files(
        [
            (f"{APP}/data.csv", b"col1,col2\n1,2\n"),
            (f"{APP}/config.json", b'{"key": "val"}'),
            (f"{APP}/$(touch injected) 'quoted'.bin", large),
        ]
    )
    assert [response.error for response in uploaded] == [None, None, None]

    # Batch download (bytes): the original ran file names as commands
    sandbox.execute(f"echo out > {APP}/output.txt")
    responses = sandbox.download_files([f"{APP}/output.txt", f"{APP}/$(touch injected) 'quoted'.bin", f"{APP}/none"])
    assert responses[0].content == b"out\n"
    assert responses[1].content == large
    assert responses[2].error == "file_not_found"
    assert "injected\n" not in sandbox.execute(f"ls {APP} /").output.replace("$(touch injected)", "")

    async def main():
        assert (await sandbox.awrite("/tmp/a.txt", "one\n")).error is None
        assert str(await sandbox.aread("/tmp/a.txt")) == "one"
        assert (await sandbox.aedit("/tmp/a.txt", "one", "two")).occurrences == 1
        assert "/tmp/a.txt" in [entry["path"] for entry in await sandbox.als_info("/tmp")]
        assert [match["path"] for match in await sandbox.aglob_info("a.txt", path="/tmp")] == ["/tmp/a.txt"]
        assert (await sandbox.agrep_raw("two", path="/tmp"))[0]["path"] == "/tmp/a.txt"
        assert (await sandbox.aupload_files([("/tmp/b", b"b")]))[0].error is None
        assert (await sandbox.adownload_files(["/tmp/b"]))[0].content == b"b"
        assert (await sandbox.adelete("/tmp/b")).error is None

    asyncio.run(main())
finally:
    provider.delete(sandbox_id=sandbox.id)
