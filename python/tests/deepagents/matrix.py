"""Runs the tests of the Deep Agents backend with each supported SDK and Python version.

    python tests/deepagents/matrix.py target/wheels/podbay-….whl

Environments are created once, below `$PODBAY_CACHE` or the user's cache directory. A missing Python is reported and
skipped; with `PODBAY_REQUIRE=all` it is a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

TOOLS = ["pytest==9.2.0", "langchain-tests==1.1.9", "langgraph-checkpoint-sqlite==3.1.2"]
PAIRS = [
    # The oldest supported version.
    ("3.11", ["deepagents==0.7.18"]),
    # The version that dcode pins, with dcode.
    ("3.12", ["deepagents==0.7.30", "deepagents-code==0.1.88"]),
    # The newest of the series.
    ("3.13", ["deepagents>=0.7.32,<0.8"]),
]
HERE = Path(__file__).parent
# Everything except the comparisons with the SDK's scripts, which take long and don't depend on the Python version.
TESTS = sorted(path.name for path in HERE.glob("test_*.py") if path.name != "test_against_sdk.py")
# What the SDK's version decides. All tests run with the oldest version here, and with the newest outside of the matrix;
# with the others under `cargo xtask soak`, which sets PODBAY_SOAK.
DEPENDING_ON_THE_SDK = [
    "test_agent_runs.py",
    "test_backend_operations.py",
    "test_backend_parity.py",
    "test_conversations.py",
    "test_dcode.py",
    "test_standard_suite.py",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, help="the package to test")
    parser.add_argument("pytest", nargs="*", help="more arguments for pytest, after --")
    arguments = parser.parse_args()
    wheel = arguments.wheel.resolve(strict=True)
    failed = False
    for number, (version, packages) in enumerate(PAIRS):
        python = interpreter(version)
        if python is None:
            print(f"matrix: Python {version} isn't installed: {packages[0]} is left out", flush=True)
            failed |= os.environ.get("PODBAY_REQUIRE") == "all"
            continue
        started = time.monotonic()
        environment = ready(python, version, packages)
        install(environment, "--force-reinstall", "--no-deps", str(wheel))
        print(f"matrix: Python {version}, {', '.join(packages)}", flush=True)
        # Without a cluster: differences between SDK versions don't depend on the mode.
        variables = {name: value for name, value in os.environ.items() if name != "PODBAY_RIG"}
        tests = TESTS if number == 0 or os.environ.get("PODBAY_SOAK") else DEPENDING_ON_THE_SDK
        run = [environment / "bin/python", "-m", "pytest", *tests, *arguments.pytest]
        failed |= subprocess.run(run, cwd=HERE, env=variables, check=False).returncode != 0
        if "PODBAY_RIG" in os.environ and any(package.startswith("deepagents-code") for package in packages):
            # No other environment has dcode. On this machine it has just run.
            only = ["test_dcode.py", "-k", "test_a_whole_run and not local"]
            whole = [environment / "bin/python", "-m", "pytest", *only]
            failed |= subprocess.run([*whole, *arguments.pytest], cwd=HERE, check=False).returncode != 0
        print(f"matrix: {time.monotonic() - started:.0f} s", flush=True)
    return int(failed)


def interpreter(version: str) -> Path | None:
    """Finds a Python of a version, on the path or in pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)]
    for path in filter(None, found):
        # pyenv has shims for every version, and they fail for versions that aren't selected.
        asked = [path, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        if said.stdout.strip() == version:
            return Path(path)
    return None


def ready(python: Path, version: str, packages: list[str]) -> Path:
    """Creates an environment with everything that the tests need except the package itself."""
    cache = Path(
        os.environ.get("PODBAY_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "podbay"
    )
    environment = cache / "python" / f"matrix-{version}"
    wanted = "\n".join([*packages, *TOOLS])
    note = environment / "packages"
    if not note.exists() or note.read_text() != wanted:
        print(f"matrix: making an environment for Python {version}", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", environment], check=True)
        install(environment, *packages, *TOOLS)
        note.write_text(wanted)
    return environment


def install(environment: Path, *what: str) -> None:
    # Don't compile bytecode in advance: most modules are never imported.
    pip = [environment / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, *what], check=True)


if __name__ == "__main__":
    sys.exit(main())
