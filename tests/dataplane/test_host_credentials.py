import logging

import pytest

from access.sealing import Sealing
from contract.routing_table import Endpoint, Instance, RoutingTable, Variant
from dataplane.host_credentials import HostCredentials
from dataplane.routing.routes import Routes

SEALING = Sealing([b"k" * 32])


def routes(*sealed: bytes) -> Routes:
    variants = tuple(
        Variant(f"v{at}", 1.0, (Instance("h", 1, "http://h:1"),), host_authorization=one)
        for at, one in enumerate(sealed)
    )
    return Routes(RoutingTable("e", 1, "0" * 12, "us-east-1", (Endpoint("chat", "id", 1, variants),)))


def test_each_credential_is_opened_once_and_forgotten_with_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = SEALING.seal("Bearer a"), SEALING.seal("Basic b")
    opened = []
    unseal = Sealing.open

    def open_(self: Sealing, sealed: bytes) -> str:
        opened.append(sealed)
        return unseal(self, sealed)

    monkeypatch.setattr(Sealing, "open", open_)
    kept = HostCredentials(SEALING)
    for _ in range(2):
        kept.apply(routes(first, second, first, b""))
    assert opened == [first, second]
    assert kept.line(first) == b"Authorization: Bearer a\r\n"
    assert kept.line(second) == b"Authorization: Basic b\r\n"
    assert kept.line(b"") == b""
    kept.apply(routes(second))
    assert kept.line(first) is None


@pytest.mark.parametrize(
    ("sealing", "sealed"),
    [
        (None, SEALING.seal("Bearer a")),
        (Sealing([b"x" * 32]), SEALING.seal("Bearer a")),
        (SEALING, b"no seal"),
        (SEALING, SEALING.seal("Bearer a\r\nX-Smuggled: b")),
        (SEALING, SEALING.seal("Bearer é")),
    ],
    ids=["no key", "another key", "no seal", "two headers", "no ASCII"],
)
def test_one_that_cannot_be_used_is_none_and_told_to_the_operator(
    sealing: Sealing | None, sealed: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    kept = HostCredentials(sealing)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            kept.apply(routes(sealed))
    assert kept.line(sealed) is None
    (record,) = caplog.records
    assert "variant v0 of endpoint chat" in record.getMessage()
    assert "WARMROUTE_SECRET_KEY" in record.getMessage()
    assert "Bearer" not in record.getMessage()
