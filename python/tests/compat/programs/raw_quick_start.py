"""README section "Raw mode quick start"."""

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

provider = KubernetesProvider(
    KubernetesProviderConfig(
        mode=MODE,
        template_name=TEMPLATE,
        namespace=NAMESPACE,
        image=IMAGE,
    )
)

sandbox = provider.get_or_create()
try:
    result = sandbox.execute("python3 -c 'print(2 + 2)'")
    assert result.output == "4\n"
    assert result.exit_code == 0
finally:
    provider.delete(sandbox_id=sandbox.id)

# "Delete (idempotent)"
provider.delete(sandbox_id=sandbox.id)
