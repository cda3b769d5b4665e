"""README sections "Path access policy", "Virtual filesystem" and "Container permissions vs. sandbox policy"."""

import asyncio
import logging

from langchain_k8s import KubernetesSandbox

claim = None
backend = KubernetesSandbox(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    allow_prefixes=["/tmp/"],
)
with backend:
    assert backend.write("/tmp/a.txt", "one").error is None
    assert backend.edit("/tmp/a.txt", "one", "two").error is None
    refused = "Path '/workspace/b.txt' is not under any allowed prefix: ['/tmp/']"
    assert refused in backend.write("/workspace/b.txt", "one").error
    assert backend.write("/tmpfoo/b.txt", "one").error is not None
    assert backend.write("/tmp/../workspace/b.txt", "one").error is not None
    assert backend.upload_files([("/workspace/b.txt", b"one")])[0].error is not None
    assert asyncio.run(backend.awrite("/workspace/b.txt", "one")).error is not None
    # It isn't a policy for commands.
    assert backend.execute("mkdir -p /tmp/x && echo one > /tmp/x/b").exit_code == 0

    # The same sandbox with virtual paths.
    backend = KubernetesSandbox(
        claim_name=backend.claim_name,
        namespace=NAMESPACE,
        skip_cleanup=True,
        virtual_mode=True,
        root_dir="/tmp",
        allow_prefixes=["/tmp/"],
    )
    # Virtual path "/src/main.py" resolves to "/tmp/src/main.py" — allowed
    assert backend.write("/src/main.py", "print(1)\n").error is None
    assert backend.execute("cat /tmp/src/main.py").output == "print(1)\n"
    assert backend.read("/src/main.py").file_data["content"] == "print(1)"
    backend.upload_files([("/data/input.csv", b"1,2\n")])
    assert backend.execute("cat /tmp/data/input.csv").output == "1,2\n"
    # Virtual path "../../etc/passwd" — rejected (path traversal)
    assert backend.write("../../etc/passwd", "x").error is not None
    assert backend.read("/../etc/passwd").error is not None
    assert backend.write("/a..b.txt", "legal").error is None
    assert backend.read("~/secret").error == "Path traversal not allowed: '~/secret'"
    assert backend.upload_files([("~/x", b"")])[0].error == "invalid_path"

    # Prefixes are resolved paths under a virtual root too.
    narrow = KubernetesSandbox(
        claim_name=backend.claim_name,
        namespace=NAMESPACE,
        skip_cleanup=True,
        virtual_mode=True,
        allow_prefixes=["/tmp/src"],
    )
    assert narrow.write("/src/other.py", "").error is None
    assert narrow.write("/data/other.csv", "").error is not None
    nothing = KubernetesSandbox(
        claim_name=backend.claim_name, namespace=NAMESPACE, skip_cleanup=True, allow_prefixes=[]
    )
    assert nothing.write("/tmp/c", "").error is not None

    # The policy allows it, the container doesn't.
    heard = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger("langchain_k8s.sandbox").addHandler(handler)
    free = KubernetesSandbox(claim_name=backend.claim_name, namespace=NAMESPACE, skip_cleanup=True)
    result = free.write("/proc/version", "x")
    assert result.error is not None
    assert heard, result
    assert heard[0].startswith("write: container permission denied for path='/proc/version'"), heard
