"""Rejects `~` in virtual paths. To Podbay, it is a name like any other; langchain-k8s promises an error."""

from __future__ import annotations

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)

from podbay.deepagents import PodbaySandbox


class VirtualPaths(PodbaySandbox):
    """A backend that rejects paths beginning with `~` if it has a virtual root.

    Uploads and downloads reject every path that isn't absolute. `..` is left to podbayd, which doesn't let it leave the
    root.
    """

    _root: str | None
    """The virtual root, if there is one."""

    def ls(self, path: str) -> LsResult:
        """Lists a directory."""
        if self._rejects(path):
            return LsResult(error=_refusal(path))
        return super().ls(path)

    async def als(self, path: str) -> LsResult:
        """The async version of `ls`."""
        if self._rejects(path):
            return LsResult(error=_refusal(path))
        return await super().als(path)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Reads a page of a file."""
        if self._rejects(file_path):
            return ReadResult(error=_refusal(file_path))
        return super().read(file_path, offset, limit)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """The async version of `read`."""
        if self._rejects(file_path):
            return ReadResult(error=_refusal(file_path))
        return await super().aread(file_path, offset, limit)

    def write(self, file_path: str, content: str) -> WriteResult:
        """Creates or replaces a file."""
        if self._rejects(file_path):
            return WriteResult(error=_refusal(file_path))
        return super().write(file_path, content)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """The async version of `write`."""
        if self._rejects(file_path):
            return WriteResult(error=_refusal(file_path))
        return await super().awrite(file_path, content)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces text in a file."""
        if self._rejects(file_path):
            return EditResult(error=_refusal(file_path))
        return super().edit(file_path, old_string, new_string, replace_all)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """The async version of `edit`."""
        if self._rejects(file_path):
            return EditResult(error=_refusal(file_path))
        return await super().aedit(file_path, old_string, new_string, replace_all)

    def delete(self, file_path: str) -> DeleteResult:
        """Deletes a file, or a directory with its contents."""
        if self._rejects(file_path):
            return DeleteResult(error=_refusal(file_path))
        return super().delete(file_path)

    async def adelete(self, file_path: str) -> DeleteResult:
        """The async version of `delete`."""
        if self._rejects(file_path):
            return DeleteResult(error=_refusal(file_path))
        return await super().adelete(file_path)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Finds files by name, by default in the root."""
        if self._rejects(path):
            return GlobResult(error=_refusal(path))
        return super().glob(pattern, path)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """The async version of `glob`."""
        if self._rejects(path):
            return GlobResult(error=_refusal(path))
        return await super().aglob(pattern, path)

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Finds lines that contain a literal text, by default in the root."""
        if self._rejects(path):
            return GrepResult(error=_refusal(path))
        return super().grep(pattern, path, glob, max_count=max_count)

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """The async version of `grep`."""
        if self._rejects(path):
            return GrepResult(error=_refusal(path))
        return await super().agrep(pattern, path, glob, max_count=max_count)

    def _rejects(self, path: str | None) -> bool:
        return self._root is not None and path is not None and path.startswith("~")


def _refusal(path: str | None) -> str:
    # langchain-k8s's words, for programs and prompts that know them.
    return f"Path traversal not allowed: {path!r}"
