"""A real host over real sockets, with the official openai client and a plain HTTP client as judges."""

import asyncio
import http.client
import json
import time

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from simulator.calibration import LAPTOP
from simulator.engine import Engine
from simulator.generation import plan
from simulator.tokens import render_chat
from tests.simulator.conftest import StartHost
from tests.waiting import wait_until_async

POLICY = "Be kind and answer in full sentences. " * 110  # a bit over 1,000 tokens


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def chat(question: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "system", "content": POLICY}, {"role": "user", "content": question}]


async def call(
    url: str, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    def exchange() -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    return await asyncio.to_thread(exchange)


async def metric(url: str, name: str) -> float:
    _, _, page = await call(url, "GET", "/metrics")
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.decode().splitlines() if line.startswith(name + "{"))


async def test_the_container_contract(start_host: StartHost) -> None:
    url = await start_host()
    for path in ("/ping", "/health"):
        status, headers, body = await call(url, "GET", path)
        assert (status, body, headers["x-simulated-host"]) == (200, b"", "host-1")
    status, headers, body = await call(
        url, "POST", "/invocations", b'{"inputs":"hi","parameters":{"max_new_tokens":9}}'
    )
    answer = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert (answer["host"], answer["finish_reason"]) == ("host-1", "length")
    assert len(answer["generated_text"]) == 36
    assert answer["usage"] == {
        "prompt_tokens": 1,
        "completion_tokens": 9,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_native_streams_add_up_to_the_whole(start_host: StartHost) -> None:
    url = await start_host(speed=20)
    for body, headers in [
        (b"raw prompt", {"Accept": "text/event-stream"}),
        (b'{"inputs": "raw prompt", "stream": true}', {}),
    ]:
        status, answered, raw = await call(url, "POST", "/invocations", body, headers)
        assert (status, answered["content-type"]) == (200, "text/event-stream; charset=utf-8")
        events = [json.loads(line.removeprefix(b"data: ")) for line in raw.split(b"\n\n") if line]
        assert "".join(event["token"]["text"] for event in events[:-1]) == events[-1]["generated_text"]
        assert events[-1]["usage"]["completion_tokens"] == 64


async def test_messages_to_invocations_answer_as_the_chat_route(start_host: StartHost) -> None:
    url = await start_host(speed=20)
    body = json.dumps({"messages": chat("Hello?"), "max_tokens": 4}).encode()
    answers = [
        json.loads((await call(url, "POST", path, body))[2]) for path in ("/invocations", "/v1/chat/completions")
    ]
    assert answers[0]["choices"] == answers[1]["choices"]


async def test_openai_completion(start_host: StartHost) -> None:
    async with client(await start_host()) as openai_client:
        answer = await openai_client.chat.completions.create(model="my-endpoint", messages=chat("Hello?"), max_tokens=5)
        again = await openai_client.chat.completions.create(model="my-endpoint", messages=chat("Hello?"), max_tokens=5)
    assert (answer.model, answer.system_fingerprint, answer.object) == ("my-endpoint", "host-1", "chat.completion")
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == again.choices[0].message.content
    assert answer.id != again.id
    assert answer.usage is not None
    assert again.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert again.usage.prompt_tokens_details is not None
    assert answer.usage.completion_tokens == 5
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    # All but the block that holds the last token, which is always computed.
    assert again.usage.prompt_tokens_details.cached_tokens == (answer.usage.prompt_tokens - 1) // 16 * 16


async def test_openai_stream(start_host: StartHost) -> None:
    async with client(await start_host()) as openai_client:
        stream = await openai_client.chat.completions.create(
            model="", messages=chat("Hello?"), max_tokens=6, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        whole = await openai_client.chat.completions.create(model="", messages=chat("Hello?"), max_tokens=6)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert {chunk.model for chunk in chunks} == {"simulated"}
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-2].choices[0].finish_reason == "length"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content


async def test_a_conversation_finds_its_own_answer(start_host: StartHost) -> None:
    async with client(await start_host(speed=20)) as openai_client:
        first = await openai_client.chat.completions.create(model="m", messages=chat("Hello?"), max_tokens=160)
        turn: list[ChatCompletionMessageParam] = [
            *chat("Hello?"),
            {"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "And then?"},
        ]
        second = await openai_client.chat.completions.create(model="m", messages=turn, max_tokens=1)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens == (first.usage.total_tokens - 1) // 16 * 16


async def test_openai_errors(start_host: StartHost) -> None:
    async with client(await start_host()) as openai_client:
        with pytest.raises(openai.BadRequestError) as caught:
            await openai_client.chat.completions.create(model="m", messages=chat("Hello?"), n=2)
        assert (caught.value.type, caught.value.param) == ("invalid_request_error", "n")
        with pytest.raises(openai.BadRequestError, match="at most 32768 tokens") as caught:
            await openai_client.chat.completions.create(model="m", messages=chat("Hello?"), max_tokens=32_000)
        assert caught.value.code == "context_length_exceeded"


async def test_models(start_host: StartHost) -> None:
    async with client(await start_host(model="llama")) as openai_client:
        models = await openai_client.models.list()
    assert [model.id for model in models.data] == ["llama"]


async def test_metrics_show_the_hit_rate(start_host: StartHost) -> None:
    url = await start_host(speed=20)
    body = json.dumps({"messages": chat("Hello?"), "max_tokens": 2}).encode()
    hits = []
    for _ in range(3):
        await call(url, "POST", "/v1/chat/completions", body)
        hits.append(await metric(url, "vllm:prefix_cache_hits_total"))
    assert hits[0] == 0 < hits[1]
    assert hits[2] == 2 * hits[1]
    assert await metric(url, "vllm:prefix_cache_queries_total") == await metric(url, "vllm:prompt_tokens_total")
    assert await metric(url, "vllm:request_success_total") == 3
    assert await metric(url, "vllm:time_to_first_token_seconds_count") == 3


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_engine(start_host: StartHost, stream: bool) -> None:
    url = await start_host()
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"messages": chat("Hello?"), "max_tokens": 20_000, "stream": stream}).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    async def running(count: int) -> bool:
        return await metric(url, "vllm:num_requests_running") == count

    if stream:
        assert b"assistant" in await reader.readuntil(b'"delta":{"role":"assistant","content":""}')
    await wait_until_async(lambda: running(1))
    writer.close()
    await wait_until_async(lambda: running(0))
    assert await metric(url, "vllm:kv_cache_usage_perc") == 0
    assert (
        await metric(url, 'vllm:request_success_total{engine="0",model_name="simulated",finished_reason="abort"}') >= 0
    )
    _, _, page = await call(url, "GET", "/metrics")
    assert b'finished_reason="abort"} 1' in page


