"""The OpenAI-compatible routes: the openai client as judge, bodies untouched, errors in OpenAI's envelope."""

import json
from typing import Any

import httpx
import openai
import pytest

from tests.dataplane_e2e.stage import Deployed, Fleet, chat, chat_body, error_of, openai_client
from tests.fakes.answers import Answer, chunk_event, json_answer, sse
from tests.fakes.data_plane import DataPlane

EXACT = (
    b'{"model":"%s","seed":9007199254740993123,"temperature":0.10000000000000000555,"x":{"b":1,"a":2,"a":3},\n'
    b'  "messages":[{"role":"user","content":"\\u00e9 \\/ / \\ud83d\\ude00 \xc3\xa9"}], "cache_salt":"s" , "n":1e2}\n'
)
MESSAGES: Any = [{"role": "user", "content": "hi"}]


def targets(deployed: Deployed) -> list[tuple[str, str]]:
    """Return (path, model) of each spelling of the chat route."""
    return [(deployed.chat, ""), ("/v1/chat/completions", deployed.name)]


@pytest.mark.parametrize("is_endpoint_in_path", [True, False])
def test_the_openai_client_chats_and_streams(plane: DataPlane, fleet: Fleet, is_endpoint_in_path: bool) -> None:
    """On AWS's base URL with an empty model, and on the plain one with the endpoint as model."""
    deployed = fleet.deploy(3)
    base = f"{plane.url}/endpoints/{deployed.name}/openai/v1" if is_endpoint_in_path else f"{plane.url}/v1"
    model = "" if is_endpoint_in_path else deployed.name
    with openai_client(base) as client:
        whole = client.chat.completions.create(model=model, messages=MESSAGES, prompt_cache_key="t1")
        parts = list(client.chat.completions.create(model=model, messages=MESSAGES, stream=True, prompt_cache_key="t1"))
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    assert whole.choices[0].message.content == text
    (host,) = (host for host in deployed.hosts if host.deliveries)
    assert text == f"Hello from {host.name}"
    for delivery in host.deliveries:
        assert delivery.target == "/v1/chat/completions"
        assert delivery.header("authorization") is None
        assert json.loads(delivery.body)["prompt_cache_key"] == "t1"


def test_the_body_passes_byte_for_byte(plane: DataPlane, fleet: Fleet) -> None:
    """Big integers, float text, escapes, repeated members, order and unknown members included."""
    deployed = fleet.deploy(2)
    with plane.client() as client:
        for target, model in targets(deployed):
            body = EXACT % model.encode()
            assert client.request(target, body, [("Content-Type", "application/json; x=1")]).status == 200
            found = [host.bodies for host in deployed.hosts if host.bodies]
            assert found == [[body]]
            for host in deployed.hosts:
                host.clear()


def test_model_passes_untouched_where_the_path_names_the_endpoint(plane: DataPlane, fleet: Fleet) -> None:
    """Whatever it is, or absent."""
    deployed = fleet.deploy(1)
    bodies = [json.dumps({"messages": [], "model": model}).encode() for model in ("does-not-exist", "", 5, None, " e ")]
    bodies.append(b'{"messages":[]}')
    with plane.client() as client:
        for body in bodies:
            assert client.request(deployed.chat, body).status == 200
    assert deployed.hosts[0].bodies == bodies


@pytest.mark.parametrize("change", ["does-not-exist", "", "{} ", "{upper}"])
def test_an_unknown_model_is_not_found(plane: DataPlane, fleet: Fleet, change: str) -> None:
    """404 where the model names the endpoint; spaces and letter case count; nothing reaches a host."""
    deployed = fleet.deploy(1)
    model = change.format(deployed.name, upper=deployed.name.upper())
    with openai_client(f"{plane.url}/v1") as client, pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model=model, messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    assert deployed.delivered == 0


@pytest.mark.parametrize("model", ["5", "null", "[]", "{}", "true"])
def test_a_model_that_is_no_string_is_refused(plane: DataPlane, fleet: Fleet, model: str) -> None:
    """400 that names the member."""
    fleet.deploy(1)
    with plane.client() as client:
        answer = client.request("/v1/chat/completions", b'{"model":%b,"messages":[]}' % model.encode())
        absent = client.request("/v1/chat/completions", b'{"messages":[]}')
    for found in (answer, absent):
        assert found.status == 400
        assert error_of(found)["param"] == "model"


def test_an_unknown_endpoint_in_the_path_has_awss_words(plane: DataPlane, fleet: Fleet) -> None:
    """As measured on AWS."""
    fleet.deploy(1)
    base = f"{plane.url}/endpoints/nope/openai/v1"
    with openai_client(base) as client, pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="", messages=MESSAGES)
    assert caught.value.code == "validation_error"
    assert caught.value.type == "invalid_request_error"
    assert "Endpoint nope of account 000000000000 not found." in str(caught.value)


