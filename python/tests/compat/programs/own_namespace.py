"""`namespace_per_sandbox`: "stronger isolation, slower, more RBAC"; the original left the namespace behind."""

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

config = KubernetesProviderConfig(mode=MODE, namespace=NAMESPACE, image=IMAGE, namespace_per_sandbox=True)
provider = KubernetesProvider(config)
sandbox = provider.get_or_create()
try:
    assert sandbox.execute("echo apart").output == "apart\n"
    assert KubernetesProvider(config).get_or_create(sandbox_id=sandbox.id).id == sandbox.id
    [listed] = [found for found in provider.list().sandboxes if found.id == sandbox.id]
    assert listed.namespace.startswith(sandbox.id[:46])
    assert listed.namespace != NAMESPACE
finally:
    provider.delete(sandbox_id=sandbox.id)
