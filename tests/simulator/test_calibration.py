from dataclasses import replace

import pytest

from simulator.calibration import LAPTOP, LLAMA_3_1_70B_8XH100, PROFILES, Profile
from simulator.engine import Engine

# Output tokens per second that NVIDIA publishes for Llama 3.1 70B in FP16 on 8 x H100 80GB HBM3, tensor parallelism 8
# (TensorRT-LLM 0.14.0, docs/source/performance/perf-overview.md), with the number of requests of its method:
# prompt tokens, output tokens, requests, published figure.
PUBLISHED = [
    (128, 128, 30_000, 10_649.4968),
    (128, 2048, 3_000, 7_605.5295),
    (128, 4096, 1_500, 4_981.9765),
    (500, 2000, 3_000, 6_205.2658),
    (1000, 1000, 3_000, 5_978.4573),
    (2048, 128, 3_000, 1_316.3086),
    (2048, 2048, 1_500, 4_023.6978),
    (5000, 500, 1_500, 1_420.5163),
]


def throughput(profile: Profile, prompt_tokens: int, output_tokens: int, requests: int) -> float:
    engine = Engine(profile)
    for number in range(requests):
        engine.submit(number, [], prompt_tokens, output_tokens, 0.0)
    end = 0.0
    while (at := engine.next_change_at()) is not None:
        engine.advance(end := at)
    return requests * output_tokens / end


def test_the_70b_profile_reproduces_the_published_throughputs() -> None:
    misses = [
        throughput(LLAMA_3_1_70B_8XH100, prompt, output, requests) / published - 1
        for prompt, output, requests, published in PUBLISHED
    ]
    assert max(map(abs, misses)) < 0.12
    assert sum(map(abs, misses)) / len(misses) < 0.06


def test_a_cold_prompt_of_the_announcement_is_close_to_the_top_of_its_range() -> None:
    engine = Engine(LLAMA_3_1_70B_8XH100)
    blocks = list(range(500))
    cold = engine.submit("cold", blocks, 8000, 1, 0.0)
    engine.advance(1.0)
    warm = engine.submit("warm", blocks, 8250, 1, 1.0)
    engine.advance(2.0)
    assert cold.first_token_at == pytest.approx(0.286, abs=0.001)
    assert warm.first_token_at == pytest.approx(1.020, abs=0.001)


def test_profiles_are_found_by_their_own_name() -> None:
    assert PROFILES == {"laptop": LAPTOP, "llama-3.1-70b-8xh100": LLAMA_3_1_70B_8XH100}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_blocks": 0}, "kv_blocks must be a whole number of at least 1, not 0"),
        ({"max_sequences": 1.5}, "max_sequences must be a whole number of at least 1, not 1.5"),
        ({"sequence_seconds": -0.1}, "sequence_seconds must be a number that is not negative, not -0.1"),
        ({"step_seconds": float("inf")}, "step_seconds must be a number that is not negative, not inf"),
        ({"step_seconds": 0.0}, "step_seconds must be above 0"),
        ({"token_budget": 10}, r"token_budget \(10\) must be at least max_sequences \(64\)"),
    ],
)
def test_impossible_engines_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(LAPTOP, **change)  # type: ignore[arg-type]


def test_the_context_is_what_the_cache_holds_if_that_is_less() -> None:
    assert LAPTOP.context_tokens == 32_768
    assert replace(LAPTOP, kv_blocks=10).context_tokens == 160
