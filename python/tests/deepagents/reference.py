"""The SDK's own sandbox class on top of a Podbay sandbox: its scripts define the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepagents.backends.sandbox import BaseSandbox

if TYPE_CHECKING:
    from podbay.deepagents import PodbaySandbox


class Reference(BaseSandbox):
    """Runs every operation by the SDK's scripts; the image needs python3 and GNU tools."""

    enable_capture_offload = True

    def __init__(self, sandbox: PodbaySandbox) -> None:
        self.sandbox = sandbox

    @property
    def id(self):
        return self.sandbox.id

    def execute(self, command, *, timeout=None):
        return self.sandbox.execute(command, timeout=timeout)

    def upload_files(self, files):
        return self.sandbox.upload_files(files)

    def download_files(self, paths):
        return self.sandbox.download_files(paths)
