"""`setup_script`: "Shell script run as first exec after creation", which the original never ran."""

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

provider = KubernetesProvider(
    KubernetesProviderConfig(mode=MODE, namespace=NAMESPACE, image=IMAGE, setup_script="echo ready > /workspace/set-up")
)
sandbox = provider.get_or_create()
try:
    assert sandbox.execute("cat /workspace/set-up").output == "ready\n"
finally:
    provider.delete(sandbox_id=sandbox.id)

broken = KubernetesProvider(
    KubernetesProviderConfig(mode=MODE, namespace=NAMESPACE, image=IMAGE, setup_script="echo no such luck; exit 7")
)
before = {sandbox.id for sandbox in broken.list()}
try:
    broken.get_or_create()
except RuntimeError as error:
    assert "no such luck" in str(error), error
else:
    raise AssertionError("a sandbox whose set-up failed isn't given out")
assert {sandbox.id for sandbox in broken.list()} == before
