"""The exceptions of k8s-agent-sandbox: its own ones if it is installed, so that programs can catch either."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import podbay

if TYPE_CHECKING:
    from collections.abc import Iterator

    class SandboxError(RuntimeError):
        """An operation on a sandbox failed."""

    class SandboxNotFoundError(SandboxError):
        """There is no such claim."""

    class SandboxTemplateNotFoundError(SandboxError):
        """There is no such template."""

    class SandboxWarmPoolNotFoundError(SandboxError):
        """There is no such warm pool."""

    class SandboxNotReadyError(SandboxError):
        """The sandbox wasn't ready in time."""

    class SandboxNoServiceError(SandboxError):
        """The sandbox has no Service."""

    class SandboxClaimFailedError(SandboxError):
        """The claim can't get ready."""

    class SandboxPortForwardError(SandboxError):
        """The tunnel can't be opened."""

    class SandboxRequestError(SandboxError):
        """A request to the sandbox failed."""

else:
    try:
        from k8s_agent_sandbox.exceptions import (
            SandboxClaimFailedError,
            SandboxError,
            SandboxNoServiceError,
            SandboxNotFoundError,
            SandboxNotReadyError,
            SandboxPortForwardError,
            SandboxRequestError,
            SandboxTemplateNotFoundError,
            SandboxWarmPoolNotFoundError,
        )
    except ImportError:

        class SandboxError(RuntimeError):
            """An operation on a sandbox failed."""

        def _kind(name: str, doc: str) -> type[SandboxError]:
            return type(name, (SandboxError,), {"__doc__": doc, "__module__": __name__})

        SandboxNotFoundError = _kind("SandboxNotFoundError", "There is no such claim.")
        SandboxTemplateNotFoundError = _kind("SandboxTemplateNotFoundError", "There is no such template.")
        SandboxWarmPoolNotFoundError = _kind("SandboxWarmPoolNotFoundError", "There is no such warm pool.")
        SandboxNotReadyError = _kind("SandboxNotReadyError", "The sandbox wasn't ready in time.")
        SandboxNoServiceError = _kind("SandboxNoServiceError", "The sandbox has no Service.")
        SandboxClaimFailedError = _kind("SandboxClaimFailedError", "The claim can't get ready.")
        SandboxPortForwardError = _kind("SandboxPortForwardError", "The tunnel can't be opened.")
        SandboxRequestError = _kind("SandboxRequestError", "A request to the sandbox failed.")

__all__ = [
    "SandboxClaimFailedError",
    "SandboxError",
    "SandboxNoServiceError",
    "SandboxNotFoundError",
    "SandboxNotReadyError",
    "SandboxPortForwardError",
    "SandboxRequestError",
    "SandboxTemplateNotFoundError",
    "SandboxWarmPoolNotFoundError",
    "translated",
]


@contextmanager
def translated() -> Iterator[None]:
    """Raises Podbay's exceptions as the ones that k8s-agent-sandbox documents."""
    try:
        yield
    except podbay.ConfigError:
        raise
    except (podbay.SandboxNotFound, podbay.PodGone) as error:
        raise SandboxNotFoundError(str(error)) from error
    except podbay.TemplateNotFound as error:
        raise SandboxTemplateNotFoundError(str(error)) from error
    except podbay.WarmPoolNotFound as error:
        raise SandboxWarmPoolNotFoundError(str(error)) from error
    except podbay.StartupTimeout as error:
        raise SandboxNotReadyError(str(error)) from error
    except podbay.StartupFailed as error:
        raise SandboxClaimFailedError(str(error)) from error
    except podbay.PodbayError as error:
        raise SandboxError(str(error)) from error
