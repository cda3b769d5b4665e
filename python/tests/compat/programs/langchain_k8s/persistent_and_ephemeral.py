"""README sections "Persistent (config-based, default)" and "Ephemeral (config-based)"."""

from langchain_k8s import KubernetesSandbox

backend = KubernetesSandbox(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    reuse_sandbox=True,  # default
)
try:
    backend.execute("echo kept > file")
    assert backend.execute("cat file").output == "kept\n"
    claim = backend.claim_name
    # A command that fails or takes too long costs nobody the sandbox.
    assert backend.execute("exit 7").exit_code == 7
    assert backend.execute("sleep 60", timeout=1).exit_code == 124
    assert (backend.claim_name, backend.execute("cat file").output) == (claim, "kept\n")

    # Auto-reconnects if the pod dies: the call that notices says so, the next one works.
    delete_pod_of(claim)
    noticed = backend.execute("cat file")
    assert noticed.exit_code != 0
    assert "gone" in noticed.output
    assert backend.execute("echo back").output == "back\n"
finally:
    backend.stop()

backend = KubernetesSandbox(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    reuse_sandbox=False,
)
seen = set()
for _ in range(2):
    backend.start()
    seen.add(backend.claim_name)
    assert "No such file" in backend.execute("cat file").output
    backend.execute("echo mine > file")
    backend.stop()
assert len(seen) == 2
