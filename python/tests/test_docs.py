"""The examples of the documentation run unchanged."""

import re
from pathlib import Path

import pytest

import podbay

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/python.md", "python/README.md"]


def examples():
    for page in PAGES:
        text = (ROOT / page).read_text()
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text[: match.start()].count("\n") + 2
            yield pytest.param(match.group(1), page, line, id=f"{page}:{line}")


@pytest.mark.parametrize(("program", "page", "line"), list(examples()))
def test_examples_run(program, page, line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    # Compile with the page's line numbers, so that a failure points there.
    code = compile("\n" * (line - 1) + program, str(ROOT / page), "exec")
    exec(code, {"__name__": "__main__"})


def test_pages_name_the_controller_that_is_tested():
    """Rows 26 and 189: the versions in commands to copy are those of the rig."""
    module = (ROOT / "rig/agent-sandbox/go.mod").read_text()
    [tested] = re.findall(r"^\s*sigs\.k8s\.io/agent-sandbox (v\S+)", module, re.MULTILINE)
    for page in ("docs/agent-sandbox.md", "docs/router.md"):
        named = re.findall(r"agent-sandbox/(?:releases/download/)?(v[0-9.]+)/", (ROOT / page).read_text())
        assert named == [tested], page


def test_the_settings_for_openshift_exist(tmp_path, monkeypatch):
    """Row 173: they are all that Podbay needs to be told there."""
    [settings] = re.findall(r"^```toml\n(.*?)^```$", (ROOT / "docs/openshift.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "podbay.toml").write_text(settings)
    monkeypatch.setenv("PODBAY_CONFIG", str(tmp_path / "podbay.toml"))
    effective = {key: value for key, _, value in podbay.effective_settings("raw")}
    assert [effective[f"raw.{name}"] for name in ("run_as_user", "run_as_group", "fs_group")] == ["none"] * 3
