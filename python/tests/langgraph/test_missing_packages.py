"""Without LangChain, the package says what to install, and the core works."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
for name in ("deepagents", "langchain", "langchain_core", "langgraph"):
    sys.modules[name] = None
import podbay
try:
    import {module}
except ModuleNotFoundError as missing:
    print(missing)
"""


@pytest.mark.parametrize("module", ["podbay.langgraph", "podbay.tool", "podbay.compat.langchain_kubernetes"])
def test_what_to_install_is_said(module):
    # -P: import the installed package, not the sources in the working directory.
    command = [sys.executable, "-P", "-c", WITHOUT.format(module=module)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "pip install 'podbay[deepagents]'" in printed
