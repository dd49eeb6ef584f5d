"""The gate in front of everything but health: with AUTH on, no request reaches the application unproven.

Signature Version 4 is good everywhere. What is no AWS client may show an API key, as a Bearer token or as the password
of Basic, which is what scrapers and browsers can do; not at the AWS JSON door, whose clients all sign.
"""

import base64
import binascii
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from access import bearer, credentials, sigv4
from access.permissions import may
from access.refusals import Denial, Refusal, forbidden
from access.sealing import Sealing
from access.sigv4 import Headers
from access.verifier import Verifier
from contract.principals import Principal
from controlplane.api import body
from controlplane.api.callers import ANY_READ, let_in
from controlplane.api.responses import AWS_JSON, REST, error_response, failure
from controlplane.errors import ServiceError

log = logging.getLogger(__name__)

OPEN = ("/health/live", "/health/ready")
"""For load balancers and orchestrators, which have no keys; they say nothing of what is served."""
_PAGES = {"/metrics": "ReadMetrics", "/docs": ANY_READ, "/openapi.json": ANY_READ}
_BASIC, _BEARER = b"basic", b"bearer"

Lookup = Callable[[str], Awaitable[Principal | None]]
"""Finds the principal of a key id that is enabled and has not run out."""
Refused = Callable[[str, float], None]
"""Called for each request that is turned away with the error's code and the seconds it took."""


class Guard:
    """An ASGI application around another one. ``operations``: their names; who may do which, the doors say."""

    def __init__(
        self,
        app: ASGIApp,
        lookup: Lookup,
        operations: Collection[str],
        region: str,
        sealing: Sealing,
        now: Callable[[], datetime],
        refused: Refused = lambda code, seconds: None,
    ) -> None:
        self._app = app
        self._lookup = lookup
        self._doors = {"/", *(f"/{name}" for name in operations)}
        self._region = region
        self._sealing = sealing
        self._now = now
        self._refused = refused
        self._told: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        started, request_id = time.perf_counter(), str(uuid.uuid4())
        request = Request(scope, receive)
        door = AWS_JSON if scope["path"] == "/" else REST
        try:
            principal, content = await self._authenticate(request)
            if scope["method"] != "POST" or scope["path"] not in self._doors:
                _admit(principal, scope["path"])
        except Refusal as refusal:
            status, extra = _status(refusal.denial, scope)
            code = refusal.denial.code
            response = error_response(status, code, refusal.message, request_id, door.media_type, extra)
        except ServiceError as error:
            code = error.code
            response = failure(door, error, request_id)
        except ClientDisconnect:
            return
        else:
            let_in(scope, principal)
            await self._app(scope, _replay(content, receive), send)
            return
        source = request.client.host if request.client else "?"
        log.info("request %s: turned away from %s: %s", request_id, source, code)
        self._refused(code, time.perf_counter() - started)
        await response(scope, receive, send)

    async def _authenticate(self, request: Request) -> tuple[Principal, bytes]:
        """Return who sent the request, and its body, which a signature covers."""
        headers: Headers = _with_basic(request.scope["headers"])
        is_aws = request.scope["path"] == "/"
        key_id = _key_id(headers, is_aws)
        verifier = Verifier(self._region, self._sealing)
        if key_id is not None:
            principal = await self._lookup(key_id)
            verifier.apply([principal] if principal is not None else [])
        claim = verifier.identify(headers, self._now().timestamp())
        content = await body.read(request)
        query = request.scope["query_string"]
        target = request.scope["raw_path"] + (b"?" + query if query else b"")
        try:
            verifier.prove(claim, request.method.encode(), target, headers, content)
        finally:
            self._tell(verifier.unsealable)
        return claim.principal, content

    def _tell(self, unsealable: Collection[str]) -> None:
        """Say once of each key that nobody can use it: to its caller it is one that is not known."""
        for key_id in set(unsealable) - self._told:
            self._told.add(key_id)
            log.error(
                "key %s was sealed under another secret key; give that one, too, after the new one in "
                "WARMROUTE_SECRET_KEY, or rotate the key",
                key_id,
            )


def _key_id(headers: Headers, is_aws: bool) -> str | None:
    """Return the id of the key that the request shows; None where the verifier will say what is wrong."""
    values = [value.strip() for name, value in headers if name == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, rest = values[0].partition(b" ")
    if scheme.lower() == sigv4.ALGORITHM.lower():
        return sigv4.read_authorization(values[0]).scope.key_id
    if scheme.lower() == _BEARER:
        if is_aws:
            raise Refusal(Denial.INCOMPLETE, "Requests to this path must be signed: AWS4-HMAC-SHA256.")
        if rest.strip().startswith(bearer.PREFIX):
            raise Refusal(
                Denial.INCOMPLETE, "A token made from a key is for invoking; sign the request, or show a key."
            )
        return credentials.api_key_id(rest.strip())
    return None


def _with_basic(headers: Headers) -> Headers:
    """Return the headers with the password of a Basic Authorization as the Bearer token that it stands for."""
    found = []
    for name, value in headers:
        scheme, _, rest = value.strip().partition(b" ")
        if name == b"authorization" and scheme.lower() == _BASIC:
            try:
                password = base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                password = b""
            value = b"Bearer " + password
        found.append((name, value))
    return found


def _admit(principal: Principal, path: str) -> None:
    """Raise Refusal for a page that the principal may not see; that includes all that there are not."""
    wanted = _PAGES.get(path, ANY_READ)
    if not may(principal, wanted):
        raise forbidden(principal.id, wanted if path in _PAGES else "*", path if path in _PAGES else "*")


def _status(denial: Denial, scope: Scope) -> tuple[int, dict[str, str]]:
    """Return the status, and what makes a browser ask for a password where it shows a page."""
    if denial is Denial.MISSING and scope["path"] in _PAGES:
        return 401, {"www-authenticate": 'Basic realm="warmroute: any name, and an API key for a password"'}
    return denial.status, {}


def _replay(content: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives the body once more; afterwards it tells of the client's end."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": content, "more_body": False}

    return replayed
