"""README section "Execute Commands"."""

import time

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

provider = KubernetesProvider(
    KubernetesProviderConfig(mode=MODE, template_name=TEMPLATE, image=IMAGE, namespace=NAMESPACE)
)
sandbox = provider.get_or_create()
try:
    result = sandbox.execute("echo hello")
    assert result.output == "hello\n"
    assert result.exit_code == 0
    assert result.truncated is False

    # Per-call timeout: the original raised TimeoutError and left the process running.
    begun = time.monotonic()
    result = sandbox.execute("echo begun; sleep 61", timeout=2)
    assert time.monotonic() - begun < 20
    assert result.exit_code == 124
    assert result.output.startswith("begun\n")
    assert sandbox.execute("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 6[1]'").output == "0\n"

    # A shell, both streams in order, exit codes, and more output than the original returned.
    assert sandbox.execute("echo a | tr a b; echo err >&2; exit 3").output == "b\nerr\n"
    assert sandbox.execute("exit 3").exit_code == 3
    assert sandbox.execute("cd /tmp && pwd && export X=1 && echo $X").output == "/tmp\n1\n"
    large = sandbox.execute("head -c 3000000 /dev/zero | tr '\\0' x")
    assert large.truncated
    assert len(large.output) < 1_100_000
finally:
    provider.delete(sandbox_id=sandbox.id)
