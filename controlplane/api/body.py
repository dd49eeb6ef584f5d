"""The body of a request: read within limits, then decoded as JSON. What is no JSON object never reaches the shapes."""

import asyncio
import json
from typing import Any

from starlette.requests import Request

from controlplane.errors import RequestEntityTooLargeException, RequestTimeoutException, SerializationException

BODY_BYTES_MAX = 512 * 1024
"""The largest valid request, 32 KB of environment and 50 tags in escaped JSON, is below 400 KB."""
READ_SECONDS = 20.0
"""For a client to send its whole body; that much takes less on any link that is fit for the API."""


async def read(request: Request) -> bytes:
    """Return the whole body. Raises RequestEntityTooLargeException or RequestTimeoutException."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > BODY_BYTES_MAX:
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES_MAX:
                    raise _too_large()
    except TimeoutError:
        raise RequestTimeoutException(f"The request body did not arrive within {READ_SECONDS:g} seconds.") from None
    return bytes(body)


def decode(body: bytes) -> dict[str, Any]:
    """Return the JSON object in ``body``. NaN and Infinity pass as floats, so that the shapes can name the member.

    Raises SerializationException for anything else, however deeply it is nested.
    """
    try:
        document = json.loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise SerializationException("The request body must be JSON in UTF-8.") from None
    except RecursionError:
        raise SerializationException("The request body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        if not body.strip():
            raise SerializationException(
                "The request body is empty; it must be a JSON object, {} if there is nothing to say."
            ) from None
        place = f"line {error.lineno} column {error.colno}"
        raise SerializationException(f"The request body must be JSON: {error.msg} at {place}.") from None
    except ValueError:
        # The interpreter's limit on the digits of one number.
        raise SerializationException("The request body contains a number of too many digits.") from None
    if not isinstance(document, dict):
        kind = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(type(document), "a number")
        raise SerializationException(f"The request body must be a JSON object, not {kind}.")
    return document


def _too_large() -> RequestEntityTooLargeException:
    return RequestEntityTooLargeException(f"The request body must have {BODY_BYTES_MAX} bytes or less.")
