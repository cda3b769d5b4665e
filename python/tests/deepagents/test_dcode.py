"""Deep Agents Code with Podbay: `dcode --sandbox podbay`."""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import podbay
from chat_server import ChatServer, text
from places import settings

pytest.importorskip("deepagents_code", reason="deepagents-code isn't installed; it needs Python 3.12")

from deepagents_code import config as dcode_config
from deepagents_code.integrations.sandbox_factory import create_sandbox, get_default_working_dir
from deepagents_code.integrations.sandbox_provider import SandboxNotFoundError

from podbay.dcode import KubernetesProvider, PodbayProvider


def test_dcode_finds_the_providers():
    found = importlib.metadata.entry_points(group="deepagents_code.sandbox_providers")
    classes = {point.name: point.load() for point in found if point.value.startswith("podbay.")}
    assert classes == {"podbay": PodbayProvider, "kubernetes": KubernetesProvider}
    assert get_default_working_dir("podbay") == get_default_working_dir("kubernetes") == "/workspace"


def test_one_is_made_used_and_deleted(tmp_path):
    setup = tmp_path / "setup.sh"
    setup.write_text("echo ${GREETING} > /workspace/ready\n")
    with create_sandbox("podbay", setup_script_path=str(setup)) as backend:
        assert backend.execute("ls").output == "ready\n"
        made = backend.id
        with create_sandbox("podbay", sandbox_id=made) as again:
            assert again.id == made
            assert again.execute("ls").output == "ready\n"
        # A sandbox that dcode only attached to isn't deleted.
        assert backend.execute("ls").output == "ready\n"
    assert made not in {listed.id for listed in podbay.Provider().list()}


def test_a_failing_setup_leaves_nothing(tmp_path):
    setup = tmp_path / "setup.sh"
    setup.write_text("exit 3\n")
    before = {listed.id for listed in podbay.Provider().list()}
    with pytest.raises(RuntimeError, match="Setup failed"), create_sandbox("podbay", setup_script_path=str(setup)):
        pass
    assert {listed.id for listed in podbay.Provider().list()} == before


def test_a_leash_ends_with_its_backend(monkeypatch):
    """Whatever was never deleted by its id kept a process until dcode's own ended."""
    ended = threading.Event()

    class Leash:
        def __init__(self, *_):
            pass

        def let_go(self):
            ended.set()

    class Backend:
        id = "pb-leashed"

        def __init__(self, **_):
            pass

        def __enter__(self):
            return self

    monkeypatch.setattr(podbay.dcode, "Leash", Leash)
    monkeypatch.setattr(podbay.dcode, "PodbaySandbox", Backend)
    backend = KubernetesProvider().get_or_create()
    assert Backend.id in podbay.dcode._leashes
    del backend
    gc.collect()
    assert ended.wait(10)
    assert Backend.id not in podbay.dcode._leashes


def test_what_goes_wrong():
    with pytest.raises(SandboxNotFoundError, match="pb-none"):
        PodbayProvider().get_or_create(sandbox_id="pb-none")
    with pytest.raises(ValueError, match="imagee"):
        KubernetesProvider().get_or_create(imagee="x")
    PodbayProvider().delete(sandbox_id="pb-none")


def test_settings(monkeypatch):
    provider = KubernetesProvider()
    assert provider._settings({}) == {"mode": "raw"} | local_home()
    monkeypatch.setenv("PODBAY_RAW_IMAGE", "from-the-environment")
    monkeypatch.setenv("DEEPAGENTS_CODE_PODBAY_RAW_IMAGE", "from-dcode")
    monkeypatch.setenv("PODBAY_RAW_NODE_SELECTOR", "disk=ssd,zone=a")
    monkeypatch.setenv("PODBAY_RAW_TOLERATIONS", '[{"key": "gpu"}]')
    monkeypatch.setenv("PODBAY_RAW_RUN_AS_NON_ROOT", "false")
    monkeypatch.setenv("PODBAY_POLICY_DENY_COMMANDS", "curl, rm -rf")
    monkeypatch.setenv("PODBAY_IDLE_TTL", "1500ms")
    assert (
        provider._settings({})
        == {
            "mode": "raw",
            "raw.image": "from-dcode",
            "raw.node_selector": {"disk": "ssd", "zone": "a"},
            "raw.tolerations": [{"key": "gpu"}],
            "raw.run_as_non_root": False,
            "policy.deny_commands": ["curl", "rm -rf"],
            "idle_ttl": "1500ms",
        }
        | local_home()
    )
    assert provider._settings({"image": "from-the-table"})["image"] == "from-the-table"
    assert "raw.image" not in provider._settings({"image": "from-the-table"})
    podbay.Provider(**provider._settings({"namespace": "agents"}))
    monkeypatch.setenv("PODBAY_RAW_WORKDIR", "/srv")
    assert provider.metadata.working_dir == "/srv"
    assert PodbayProvider().metadata.working_dir == "/workspace"
    monkeypatch.setenv("PODBAY_RAW_TOLERATIONS", "[")
    with pytest.raises(ValueError, match="PODBAY_RAW_TOLERATIONS"):
        provider.get_or_create()


