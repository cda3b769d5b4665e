"""The interface of providers, and how they fail."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import podbay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deepagents.backends.protocol import SandboxBackendProtocol


class SandboxError(Exception):
    """A sandbox can't be made, found or removed."""

    @property
    def original_exc(self) -> BaseException | None:
        """What was behind it."""
        return self.__cause__


class SandboxNotFoundError(SandboxError):
    """There is no such sandbox (any more)."""


class SandboxFailedError(SandboxError, RuntimeError):
    """The cluster refused, can't be reached, or the sandbox can't start; the message says which."""


class SandboxStartupTimeoutError(SandboxError, TimeoutError):
    """A sandbox wasn't ready in time."""


class SandboxProvider(ABC):
    """Makes and deletes sandboxes."""

    @abstractmethod
    def get_or_create(self, *, sandbox_id: str | None = None, **kwargs: Any) -> SandboxBackendProtocol:
        """The sandbox with this id, or a new one."""

    @abstractmethod
    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """Deletes a sandbox."""

    async def aget_or_create(self, *, sandbox_id: str | None = None, **kwargs: Any) -> SandboxBackendProtocol:
        """As `get_or_create`."""
        return await asyncio.to_thread(self.get_or_create, sandbox_id=sandbox_id, **kwargs)

    async def adelete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """As `delete`."""
        await asyncio.to_thread(self.delete, sandbox_id=sandbox_id, **kwargs)


@contextmanager
def translated() -> Iterator[None]:
    """Podbay's failures under the names, and of the kinds, that this package documents."""
    try:
        yield
    except podbay.ConfigError:
        raise
    except (podbay.SandboxNotFound, podbay.PodGone) as error:
        raise SandboxNotFoundError(str(error)) from error
    except podbay.StartupTimeout as error:
        raise SandboxStartupTimeoutError(str(error)) from error
    except podbay.PodbayError as error:
        raise SandboxFailedError(str(error)) from error