NOT_OBJECTS = [b"null", b"[]", b'"x"', b"5", b"", b"{", b"true", b"{}}", b'{"messages":[]} x', b"[" * 5_000]


@pytest.mark.parametrize("body", [*NOT_OBJECTS, '{"messages":[]}'.encode("utf-16"), b'{"messages":["\xff"]}'])
def test_bodies_that_are_no_json_object_are_refused(plane: DataPlane, fleet: Fleet, body: bytes) -> None:
    """400 in the envelope, also when a stream was wanted; nothing is sent on."""
    deployed = fleet.deploy(2)
    with plane.client() as client:
        for target, _ in targets(deployed):
            answer = client.request(target, body, [("Accept", "text/event-stream")])
            assert answer.status == 400
            assert error_of(answer)["type"] == "invalid_request_error"
    assert deployed.delivered == 0


@pytest.mark.parametrize("messages", ["{}", '"x"', "5", "null", "true"])
def test_messages_must_be_a_list(plane: DataPlane, fleet: Fleet, messages: str) -> None:
    deployed = fleet.deploy(1)
    with plane.client() as client:
        for target, model in targets(deployed):
            members = f'"model":"{model}","stream":true'
            for body in (f'{{{members},"messages":{messages}}}', f"{{{members}}}"):
                answer = client.request(target, body.encode())
                assert answer.status == 400
                assert error_of(answer)["param"] == "messages"
    assert deployed.delivered == 0


def test_a_body_with_a_byte_order_mark_is_routed_as_without(plane: DataPlane, fleet: Fleet) -> None:
    """The mark is absent for routing and forwarded."""
    deployed = fleet.deploy(4)
    with plane.client() as client:
        for number in range(8):
            body = chat_body(f"question {number}")
            assert chat(client, deployed, body) == chat(client, deployed, b"\xef\xbb\xbf" + body)
    bodies = [body for host in deployed.hosts for body in host.bodies]
    assert sum(body.startswith(b"\xef\xbb\xbf") for body in bodies) == 8


ODD_MESSAGES: list[Any] = [
    [{"role": "developer", "content": "d"}, {"role": "user", "content": ""}],
    [{"role": "user", "content": []}],
    [{"role": "user", "name": "n", "content": "x", "extra": {"a": [1, {"b": None}]}}],
    [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {"role": "user", "content": "go on"},
    ],
    [{"role": "assistant", "tool_calls": []}],
    [{"role": "user", "content": [{"type": "text"}, {"type": "text", "text": None}, {"type": "input_audio"}, {}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}, "plain", 5, None]}],
    [{"role": "user", "content": {"text": "x"}}, {"role": "user", "content": 5}, "x", None, 5, []],
    [],
]


@pytest.mark.parametrize("messages", ODD_MESSAGES, ids=range(len(ODD_MESSAGES)))
def test_odd_messages_are_the_hosts_to_judge(plane: DataPlane, fleet: Fleet, messages: Any) -> None:
    """Forwarded unchanged, never refused here."""
    deployed = fleet.deploy(2)
    with plane.client() as client:
        for target, model in targets(deployed):
            body = json.dumps({"model": model, "messages": messages, "unknown": [{}]}).encode()
            assert client.request(target, body).status == 200
            assert body in [body for host in deployed.hosts for body in host.bodies]


def test_tool_turns_stay_at_home(plane: DataPlane, fleet: Fleet) -> None:
    """20 conversations that grow after PrefixLength characters, with tool calls that have no content."""
    deployed = fleet.deploy(4)
    tool_turn = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ]
    with plane.client() as client:
        for number in range(20):
            messages: list[Any] = [{"role": "system", "content": f"{number} " * 600}]
            found = set()
            for turn in range(4):
                messages.append({"role": "user", "content": f"turn {turn}"})
                found.add(chat(client, deployed, json.dumps({"messages": messages}).encode()))
                messages += tool_turn
            assert len(found) == 1


@pytest.mark.parametrize("stream", ['"true"', "1", "null", "[]", None])
def test_the_answer_decides_how_it_is_relayed(plane: DataPlane, fleet: Fleet, stream: str | None) -> None:
    """Odd values of ``stream`` do no harm; a stream that was not asked for passes as it comes."""
    deployed = fleet.deploy(1)
    member = b"" if stream is None else b',"stream":' + stream.encode()
    body = b'{"messages":[]%b}' % member
    deployed.hosts[0].queue += [json_answer({"a": 1}), sse(b"data: 1\n\n", b"data: [DONE]\n\n")]
    with plane.client() as client:
        plain = client.request(deployed.chat, body)
        assert (plain.status, plain.header("content-type"), plain.body) == (200, "application/json", b'{"a": 1}')
        events = client.request(deployed.chat, body)
        assert (events.status, events.header("content-type")) == (200, "text/event-stream")
        assert events.body == b"data: 1\n\ndata: [DONE]\n\n"
    assert deployed.hosts[0].bodies == [body] * 2


