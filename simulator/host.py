"""The server of a simulated model host: SageMaker's container contract and vLLM's routes, over HTTP.

It knows what requests ask for and how answers look; the engine says how long everything takes.
"""

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from simulator import native_api, openai_api
from simulator.calibration import Profile
from simulator.engine import Engine
from simulator.generation import Generation, plan
from simulator.live import LiveEngine
from simulator.metrics import Metrics
from simulator.native_api import TextRequest
from simulator.openai_api import BadRequest, ChatRequest, Envelope, error_body
from simulator.reply import StreamReply, WholeReply
from simulator.request import PromptTooLong

CUT_SECONDS = 0.3
"""A stopping host cuts connections that are still open then: requests half sent, answers nobody reads."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What one host is."""

    profile: Profile
    name: str = ""
    """Named in every answer. Empty: its address."""
    model: str = "simulated"
    """Listed by /v1/models; any other name is served too."""
    speed: float = 1.0
    """Engine seconds in a second, above 0."""
    output_tokens: int = 64
    """Length of an answer whose request gives no limit."""


class Host:
    """The routes of one host, on one engine."""

    def __init__(self, settings: HostSettings) -> None:
        self.settings = settings
        self.metrics = Metrics(settings.model, settings.speed)
        self.live = LiveEngine(Engine(settings.profile), self.metrics, settings.speed, time.monotonic)
        self._created = int(time.time())
        self._headers = {"x-simulated-host": settings.name}

    async def ping(self, request: Request) -> Response:
        """``GET /ping``, ``/health``: 200 and no body while it serves."""
        return Response(status_code=503 if self.live.stopping else 200, headers=self._headers)

    async def models(self, request: Request) -> Response:
        """``GET /v1/models``."""
        context = self.settings.profile.context_tokens
        model = {"id": self.settings.model, "object": "model", "created": self._created, "owned_by": "warmroute"}
        return self._json({"object": "list", "data": [{**model, "max_model_len": context}]})

    async def page(self, request: Request) -> Response:
        """``GET /metrics``."""
        self.live.catch_up()
        text = self.metrics.render(self.live.engine)
        return Response(text, headers=self._headers, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def chat(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        body = await request.body()
        try:
            return self._chat_reply(openai_api.parse_chat(body))
        except (BadRequest, PromptTooLong) as error:
            return self._refusal(error)

    async def invoke(self, request: Request) -> Response:
        """``POST /invocations``."""
        body = await request.body()
        try:
            asked = native_api.parse(body, request.headers.get("accept", ""))
            return self._chat_reply(asked) if isinstance(asked, ChatRequest) else self._text_reply(asked)
        except (BadRequest, PromptTooLong) as error:
            return self._refusal(error)

    def _chat_reply(self, asked: ChatRequest) -> Response:
        generation = self._plan(asked.prompt, asked.max_tokens, asked.stop, asked.salt)
        model = asked.model or self.settings.model
        envelope = Envelope(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), model, self.settings.name)
        if asked.stream:
            return StreamReply(
                self.live,
                generation,
                self._headers,
                lambda answer: openai_api.events(answer, envelope, asked.include_usage),
            )
        return WholeReply(self.live, generation, self._headers, envelope.completion)

    def _text_reply(self, asked: TextRequest) -> Response:
        generation = self._plan(asked.prompt, asked.max_tokens, asked.stop, "")
        name = self.settings.name
        if asked.stream:
            return StreamReply(self.live, generation, self._headers, lambda answer: native_api.events(answer, name))
        return WholeReply(self.live, generation, self._headers, lambda answer: native_api.whole(answer, name))

    def _plan(self, prompt: bytes, max_tokens: int | None, stop: tuple[str, ...], salt: str) -> Generation:
        return plan(
            prompt,
            context_tokens=self.settings.profile.context_tokens,
            max_tokens=max_tokens,
            default_tokens=self.settings.output_tokens,
            stop=stop,
            salt=salt,
        )

    def _refusal(self, error: BadRequest | PromptTooLong) -> Response:
        if isinstance(error, PromptTooLong):
            return self._json(error_body(str(error), code="context_length_exceeded"), 400)
        return self._json(error_body(error.message, error.param), 400)

    def _json(self, content: object, status: int = 200) -> Response:
        return Response(msgspec.json.encode(content), status, self._headers, "application/json")


def build_app(host: Host) -> Starlette:
    """Return the ASGI application of ``host``; its engine runs during the application's lifespan."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(host.live.run())
        try:
            yield
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    routes = [
        Route("/ping", host.ping, methods=["GET"]),
        Route("/health", host.ping, methods=["GET"]),
        Route("/metrics", host.page, methods=["GET"]),
        Route("/v1/models", host.models, methods=["GET"]),
        Route("/v1/chat/completions", host.chat, methods=["POST"]),
        Route("/invocations", host.invoke, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={ClientDisconnect: _gone})


async def _gone(request: Request, error: Exception) -> Response:
    # The client left while it was sending its request; nobody reads this.
    return Response(status_code=499)


class _Server(uvicorn.Server):
    """Leaves signals to the caller and says when it serves."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        cutting = asyncio.get_running_loop().call_later(CUT_SECONDS, self._cut)
        await super().shutdown(sockets)
        cutting.cancel()

    def _cut(self) -> None:
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()


async def serve(
    settings: HostSettings, *, host: str, port: int, on_ready: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Serve until ``stop`` is set; then end answers under way and return within a second.

    ``on_ready`` is called with the URL once requests are answered; port 0 takes a free one. Raises OSError if the
    address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=2048)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    served = Host(replace(settings, name=settings.name or url.removeprefix("http://")))
    config = uvicorn.Config(
        build_app(served), http="httptools", access_log=False, log_level="warning", timeout_graceful_shutdown=1
    )
    server = _Server(config, lambda: on_ready(url))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        served.live.stop()
        server.should_exit = True
        await serving
