from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import SerializationException, ServiceError, ValidationException
from controlplane.shapes.base import Shape
from controlplane.shapes.endpoint_configs import CreateEndpointConfigInput
from controlplane.shapes.endpoints import CreateEndpointInput, UpdateEndpointInput
from controlplane.shapes.models import CreateModelInput, ListModelsInput
from controlplane.shapes.parse import FAILURES_MAX, parse
from controlplane.shapes.tags import AddTagsInput
from controlplane.shapes.variants import ProductionVariant
from tests.controlplane.shapes.service_model import shapes_by_name

BLOCK = "productionVariants.1.member.routingConfig.prefixAwareRoutingConfig"


def config(**variant: Any) -> dict[str, Any]:
    return {
        "EndpointConfigName": "c1",
        "ProductionVariants": [{"VariantName": "v1", "ModelName": "m", "InitialInstanceCount": 1, **variant}],
    }


def prefix_aware(**numbers: Any) -> dict[str, Any]:
    block = {"PrefixLength": 2048, "ConcurrencyThreshold": 4, **numbers}
    return config(RoutingConfig={"RoutingStrategy": "PREFIX_AWARE", "PrefixAwareRoutingConfig": block})


def refusal(shape: type[Shape], sent: object) -> ServiceError:
    with pytest.raises(ServiceError) as raised:
        parse(shape, sent)
    return raised.value


def test_a_valid_request_comes_back_as_it_was_sent() -> None:
    sent = prefix_aware() | {"Tags": [{"Key": "k", "Value": ""}]}
    parsed = parse(CreateEndpointConfigInput, sent).to_wire()
    assert parsed["ProductionVariants"][0].pop("InitialVariantWeight") == 1.0
    assert parsed == sent


def test_the_form_of_one_failure() -> None:
    error = refusal(CreateEndpointConfigInput, config(ModelName="BAD NAME"))
    assert isinstance(error, ValidationException)
    assert error.message == (
        "1 validation error detected: Value 'BAD NAME' at 'productionVariants.1.member.modelName' failed to satisfy "
        r"constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9]([\-a-zA-Z0-9]*[a-zA-Z0-9])?"
    )


def test_all_failures_are_in_one_message() -> None:
    sent = prefix_aware(PrefixLength=10, ConcurrencyThreshold=0) | {"EndpointConfigName": "-bad"}
    sent["ProductionVariants"].append(
        {"VariantName": "v2", "ModelName": "m", "RoutingConfig": {"RoutingStrategy": "X"}}
    )
    message = refusal(CreateEndpointConfigInput, sent).message
    assert message.startswith("4 validation errors detected: ")
    for part in (
        "Value '-bad' at 'endpointConfigName' failed to satisfy constraint: Member must satisfy regular expression",
        f"Value '10' at '{BLOCK}.prefixLength' failed to satisfy constraint: Member must have value greater than or "
        "equal to 1024",
        f"Value '0' at '{BLOCK}.concurrencyThreshold' failed to satisfy constraint: Member must have value greater "
        "than or equal to 1",
        "Value 'X' at 'productionVariants.2.member.routingConfig.routingStrategy' failed to satisfy constraint: Member "
        "must satisfy enum value set: [LEAST_OUTSTANDING_REQUESTS, RANDOM, PREFIX_AWARE, KV_AWARE]",
    ):
        assert part in message


@pytest.mark.parametrize(
    "value", ["2048", True, 2048.5, 1e4, 2048.0, [2048], {"a": 1}], ids=lambda value: type(value).__name__
)
def test_integers_are_not_coerced(value: object) -> None:
    error = refusal(CreateEndpointConfigInput, prefix_aware(PrefixLength=value))
    assert isinstance(error, SerializationException)
    assert f"at '{BLOCK}.prefixLength' failed to satisfy constraint: Member must be a JSON integer" in error.message


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("PrefixLength", 1023),
        ("PrefixLength", 65537),
        ("PrefixLength", 10**30),
        ("PrefixLength", None),
        ("ConcurrencyThreshold", 0),
        ("ConcurrencyThreshold", 1025),
        ("ConcurrencyThreshold", -1),
    ],
)
def test_numbers_out_of_range(number: str, value: object) -> None:
    error = refusal(CreateEndpointConfigInput, prefix_aware(**{number: value}))
    assert isinstance(error, ValidationException)
    assert f"{BLOCK}.{number[0].lower()}{number[1:]}'" in error.message


