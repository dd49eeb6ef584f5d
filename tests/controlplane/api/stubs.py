"""Stubbed operations and a database that only counts, to drive the doors without the rest of the plane."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import uvicorn
from fastapi import FastAPI

from controlplane.api.app import build_app
from controlplane.http_protocol import TimedProtocol
from controlplane.operations.context import Context
from controlplane.shapes.base import Shape
from tests.controlplane.shapes.service_model import shapes_by_name

NOW = datetime(2026, 1, 1, 0, 0, 0, 123456, UTC)


@dataclass
class CountingDatabase:
    """Counts commits and roll-backs. ``commit_error`` is raised when a transaction ends well."""

    commits: int = 0
    rollbacks: int = 0
    commit_error: Exception | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        try:
            yield object()
        except BaseException:
            self.rollbacks += 1
            raise
        if self.commit_error is not None:
            raise self.commit_error
        self.commits += 1


@dataclass(frozen=True)
class StubOperation:
    name: str
    input: type[Shape]
    output: type[Shape] | None
    run: Callable[[Context, Any], Awaitable[Shape | None]]


@dataclass
class Stubs:
    """The operations of a test, and what they were called with."""

    database: CountingDatabase = field(default_factory=CountingDatabase)
    calls: list[tuple[Context, Shape]] = field(default_factory=list)
    operations: dict[str, StubOperation] = field(default_factory=dict)
    observed: list[tuple[str, str]] = field(default_factory=list)
    ready: tuple[bool, str] = (True, "")
    metrics: Callable[[], str] = lambda: "warmroute_up 1\n"

    def add(self, name: str, result: Mapping[str, Any] | Exception | None = None) -> None:
        """Let the operation ``name`` return ``result`` as its output shape, or raise it."""
        shapes = shapes_by_name()
        output = shapes.get(f"{name}Output")

        async def run(context: Context, request: Shape) -> Shape | None:
            self.calls.append((context, request))
            if isinstance(result, Exception):
                raise result
            return None if output is None else output.model_validate(result or {})

        self.operations[name] = StubOperation(name, shapes[f"{name}Input"], output, run)

    def app(self) -> FastAPI:
        return build_app(
            database=self.database,
            account_id="000000000000",
            region="us-east-1",
            is_ready=lambda: self.ready,
            metrics=lambda: self.metrics(),
            now=lambda: NOW,
            operations=self.operations,
            observe=lambda operation, code, seconds: self.observed.append((operation, code)),
            record=None,
        )


async def _nothing() -> None: ...


@contextmanager
def served(app: FastAPI, at_end: Callable[[], Awaitable[None]] = _nothing) -> Iterator[str]:
    """Serve ``app`` with uvicorn on a real socket, in a thread of its own; yield its URL.

    ``at_end`` runs in that thread's event loop, where connections that the app opened can be closed.
    """
    server = uvicorn.Server(uvicorn.Config(app, http=TimedProtocol, log_config=None, lifespan="off"))
    sock = socket.create_server(("127.0.0.1", 0))

    async def serve() -> None:
        await server.serve([sock])
        await at_end()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        # The socket listens already: a client that is early waits in its backlog.
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        sock.close()
        assert not thread.is_alive()
