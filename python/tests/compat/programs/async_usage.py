"""README section "Async Usage"."""

import asyncio

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig


async def main():
    provider = KubernetesProvider(
        KubernetesProviderConfig(mode=MODE, template_name=TEMPLATE, image=IMAGE, namespace=NAMESPACE)
    )
    sandbox = await provider.aget_or_create()
    try:
        result = await sandbox.aexecute("echo async")
        assert result.output == "async\n"
    finally:
        await provider.adelete(sandbox_id=sandbox.id)


asyncio.run(main())