@pytest.fixture(params=["process", "workspace"])
def dotenv(request, tmp_path, monkeypatch):
    """Loads a workspace's `.env` as dcode does, into its own process or into a snapshot of the workspace."""
    workspace, own = tmp_path / "workspace", tmp_path / "own.env"
    workspace.mkdir()
    monkeypatch.setattr(dcode_config, "_GLOBAL_DOTENV_PATH", own)
    with contextlib.ExitStack() as stack:

        def load(text: str, *, trusted: str = "") -> None:
            (workspace / ".env").write_text(text)
            own.write_text(trusted)
            if request.param == "process":
                monkeypatch.chdir(workspace)
                dcode_config._load_dotenv(start_path=workspace, refresh_loaded=True)
            else:
                # The server that creates sandboxes doesn't run in the workspace's directory.
                monkeypatch.chdir(tmp_path)
                snapshot = dcode_config._preview_dotenv_environ(start_path=workspace)
                stack.enter_context(dcode_config.use_environment(snapshot))

        yield load
        dcode_config._strip_dotenv_loaded_values(os.environ)
        dcode_config._dotenv_loaded_values.clear()


VALUES = {
    "flag": "true",
    "count": "1",
    "real": "1",
    "size": "1MiB",
    "time": "1s",
    "id": "0",
    "quantity": "1",
    "mounts": "/usr:/x",
    "object": "{}",
    "objects": "[]",
    "map": "a=b",
}


@pytest.mark.parametrize("setting", podbay.SETTINGS, ids=lambda known: known.key)
def test_a_workspaces_dotenv_only_narrows(setting, dotenv):
    """A sandbox wrote a `.env` into its workspace, and dcode's next sandbox got the mounts named there."""
    value = setting.choices[-1] if setting.choices else VALUES.get(setting.kind, "x")
    provider = PodbayProvider()
    for prefix in ("", "DEEPAGENTS_CODE_"):
        dotenv(f"{prefix}{setting.variable}={value}\n")
        if setting.key == "home" and "PODBAY_HOME" in os.environ and not prefix:
            # The shell's variable takes precedence, so nothing was loaded.
            assert provider._settings({})["home"] == os.environ["PODBAY_HOME"]
        elif setting.in_project == "no":
            with pytest.raises(podbay.ConfigError, match=r"\.env: .*can't set this"):
                provider.get_or_create()
            assert provider.metadata.working_dir == "/workspace"
            assert provider._mode() == "local"
        elif setting.kind != "text" or setting.key == "raw.image":
            assert setting.key in provider._settings({})


def test_a_workspaces_dotenv_takes_nothing_away(dotenv, monkeypatch):
    """An empty variable with dcode's prefix hid the shell's, so a project could remove rules that way."""
    monkeypatch.setenv("PODBAY_POLICY_DENY_COMMANDS", "rm")
    monkeypatch.setenv("PODBAY_TTL", "1h")
    dotenv("DEEPAGENTS_CODE_PODBAY_POLICY_DENY_COMMANDS=\nDEEPAGENTS_CODE_PODBAY_TTL=\n")
    found = PodbayProvider()._settings({})
    assert (found["policy.deny_commands"], found["ttl"]) == (["rm"], "1h")
    dotenv("DEEPAGENTS_CODE_PODBAY_POLICY_DENY_COMMANDS=curl\nDEEPAGENTS_CODE_PODBAY_TTL=5h\n")
    found = PodbayProvider()._settings({})
    assert (found["policy.deny_commands"], found["ttl"]) == (["rm", "curl"], "1h")


def test_the_users_own_dotenv_has_full_power(dotenv):
    dotenv("OTHER_API_KEY=1\n", trusted="PODBAY_LOCAL_NETWORK=host\n")
    assert PodbayProvider()._settings({})["local.network"] == "host"


