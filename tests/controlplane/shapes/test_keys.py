from controlplane.shapes.keys import CreateAccessKeyInput, RotateAccessKeyInput
from controlplane.shapes.parse import parse


def test_a_key_signs_and_reaches_everything_unless_it_is_said_otherwise() -> None:
    request = parse(CreateAccessKeyInput, {"Role": "invoke"})
    assert (request.Kind, request.Endpoints, request.Tenant) == ("access-key", (), None)
    assert (request.RequestsPerSecond, request.ConcurrentRequests) == (None, None)


def test_an_old_key_has_a_day() -> None:
    assert parse(RotateAccessKeyInput, {"AccessKeyId": "AKWRABCDEFGHIJKLMN23"}).GraceSeconds == 86400
