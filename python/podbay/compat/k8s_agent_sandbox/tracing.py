"""Spans of OpenTelemetry, with the names and attributes that k8s-agent-sandbox gives them."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = {
    "claim": "sandbox.claim.name",
    "executable": "sandbox.command.executable",
    "exit_code": "sandbox.exit_code",
    "path": "sandbox.file.path",
    "size": "sandbox.file.size",
    "count": "sandbox.file.count",
    "exists": "sandbox.file.exists",
}

logger = logging.getLogger("k8s_agent_sandbox.trace_manager")


class Tracing:
    """Makes spans if a `SandboxTracerConfig` asks for them and OpenTelemetry is installed.

    They go to the program's own TracerProvider. Unlike the SDK, this never sets one up.
    """

    def __init__(self, config: Any = None) -> None:
        self.tracer: Any = None
        self._service = getattr(config, "trace_service_name", "sandbox-client")
        if getattr(config, "enable_tracing", False):
            try:
                from opentelemetry import trace
            except ImportError:
                logger.error("OpenTelemetry isn't installed, so there are no traces: pip install opentelemetry-sdk")
            else:
                self.tracer = trace.get_tracer(self._service.replace("-", "_"))

    @contextmanager
    def span(self, name: str, **attributes: Any) -> Iterator[Attributes]:
        """Makes a span `SERVICE.NAME`."""
        if self.tracer is None:
            yield Attributes(None)
            return
        with self.tracer.start_as_current_span(f"{self._service}.{name}") as span:
            found = Attributes(span)
            found.set(**attributes)
            yield found


class Attributes:
    """The attributes of a span, if there is one."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def set(self, **attributes: Any) -> None:
        """Sets attributes, by the names of `_NAMES`."""
        if self._span is not None:
            for name, value in attributes.items():
                self._span.set_attribute(_NAMES[name], value)
