import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.refusals import Denial
from dataplane.api import faults
from dataplane.api.faults import Fault
from tests.dataplane.api.runtime_model import MODEL, body_of, lines, parsed_error

ALL = {name: value for name, value in vars(faults).items() if isinstance(value, Fault)}

COMMON = {
    "AccessDeniedException": 403,
    "ExpiredTokenException": 403,
    "IncompleteSignatureException": 403,
    "InvalidSignatureException": 403,
    "MissingAuthenticationTokenException": 403,
    "ThrottlingException": 429,
    "UnrecognizedClientException": 403,
    "MalformedHttpRequestException": 400,
    "RequestEntityTooLargeException": 413,
    "RequestTimeoutException": 408,
    "UnknownOperationException": 404,
}
"""AWS's common errors (API reference), which no service model lists."""
OF_HTTP = {405, 431}
"""Statuses that say more than any of the codes."""


@pytest.mark.parametrize("name", ALL)
def test_codes_and_statuses_are_those_of_the_service_model(name: str) -> None:
    fault = ALL[name]
    shape = MODEL.shape_for_error_code(fault.code)
    if shape is not None:
        assert fault.status == shape.metadata["error"]["httpStatusCode"]
    else:
        assert fault.code in COMMON, "neither modelled nor common"
        assert fault.status in {COMMON[fault.code], *OF_HTTP}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("operation", ["InvokeEndpoint", "InvokeEndpointWithResponseStream"])
def test_boto3_reads_the_native_form(name: str, operation: str) -> None:
    fault = ALL[name]
    found = parsed_error(faults.native(fault, "What to do."), operation)
    assert found["Error"]["Code"] == fault.code
    assert found["Error"]["Message"] == "What to do."
    assert found["ResponseMetadata"]["HTTPStatusCode"] == fault.status
    if MODEL.shape_for_error_code(fault.code) is not None:
        assert found["Message"] == "What to do."


@pytest.mark.parametrize("name", ALL)
def test_openai_clients_read_the_envelope(name: str) -> None:
    fault = ALL[name]
    status, headers, body = faults.openai(fault, "What to do.", "model")
    error = json.loads(body)["error"]
    assert error == {"message": "What to do.", "type": fault.chat_type, "param": "model", "code": fault.chat_code}
    assert status == fault.chat_status
    assert ("content-type", "application/json") in lines(headers)
    assert json.loads(faults.openai_body(fault, "x"))["error"]["param"] is None


@pytest.mark.parametrize("name", ALL)
def test_statuses_say_whose_fault_it_is(name: str) -> None:
    """openai's and boto3's clients retry 5xx, 408 and 429 by themselves."""
    fault = ALL[name]
    is_clients = fault.chat_type != "server_error"
    assert is_clients == (fault.chat_status < 500 or fault.chat_status == 501)
    assert fault.chat_type in ("invalid_request_error", "requests", "server_error")


def test_clients_do_not_send_again_what_a_host_may_be_running() -> None:
    for fault in (faults.MODEL, faults.MODEL_TIMEOUT):
        assert fault.status == 424, "never retried by boto3"
        assert ("x-should-retry", "false") in lines(faults.openai(fault, "x")[1])


def test_clients_may_come_back_soon_when_no_host_could_be_asked() -> None:
    for answer in (faults.native(faults.UNAVAILABLE, "x"), faults.openai(faults.UNAVAILABLE, "x")):
        assert answer[0] == 503
        assert ("retry-after", "1") in lines(answer[1])
        assert "x-should-retry" not in dict(lines(answer[1]))


def test_a_caller_that_is_turned_away_is_found_by_the_code_of_the_denial() -> None:
    assert {denial.code: denial.status for denial in Denial} == {
        code: fault.status for code, fault in faults.BY_CODE.items()
    }


def test_who_one_is_and_what_one_may_differ_for_openais_clients() -> None:
    """401 asks for another key, 403 does not; RFC 9110 wants the first to name the scheme."""
    for fault in faults.BY_CODE.values():
        status, headers, _ = faults.openai(fault, "x")
        assert (("www-authenticate", "Bearer") in lines(headers)) == (status == 401)
    unknown = {faults.MISSING_TOKEN, faults.INCOMPLETE_SIGNATURE, faults.UNRECOGNIZED_CLIENT}
    assert unknown == {fault for fault in ALL.values() if fault.chat_status == 401}


def test_the_wire_finds_a_fault_for_each_of_its_statuses() -> None:
    assert all(faults.BY_STATUS[status].status == status for status in (400, 408, 413, 431, 503))


@given(st.text(max_size=60), st.sampled_from(sorted(ALL)))
def test_any_message_is_carried_unharmed(message: str, name: str) -> None:
    """Control characters, quotes and line ends too; nothing of it reaches a header."""
    for answer in (faults.native(ALL[name], message), faults.openai(ALL[name], message)):
        said = body_of(answer)
        assert message in (said.get("Message"), said.get("error", {}).get("message"))
        assert faults.native(ALL[name], "x")[1] == faults.native(ALL[name], message)[1]


@pytest.mark.parametrize("message", ["half \ud83d of a face", "\udcff"])
def test_a_message_that_quotes_half_a_character_is_still_an_answer(message: str) -> None:
    """JSON escapes may spell lone surrogates; what a client sent and is quoted must not make a 500 of its 400."""
    for answer in (faults.native(faults.VALIDATION, message), faults.openai(faults.VALIDATION, message)):
        answer[2].decode()
        assert body_of(answer)
