"""The provider interface and its exceptions."""

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
    """A sandbox can't be created, found or deleted."""

    @property
    def original_exc(self) -> BaseException | None:
        """The exception that caused this one."""
        return self.__cause__


class SandboxNotFoundError(SandboxError):
    """The sandbox doesn't exist, or no longer exists."""


class SandboxFailedError(SandboxError, RuntimeError):
    """The cluster refused or can't be reached, or the sandbox can't start; the message says which."""


class SandboxStartupTimeoutError(SandboxError, TimeoutError):
    """A sandbox wasn't ready in time."""


class SandboxProvider(ABC):
    """Creates and deletes sandboxes."""

    @abstractmethod
    def get_or_create(self, *, sandbox_id: str | None = None, **kwargs: Any) -> SandboxBackendProtocol:
        """Returns the sandbox with this id, or a new one."""

    @abstractmethod
    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """Deletes a sandbox."""

    async def aget_or_create(self, *, sandbox_id: str | None = None, **kwargs: Any) -> SandboxBackendProtocol:
        """The async version of `get_or_create`."""
        return await asyncio.to_thread(self.get_or_create, sandbox_id=sandbox_id, **kwargs)

    async def adelete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """The async version of `delete`."""
        await asyncio.to_thread(self.delete, sandbox_id=sandbox_id, **kwargs)


@contextmanager
def translated() -> Iterator[None]:
    """Raises Podbay's exceptions as the ones that langchain-kubernetes documents."""
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
