"""Listening addresses, looked at before anything starts: free ports, faults in plain words, URLs."""

import contextlib
import errno
import ipaddress
import socket
import time

from warmroute.faults import Fault


def claim_port(host: str, port: int, option: str = "--port", patience_seconds: float = 0) -> int:
    """Return the port to listen on: ``port``, or a free one for 0. Raises Fault when it cannot be listened on.

    ``patience_seconds`` are given to who holds it to let go: after a kill, the parts of the last run take a moment.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return _claim(host, port, option)
        except _InUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class _InUse(Fault):
    """Somebody listens on the port."""


def _claim(host: str, port: int, option: str) -> int:
    addresses = _resolve(host, port)
    for family, _, _, _, address in addresses:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As servers do: a connection that lingers from the last run is no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((*address[:1], port, *address[2:]))
                probe.listen(1)
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL and len(addresses) > 1:
                    continue  # "localhost" on a machine without IPv6.
                kind = _InUse if error.errno == errno.EADDRINUSE else Fault
                raise kind(_why(error, host, port, option)) from None
            port = probe.getsockname()[1]
    return port


def url(host: str, port: int, *, tls: bool = False) -> str:
    """Return the URL under which a program on this machine reaches a listener on ``host``."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _resolve(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise Fault(f"--host {host} is no address of this machine; give one such as 127.0.0.1") from None
    return found  # type: ignore[return-value]


def _why(error: OSError, host: str, port: int, option: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{option} {port} is in use on {host}; stop the program that uses it or give another {option}"
    if error.errno == errno.EACCES:
        return f"{option} {port} is reserved for root; give a port above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is no address of this machine; give one such as 127.0.0.1"
    return f"{option} {port} cannot be listened on ({error.strerror}); give another {option}"