@pytest.mark.parametrize(("low", "high"), [(1024, 1), (65536, 1024)])
def test_both_ends_of_the_ranges_are_valid(low: int, high: int) -> None:
    parse(CreateEndpointConfigInput, prefix_aware(PrefixLength=low, ConcurrencyThreshold=high))


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -float("inf"), "NaN", -0.5, 1e39, True])
def test_weights_that_are_none(weight: object) -> None:
    message = refusal(CreateEndpointConfigInput, config(InitialVariantWeight=weight)).message
    assert "productionVariants.1.member.initialVariantWeight" in message


def test_a_missing_required_member() -> None:
    error = refusal(CreateEndpointConfigInput, {"EndpointConfigName": "c1"})
    assert error.message == (
        "1 validation error detected: Value null at 'productionVariants' failed to satisfy constraint: "
        "Member must not be null"
    )


@pytest.mark.parametrize(
    ("sent", "place"),
    [
        (
            {"EndpointConfigName": None, "ProductionVariants": [{"VariantName": "v", "ModelName": "m"}]},
            "endpointConfigName",
        ),
        ({"EndpointConfigName": "c", "ProductionVariants": [None]}, "productionVariants.1.member"),
    ],
)
def test_null_is_a_missing_member(sent: object, place: str) -> None:
    message = refusal(CreateEndpointConfigInput, sent).message
    assert message.startswith(f"1 validation error detected: Value null at '{place}' failed")


def test_a_null_optional_member_is_absent() -> None:
    parsed = parse(CreateEndpointConfigInput, config(InstanceType=None, RoutingConfig=None) | {"Tags": None})
    assert "Tags" not in parsed.to_wire()


@pytest.mark.parametrize(
    "name", ["abc\n", "a\u0660", "caf\u00e9", "-a", "a-", "a.b", "a_b", 64 * "a", "", "a\0b", "\ud83d", "a b"]
)
def test_names_that_almost_match(name: str) -> None:
    for sent in (config() | {"EndpointConfigName": name}, config(VariantName=name)):
        assert isinstance(refusal(CreateEndpointConfigInput, sent), ValidationException)
    assert "endpointName" in refusal(CreateEndpointInput, {"EndpointName": name, "EndpointConfigName": "c"}).message
    assert "modelName" in refusal(CreateModelInput, {"ModelName": name}).message


@pytest.mark.parametrize("name", [63 * "a", "a--b", "A", "0"])
def test_names_that_match(name: str) -> None:
    parse(CreateEndpointConfigInput, config(VariantName=name) | {"EndpointConfigName": name})
    parse(CreateEndpointInput, {"EndpointName": name, "EndpointConfigName": name})


def test_an_unknown_member_names_the_near_one() -> None:
    sent = prefix_aware()
    block = sent["ProductionVariants"][0]["RoutingConfig"]["PrefixAwareRoutingConfig"]
    block["ConcurrencyTreshold"] = block.pop("ConcurrencyThreshold")
    message = refusal(CreateEndpointConfigInput, sent | {"Foo": 1}).message
    assert "Unknown member ConcurrencyTreshold; did you mean ConcurrencyThreshold?" in message
    assert f"Value null at '{BLOCK}.concurrencyThreshold'" in message
    assert "Unknown member Foo; Known members: AsyncInferenceConfig, " in message


def test_a_member_in_the_wrong_case_is_unknown() -> None:
    assert "did you mean EndpointName?" in refusal(CreateEndpointInput, {"endpointName": "e"}).message


@pytest.mark.parametrize("sent", [[], "x", 1, None, True])
def test_a_body_that_is_no_object(sent: object) -> None:
    assert isinstance(refusal(CreateEndpointInput, sent), SerializationException)


def test_a_wrong_type_hides_no_other_failure() -> None:
    error = refusal(CreateEndpointConfigInput, config(InitialInstanceCount="1", ModelName="-"))
    assert isinstance(error, SerializationException)
    assert error.message.startswith("2 validation errors detected: ")


