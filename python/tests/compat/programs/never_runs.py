"""README section "Pod not reaching Running phase": a missing image is reported at once, with the reason."""

import time

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

provider = KubernetesProvider(
    KubernetesProviderConfig(
        mode=MODE,
        template_name=TEMPLATE,
        namespace=NAMESPACE,
        image="localhost/no-such-image:1",
        image_pull_policy="Never",
        startup_timeout_seconds=60,
    )
)
begun = time.monotonic()
try:
    provider.get_or_create()
except RuntimeError as error:
    assert "localhost/no-such-image:1" in str(error), error
else:
    raise AssertionError("there is no such image")
assert time.monotonic() - begun < 30
assert provider.list().sandboxes == [] or all(sandbox.status != "pending" for sandbox in provider.list())