async def ttft(openai_client: openai.AsyncOpenAI, salt: str) -> float:
    start = time.perf_counter()
    stream = await openai_client.chat.completions.create(
        model="m", messages=chat("Hello?"), max_tokens=2, stream=True, extra_body={"cache_salt": salt}
    )
    arrived = [time.perf_counter() - start async for chunk in stream if chunk.choices[0].delta.content]
    return arrived[0]


def virtual_ttfts(salts: list[str]) -> list[float]:
    engine, found = Engine(LAPTOP), []
    prompt = render_chat([dict(message) for message in chat("Hello?")])
    for number, salt in enumerate(salts):
        generation = plan(prompt, context_tokens=LAPTOP.context_tokens, max_tokens=2, default_tokens=1, salt=salt)
        request = engine.submit(number, generation.blocks, generation.prompt_tokens, 2, float(number))
        engine.advance(number + 0.9)
        assert request.first_token_at is not None
        found.append(request.first_token_at - request.submitted_at)
    return found


async def test_sockets_and_virtual_time_agree(start_host: StartHost) -> None:
    """Real time adds only what the machine is busy with otherwise, so the best of a few must be close."""
    salts = ["a", "b", "c", "a", "b", "c"]
    virtual = virtual_ttfts(salts)
    async with client(await start_host()) as openai_client:
        await openai_client.models.list()  # opens the connection, which is not measured
        real = [await ttft(openai_client, salt) for salt in salts]
    for cold_or_warm in (slice(0, 3), slice(3, 6)):
        expected = virtual[cold_or_warm][0]
        assert virtual[cold_or_warm] == pytest.approx([expected] * 3)
        assert 0.99 * expected <= min(real[cold_or_warm]) < 2 * expected + 0.1
    assert virtual[0] > 8 * virtual[3]
    assert min(real[:3]) > min(real[3:])


async def test_ten_thousand_small_steps_do_not_hold_up_the_server(start_host: StartHost) -> None:
    url = await start_host(speed=1000)
    body = json.dumps({"messages": chat("Hello?"), "max_tokens": 10_000}).encode()
    answers = await asyncio.gather(*(call(url, "POST", "/v1/chat/completions", body) for _ in range(3)))
    assert [json.loads(answer[2])["usage"]["completion_tokens"] for answer in answers] == [10_000] * 3


async def test_other_paths_and_methods(start_host: StartHost) -> None:
    url = await start_host()
    assert (await call(url, "GET", "/nothing"))[0] == 404
    assert (await call(url, "GET", "/invocations"))[0] == 405


async def test_a_client_that_leaves_while_sending_is_no_error(
    start_host: StartHost, caplog: pytest.LogCaptureFixture
) -> None:
    url = await start_host()
    host, port = url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /invocations HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await call(url, "GET", "/ping"))[0] == 200
    assert caplog.records == []
