"""README sections "Preserving sandboxes and reconnection" and "Sandbox labels"."""

from langchain_k8s import KubernetesSandbox

redis = {}

# First run — create sandbox and persist claim name
backend = KubernetesSandbox(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    labels={
        "session": THREAD,
        "agent-id": "code-reviewer",
        "team": "a team with spaces/and more",
    },
    skip_cleanup=True,
)
backend.start()
redis["sandbox:user-123"] = backend.claim_name.encode()  # Redis returns bytes
backend.execute("echo 'print(1)' > /workspace/previous-work.py")
backend.stop()

# After restart — reconnect to the same pod
backend = KubernetesSandbox(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    claim_name=redis["sandbox:user-123"],  # re-attach, no new pod
    skip_cleanup=True,
)
assert backend.claim_name == redis["sandbox:user-123"].decode()
backend.start()  # re-establishes connection to existing pod
resp = backend.execute("cat /workspace/previous-work.py")  # state is preserved
assert resp.output == "print(1)\n"
backend.stop()

# kubectl get sandboxclaims -l session=abc-123
[claim] = claims(f"session={THREAD}")
assert claim["metadata"]["name"] == backend.claim_name
assert claim["metadata"]["labels"]["agent-id"] == "code-reviewer"

try:
    KubernetesSandbox(sandbox=object(), claim_name="x")
except ValueError as error:
    assert "both" in str(error)
try:
    KubernetesSandbox()
except ValueError as error:
    assert "must be provided" in str(error)

# Without skip_cleanup, stopping deletes it.
backend = KubernetesSandbox(namespace=NAMESPACE, claim_name=backend.claim_name)
backend.stop()
assert claims(f"session={THREAD}"), "it wasn't started"
backend.start()
backend.stop()
