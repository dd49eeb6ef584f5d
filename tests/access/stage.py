"""Principals and a verifier for the tests of this folder."""

import base64
from typing import Any

from access import credentials
from access.sealing import Sealing
from access.verifier import Verifier
from contract.principals import Kind, Principal, Role
from tests.fakes.signer import REGION

SEALING = Sealing([b"k" * 32])
KEY = credentials.new_access_key(bytes(range(40)))
OTHER = credentials.new_access_key(bytes(range(40, 80)))
API_KEY = credentials.new_api_key(bytes(range(80, 120)))


def access_key(key: credentials.AccessKey = KEY, **given: Any) -> Principal:
    return Principal(key.id, Kind.ACCESS_KEY, given.pop("role", Role.INVOKE), SEALING.seal(key.secret), **given)


def api_key(key: credentials.ApiKey = API_KEY, **given: Any) -> Principal:
    return Principal(key.id, Kind.API_KEY, given.pop("role", Role.INVOKE), key.digest, **given)


def verifier(*principals: Principal, region: str = REGION) -> Verifier:
    made = Verifier(region, SEALING)
    made.apply(principals)
    return made


def secret_key(byte: bytes) -> str:
    """Return a secret key as an operator writes it."""
    return base64.b64encode(byte * 32).decode()