def test_what_is_inside_a_refused_member_does_not_matter() -> None:
    message = refusal(CreateEndpointConfigInput, config(ServerlessConfig={"MemorySizeInMB": 1, "X": 2})).message
    assert message == (
        "1 validation error detected: Value at 'productionVariants.1.member.serverlessConfig' failed to satisfy "
        "constraint: ServerlessConfig is not supported by this version"
    )


def test_values_of_environment_variables_are_not_repeated() -> None:
    secret = "hf_canary" * 200
    environment = {"TOKEN": secret, "N": ["hf_canary"], "WARMROUTE_HOSTS": "http://u:canary@h"}
    message = refusal(CreateModelInput, {"ModelName": "m", "PrimaryContainer": {"Environment": environment}}).message
    assert message.startswith("3 validation errors detected: ")
    assert "primaryContainer.environment.TOKEN" in message
    assert "canary" not in message


def test_an_empty_list_of_valid_items_is_too_short_only_when_it_is() -> None:
    message = refusal(CreateEndpointConfigInput, config(ModelName="-")).message
    assert message.startswith("1 validation error detected: ")
    message = refusal(CreateEndpointConfigInput, config() | {"ProductionVariants": []}).message
    assert "at 'productionVariants' failed to satisfy constraint: Member must have length greater than or" in message


def test_too_many_variants() -> None:
    variants = [{"VariantName": f"v{n}", "ModelName": "m"} for n in range(11)]
    message = refusal(CreateEndpointConfigInput, {"EndpointConfigName": "c", "ProductionVariants": variants}).message
    assert "Member must have length less than or equal to 10" in message


@pytest.mark.parametrize(
    "sent",
    [
        {"ProductionVariants": [{}] * 50_000},
        {"Tags": [{"Key": "k", "Value": "v"}] * 10_000},
        {f"Endpointx{number}": 1 for number in range(10_000)},
        {"ProductionVariants": [{f"x{number}": 1 for number in range(10_000)}] * 10},
    ],
    ids=["items", "repeated", "unknown", "unknown inside"],
)
def test_no_time_goes_into_failures_that_nobody_reads(sent: dict[str, Any]) -> None:
    count = int(refusal(CreateEndpointConfigInput, sent).message.split(" ")[0])
    assert count <= 2 * FAILURES_MAX


def test_defaults() -> None:
    update = parse(UpdateEndpointInput, {"EndpointName": "e", "EndpointConfigName": "c"})
    assert (update.RetainAllVariantProperties, update.RetainDeploymentConfig, update.excluded) == (False, False, set())
    listing = parse(ListModelsInput, {})
    assert (listing.SortBy, listing.SortOrder, listing.MaxResults) == ("CreationTime", "Descending", 10)


def test_a_list_member_of_wrong_type_is_named() -> None:
    message = refusal(
        AddTagsInput, {"ResourceArn": "arn:aws:sagemaker:r:000000000000:model/m", "Tags": {"k": "v"}}
    ).message
    assert "at 'tags' failed to satisfy constraint: Member must be a JSON list" in message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("\ud83d"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
member_names = st.sampled_from(sorted({name for shape in shapes_by_name().values() for name in shape.model_fields}))
documents = st.recursive(
    json_values,
    lambda inner: st.dictionaries(member_names | st.text(max_size=3), inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=12,
)


def outcome(shape: type[Shape], sent: object) -> Shape | ServiceError:
    try:
        return parse(shape, sent)
    except ServiceError as error:
        return error


@given(st.sampled_from([shape for name, shape in shapes_by_name().items() if name.endswith("Input")]), documents)
def test_any_document_is_parsed_or_refused(shape: type[Shape], sent: object) -> None:
    result = outcome(shape, sent)
    if isinstance(result, ServiceError):
        assert result.status == 400
        assert 0 < len(result.message) <= 4200
        assert result.message.isprintable()
    else:
        assert parse(shape, result.to_wire()) == result


@given(st.dictionaries(st.sampled_from(sorted(ProductionVariant.model_fields)), documents, max_size=6))
def test_any_variant_is_parsed_or_refused(variant: dict[str, Any]) -> None:
    result = outcome(CreateEndpointConfigInput, config(**variant))
    assert isinstance(result, Shape) or (result.status == 400 and result.message.isprintable())
