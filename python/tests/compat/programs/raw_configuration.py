"""README section "Raw mode configuration": every option at once."""

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

config = KubernetesProviderConfig(
    mode=MODE,
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    image=IMAGE,
    image_pull_policy="IfNotPresent",
    image_pull_secrets=[],
    workdir="/workspace",
    command=["sleep", "infinity"],
    env={"MY_VAR": "value"},
    cpu_request="100m",
    cpu_limit="1000m",
    memory_request="64Mi",
    memory_limit="256Mi",
    ephemeral_storage_limit="1Gi",
    block_network=True,
    run_as_user=1234,
    run_as_group=2345,
    seccomp_profile="RuntimeDefault",
    namespace_per_sandbox=False,
    service_account=None,
    node_selector={"kubernetes.io/os": "linux"},
    tolerations=[{"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}],
    volumes=[{"name": "scratch", "emptyDir": {}}],
    volume_mounts=[{"name": "scratch", "mountPath": "/scratch"}],
    init_containers=[
        {
            "name": "prepare",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "echo prepared > /scratch/from-init"],
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
    ],
    pod_template_overrides={"hostname": "renamed", "containers": [{"name": "sandbox", "tty": True}]},
    extra_annotations={"example.com/team": "agents"},
    setup_script=None,
    startup_timeout_seconds=120,
    default_exec_timeout=1800,
)
provider = KubernetesProvider(config)
sandbox = provider.get_or_create()
try:
    result = sandbox.execute("echo $MY_VAR; pwd; id -u; id -g; cat /scratch/from-init; hostname")
    assert result.output == "value\n/workspace\n1234\n2345\nprepared\nrenamed\n", result
    assert sandbox.execute("echo mine > here && cat here").output == "mine\n"
finally:
    provider.delete(sandbox_id=sandbox.id)
