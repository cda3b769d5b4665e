"""README sections "Policy Wrapper", "Policy options" and "Behavior"."""

import asyncio

from deepagents import create_deep_agent
from langchain_agent_sandbox import AgentSandboxBackend, SandboxPolicyWrapper

backend = AgentSandboxBackend.from_template(TEMPLATE, namespace=NAMESPACE)
audit = []

# Wrap with policy enforcement
secured = SandboxPolicyWrapper(
    backend,
    deny_prefixes=["/etc", "/sys", "/proc", "/root"],
    deny_commands=["rm -rf", "shutdown", "reboot", "curl", "wget"],
    audit_log=lambda op, target, meta: audit.append((op, target, meta)),
)

with secured:
    agent = create_deep_agent(model=llm, backend=secured)
    result = agent.invoke({"messages": [("user", "run echo analysis")]})
    assert result["messages"][-1].text.startswith("analysis\n"), result
    assert audit == [("execute", "echo analysis", {})]
    audit.clear()

    assert secured.write("/etc/x", "y").error == "Policy denied: writes not allowed under '/etc'"
    assert secured.edit("/etc/x", "y", "z").error == "Policy denied: writes not allowed under '/etc'"
    assert secured.write("/etcetera", "y").error is None
    assert asyncio.run(secured.awrite("/a/../etc/x", "y")).error.startswith("Policy denied")
    for command in ("curl example.com", "rm  -rf /"):
        refused = secured.execute(command)
        assert (refused.exit_code, refused.output) == (1, "Policy denied: command blocked by policy")
    sent = secured.upload_files([("/etc/x", b"1"), ("/b", b"22"), ("/proc/y", b"3")])
    assert [(each.path, each.error) for each in sent] == [
        ("/etc/x", "policy_denied"),
        ("/b", None),
        ("/proc/y", "policy_denied"),
    ]
    assert secured.edit("/etcetera", "y", "z", replace_all=True).error is None
    assert secured.read("/etcetera") == "1: z"
    assert len(secured.ls_info("/")) >= 2
    allowed = [entry for entry in audit if "denied" not in entry[2]]
    assert allowed == [
        ("write", "/etcetera", {"size": 1}),
        ("upload", "/b", {"size": 2}),
        ("edit", "/etcetera", {"replace_all": True}),
    ]
    assert len(audit) == 10
    # What is above a protected directory contains it.
    assert secured.delete("/").error == "Policy denied: writes not allowed under '/etc'"
    assert asyncio.run(secured.adelete("/")).error == "Policy denied: writes not allowed under '/etc'"
    assert secured.delete("/etcetera").error is None
    assert secured.id == backend.id
