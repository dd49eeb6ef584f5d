"""Path -> what is asked for. Only whole, literal paths match: nothing is decoded or normalised on the way."""

from enum import Enum
from functools import lru_cache


class Door(Enum):
    INVOKE = "invoke"
    INVOKE_STREAM = "invoke_stream"
    INVOKE_ASYNC = "invoke_async"
    CHAT = "chat"
    CHAT_COMPONENT = "chat_component"
    CHAT_BY_MODEL = "chat_by_model"
    MODELS = "models"
    LIVE = "live"
    READY = "ready"
    METRICS = "metrics"
    UNKNOWN = "unknown"


_FIXED = {
    b"/v1/chat/completions": Door.CHAT_BY_MODEL,
    b"/v1/models": Door.MODELS,
    b"/health/live": Door.LIVE,
    b"/health/ready": Door.READY,
    b"/metrics": Door.METRICS,
}
_OF_ENDPOINT = {
    b"invocations": Door.INVOKE,
    b"invocations-response-stream": Door.INVOKE_STREAM,
    b"async-invocations": Door.INVOKE_ASYNC,
    b"openai/v1/chat/completions": Door.CHAT,
}
_CHAT_TAIL = b"/openai/v1/chat/completions"

METHODS = {
    Door.MODELS: (b"GET", b"HEAD"),
    Door.LIVE: (b"GET", b"HEAD"),
    Door.READY: (b"GET", b"HEAD"),
    Door.METRICS: (b"GET", b"HEAD"),
}
"""Of the doors that are not POST."""


@lru_cache(maxsize=1024)
def resolve(target: bytes) -> tuple[Door, str]:
    """Return the door and the endpoint's name ('' where the path has none)."""
    path = target.partition(b"?")[0]
    fixed = _FIXED.get(path)
    if fixed is not None:
        return fixed, ""
    if path.startswith(b"/endpoints/"):
        name, _, rest = path[11:].partition(b"/")
        door = _OF_ENDPOINT.get(rest)
        if door is None and rest.startswith(b"inference-components/") and rest.endswith(_CHAT_TAIL):
            door = Door.CHAT_COMPONENT
        if door is not None:
            return door, name.decode("ascii", "backslashreplace")
    return Door.UNKNOWN, ""


def is_openai(target: bytes) -> bool:
    """Whether errors on this path take OpenAI's form."""
    path = target.partition(b"?")[0]
    return path.startswith(b"/v1/") or b"/openai/" in path