LEADING_AWAY = [
    *("KUBECONFIG", "PODBAY_CONFIG", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "HOME", "TMPDIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "AWS_CONFIG_FILE", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "BASH_ENV", "PODBAY_LANDLOCK_ABI", "NOBODY_KNOWS_THIS"),
]


@pytest.mark.parametrize("name", LEADING_AWAY)
def test_a_workspaces_dotenv_leads_nowhere_else(name, dotenv, monkeypatch, tmp_path):
    """A kubeconfig's exec plugin is a program on the host, and inherits proxies, search paths and credentials."""
    monkeypatch.delenv(name, raising=False)
    planted = tmp_path / "workspace/podbay/podbay.toml"
    dotenv(f"{name}={planted.parents[1]}\n")
    if os.environ.get(name) == str(planted.parents[1]):
        with pytest.raises(podbay.ConfigError, match=name):
            PodbayProvider()._settings({})
    else:
        # dcode didn't load it, or not into the process.
        planted.parent.mkdir()
        planted.write_text('[local]\nnetwork = "host"\n')
        assert "local.network" not in PodbayProvider()._settings({})


def test_a_workspaces_dotenv_may_hold_keys(dotenv, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    dotenv("OPENAI_API_KEY=x\nLANGSMITH_PROJECT=y\nDEEPAGENTS_CODE_THEME=z\n")
    assert PodbayProvider()._settings({})["mode"] == "local"


def local_home():
    return {"home": os.environ["PODBAY_HOME"]} if "PODBAY_HOME" in os.environ else {}


SCRIPT = {
    "brew some tea": [
        ("write_file", {"file_path": "/workspace/tea.txt", "content": "green tea\n"}),
        ("execute", {"command": "cat tea.txt ready; pwd; tr a-z A-Z < tea.txt > poured"}),
        ("read_file", {"file_path": "/workspace/poured"}),
        ("execute", {"command": "seq 100000"}),
        "enjoy your tea",
    ]
}
CONFIG = """
[models.providers.scripted]
class_path = "langchain_openai:ChatOpenAI"
models = ["tea"]
params = {{ base_url = "{url}", api_key = "none", use_responses_api = false }}
"""


def variables_of(made):
    """The settings as variables, which is how a user of dcode sets them."""
    known = {setting.key: setting.variable for setting in podbay.SETTINGS}
    section = made.get("mode", "local").replace("-", "_")
    return {
        next(known[key] for key in (name, f"{section}.{name}", f"cluster.{name}") if key in known): str(value)
        for name, value in made.items()
    }


def dcode(name, workspace, variables):
    """Runs dcode with a sandbox provider. How long it takes is the machine's business, not the test's."""
    command = [
        Path(sys.executable).parent / "dcode",
        *("-n", "brew some tea", "-M", "scripted:tea", "-S", "all", "--no-mcp", "--no-tracing"),
        *("--sandbox-setup", "setup.sh", "--sandbox", name),
    ]
    for last in (False, False, True):
        done = subprocess.run(
            command,
            cwd=workspace,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        # dcode gives its server a minute to import everything, which may not be enough on a busy machine.
        if last or not re.search(r"did not (become healthy|initialize) within", done.stdout + done.stderr):
            return done
    raise AssertionError("unreachable")


@pytest.mark.parametrize(
    ("name", "where"), [("podbay", "local"), ("kubernetes", "raw-debian"), ("kubernetes", "agent-sandbox")]
)
def test_a_whole_run(name, where, tmp_path):
    made = settings(where)
    before = {listed.id for listed in podbay.Provider(**made).list()}
    variables = variables_of(made)
    (tmp_path / "setup.sh").write_text("echo set up > /workspace/ready\n")
    config = tmp_path / "home/.deepagents/config.toml"
    config.parent.mkdir(parents=True)
    with ChatServer(SCRIPT) as model:
        config.write_text(CONFIG.format(url=model.url))
        variables |= {"HOME": str(config.parents[1]), "DEEPAGENTS_HOME": str(config.parent)}
        # Without this, dcode first tries to download ripgrep.
        variables |= {"DEEPAGENTS_CODE_OFFLINE": "1"}
        done = dcode(name, tmp_path, variables)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    assert "enjoy your tea" in output
    said = [text(message) for message in model.heard[-1] if message["role"] == "tool"]
    assert "/workspace/tea.txt" in said[0]
    assert said[1].startswith("green tea\nset up\n/workspace\n")
    assert said[2].endswith("GREEN TEA")
    assert re.search("/large_tool_results/", said[3])
    # The model was told about the sandbox, and nothing is left of it, though dcode kills its server by a signal.
    assert "/workspace" in text(model.heard[0][0])
    deadline = time.monotonic() + 60
    while left := {listed.id for listed in podbay.Provider(**made).list()} - before:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
