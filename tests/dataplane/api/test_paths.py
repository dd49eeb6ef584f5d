import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.api.paths import METHODS, Door, is_openai, resolve

KNOWN = {
    b"/v1/chat/completions": (Door.CHAT_BY_MODEL, ""),
    b"/v1/models": (Door.MODELS, ""),
    b"/health/live": (Door.LIVE, ""),
    b"/health/ready": (Door.READY, ""),
    b"/metrics": (Door.METRICS, ""),
    b"/endpoints/my-e/invocations": (Door.INVOKE, "my-e"),
    b"/endpoints/my-e/invocations-response-stream": (Door.INVOKE_STREAM, "my-e"),
    b"/endpoints/my-e/async-invocations": (Door.INVOKE_ASYNC, "my-e"),
    b"/endpoints/my-e/openai/v1/chat/completions": (Door.CHAT, "my-e"),
    b"/endpoints/my-e/inference-components/c1/openai/v1/chat/completions": (Door.CHAT_COMPONENT, "my-e"),
}


@pytest.mark.parametrize("path", KNOWN)
def test_each_path_has_its_door(path: bytes) -> None:
    assert resolve(path) == KNOWN[path]
    assert resolve(path + b"?a=/endpoints/b/invocations") == KNOWN[path], "a query says nothing"


@pytest.mark.parametrize("path", KNOWN)
def test_only_literal_paths_match(path: bytes) -> None:
    """Nothing is decoded, folded or normalised, so what a proxy in front has checked is what is served."""
    for other in (
        path + b"/",
        path + b"/x",
        b"/" + path,
        path.replace(b"/", b"//", 2),
        path.replace(b"/", b"/./", 1),
        b"/x/.." + path,
        path.upper(),
        path.replace(b"e", b"%65", 1),
        path.replace(b"/v1", b"/v%31") if b"/v1" in path else path + b"%20",
        path + b"#f",
        path + b";a=b",
        path[1:],
        b"http://h" + path,
    ):
        assert resolve(other) == (Door.UNKNOWN, ""), other


@given(st.binary(max_size=40) | st.lists(st.sampled_from([*b"/.%?ae"]), max_size=12).map(bytes))
def test_whatever_is_between_the_slashes_is_a_name_that_no_endpoint_has(name: bytes) -> None:
    """Names are looked up as they are; one with anything but letters, digits and hyphens finds nothing."""
    target = b"/endpoints/" + name + b"/invocations"
    door, found = resolve(target)
    if b"/" in name or b"?" in name:
        assert door is Door.UNKNOWN or found == "" or name.startswith(found.encode())
    else:
        assert (door, found) == (Door.INVOKE, name.decode("ascii", "backslashreplace"))


@given(st.binary(max_size=60))
def test_any_target_resolves(target: bytes) -> None:
    door, _ = resolve(b"/" + target)
    assert door in Door
    is_openai(target)


def test_methods_are_get_for_what_only_reads() -> None:
    assert set(METHODS) == {Door.MODELS, Door.LIVE, Door.READY, Door.METRICS}
    assert all(methods == (b"GET", b"HEAD") for methods in METHODS.values())


@pytest.mark.parametrize("path", KNOWN)
def test_errors_on_openai_paths_take_openais_form(path: bytes) -> None:
    assert is_openai(path) == (b"/v1/" in path)
    assert is_openai(b"/v1/embeddings")
    assert not is_openai(b"/endpoints/e/invocations?x=/openai/v1/")
