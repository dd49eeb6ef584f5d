from access.refusals import Denial, forbidden, mismatch, unrecognized


def test_codes_and_statuses_are_those_of_the_api_reference() -> None:
    assert {denial.code: denial.status for denial in Denial} == {
        "MissingAuthenticationTokenException": 403,
        "IncompleteSignatureException": 403,
        "InvalidSignatureException": 403,
        "UnrecognizedClientException": 403,
        "ExpiredTokenException": 403,
        "AccessDeniedException": 403,
        "ThrottlingException": 429,
    }


def test_texts_are_those_that_clients_match_on() -> None:
    assert mismatch().message.startswith("The request signature we calculated does not match the signature you ")
    assert unrecognized().message == "The security token included in the request is invalid."
    assert (
        "is not authorized to perform: sagemaker:InvokeEndpoint on resource: e"
        in forbidden("AKWR", "InvokeEndpoint", "e").message
    )