def test_a_usage_chunk_without_choices_passes(plane: DataPlane, fleet: Fleet) -> None:
    """And nobody who did not ask for it makes the host send one."""
    deployed = fleet.deploy(1)
    common = {"id": "1", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    deployed.hosts[0].queue.append(
        sse(
            chunk_event({**common, "choices": [{"index": 0, "delta": {"content": "x"}}]}),
            chunk_event({**common, "choices": [], "usage": usage}),
            b"data: [DONE]\n\n",
        )
    )
    with openai_client(f"{plane.url}/endpoints/{deployed.name}/openai/v1") as client:
        create = client.chat.completions.create
        parts = list(create(model="", messages=MESSAGES, stream=True, stream_options={"include_usage": True}))
        list(create(model="", messages=MESSAGES, stream=True))
    assert parts[-1].choices == []
    assert parts[-1].usage is not None
    assert parts[-1].usage.total_tokens == 2
    assert [("stream_options" in json.loads(body)) for body in deployed.hosts[0].bodies] == [True, False]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, openai.BadRequestError), (429, openai.RateLimitError), (500, openai.InternalServerError)],
)
def test_host_errors_pass_through(plane: DataPlane, fleet: Fleet, status: int, kind: type[openai.APIError]) -> None:
    """Status and body as the host sent them."""
    deployed = fleet.deploy(1)
    content = {"error": {"message": "said the host", "type": "t", "param": None, "code": "c"}}
    deployed.hosts[0].answer = json_answer(content, status=status)
    with openai_client(f"{plane.url}/v1") as client:
        for stream in (False, True):
            with pytest.raises(kind, match="said the host") as caught:
                client.chat.completions.create(model=deployed.name, messages=MESSAGES, stream=stream)
            assert isinstance(caught.value, openai.APIStatusError)
            assert caught.value.response.json() == content
    assert deployed.delivered == 2


def test_no_host_at_all_is_service_unavailable(plane: DataPlane, fleet: Fleet) -> None:
    """Quickly, with words, in each API's form."""
    deployed = fleet.deploy(2)
    for host in deployed.hosts:
        host.die()
    with plane.client() as client:
        for target, model in targets(deployed):
            for stream in (False, True):
                answer = client.request(target, chat_body("x", model=model, stream=stream))
                assert answer.status == 503
                error_of(answer)


def test_the_openai_client_shows_messages_of_refusals(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    with openai_client(f"{plane.url}/v1") as client, pytest.raises(openai.BadRequestError, match="messages") as caught:
        client.chat.completions.create(model=deployed.name, messages={})  # type: ignore[call-overload]
    assert caught.value.param == "messages"


def test_the_component_header_is_refused_on_the_chat_route(plane: DataPlane, fleet: Fleet) -> None:
    """Whatever its value."""
    deployed = fleet.deploy(1)
    with plane.client() as client:
        for value in ("ic", ""):
            headers = [("X-Amzn-SageMaker-Inference-Component", value)]
            answer = client.request(deployed.chat, chat_body("x"), headers)
            assert answer.status == 400
            error_of(answer)
    assert deployed.delivered == 0


def test_a_component_in_the_path_is_refused_by_name(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    target = f"/endpoints/{deployed.name}/inference-components/ic1/openai/v1/chat/completions"
    with plane.client() as client:
        answer = client.request(target, chat_body("x"))
    assert answer.status == 400
    error_of(answer)
    assert deployed.delivered == 0


def test_models_lists_each_endpoint_once(plane: DataPlane, fleet: Fleet) -> None:
    """Ids are what ``model`` takes; the official client reads the list."""
    deployed = [fleet.deploy(2), fleet.deploy(1)]
    with openai_client(f"{plane.url}/v1") as client:
        found = [model for model in client.models.list() if model.id in {one.name for one in deployed}]
        assert sorted(model.id for model in found) == sorted(one.name for one in deployed)
        assert {model.created for model in found} == {1_790_000_000}
        assert client.chat.completions.create(model=found[0].id, messages=MESSAGES).choices
    content = httpx.get(f"{plane.url}/v1/models").json()
    assert content["object"] == "list"
    assert {item["object"] for item in content["data"]} == {"model"}


def test_answers_without_a_type_or_with_a_text_type_pass(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    deployed.hosts[0].queue += [Answer(body=b"x", headers=()), Answer(body=b"y", headers=(("Content-Type", "text/x"),))]
    with plane.client() as client:
        first, second = (client.request(deployed.chat, chat_body("x")) for _ in range(2))
    assert (first.body, second.body, second.header("content-type")) == (b"x", b"y", "text/x")
