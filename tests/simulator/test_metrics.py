import pytest

from simulator.calibration import LAPTOP
from simulator.engine import Engine
from simulator.metrics import Histogram, Metrics


def values(text: str) -> dict[str, float]:
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"}


def test_a_histogram_counts_up_to_and_including_each_bound() -> None:
    histogram = Histogram("h", "About.", (0.1, 1.0))
    for value in (0.1, 0.5, 7.0):
        histogram.observe(value)
    assert list(histogram.lines('a="b"')) == [
        "# HELP h About.",
        "# TYPE h histogram",
        'h_bucket{le="0.1",a="b"} 1',
        'h_bucket{le="1.0",a="b"} 2',
        'h_bucket{le="+Inf",a="b"} 3',
        'h_count{a="b"} 3',
        'h_sum{a="b"} 7.6',
    ]


def test_the_page_has_vllms_names_and_the_engines_figures() -> None:
    engine, metrics = Engine(LAPTOP), Metrics("m", speed=10.0)
    for number in range(2):
        engine.submit(number, [1, 2, 3, 4], 64, 3, float(number))
        while (at := engine.next_change_at()) is not None:
            for event in engine.advance(at):
                metrics.observe(event, "length")
    engine.submit("running", [], 100, 50, 2.0)
    engine.submit("waiting", [], 100, 50, 2.0)
    engine.next_change_at()
    metrics.observe_abort()
    found = values(metrics.render(engine))
    label = '{engine="0",model_name="m"}'
    assert found[f"vllm:prefix_cache_queries_total{label}"] == 328
    assert found[f"vllm:prefix_cache_hits_total{label}"] == 48
    assert found[f"vllm:num_requests_running{label}"] == 2
    assert found[f"vllm:num_requests_waiting{label}"] == 0
    assert found[f"vllm:kv_cache_usage_perc{label}"] == 14 / LAPTOP.kv_blocks
    assert found[f"vllm:prompt_tokens_total{label}"] == 128
    assert found[f"vllm:generation_tokens_total{label}"] == 6
    assert found[f"vllm:num_preemptions_total{label}"] == 0
    assert found['vllm:request_success_total{engine="0",model_name="m",finished_reason="length"}'] == 2
    assert found['vllm:request_success_total{engine="0",model_name="m",finished_reason="abort"}'] == 1
    assert found[f"vllm:time_to_first_token_seconds_count{label}"] == 2
    cold, warm = 0.0102 + 64 / 7200, 0.0102 + 16 / 7200
    assert found[f"vllm:time_to_first_token_seconds_sum{label}"] == pytest.approx((cold + warm) / 10)
    assert found[f"vllm:e2e_request_latency_seconds_sum{label}"] == pytest.approx((cold + warm + 4 * 0.0102) / 10)
    assert found[f"vllm:request_time_per_output_token_seconds_sum{label}"] == pytest.approx(2 * 0.00102)
    assert found[f"vllm:request_queue_time_seconds_count{label}"] == 2
    assert found[f"vllm:request_prefill_time_seconds_sum{label}"] == pytest.approx((cold + warm) / 10)
    assert found[f"vllm:request_decode_time_seconds_sum{label}"] == pytest.approx(4 * 0.0102 / 10)
    assert found[f"vllm:request_inference_time_seconds_sum{label}"] == pytest.approx((cold + warm + 4 * 0.0102) / 10)
    assert found[f"vllm:request_prompt_tokens_sum{label}"] == 128
    assert found['vllm:request_prompt_tokens_bucket{le="50.0",engine="0",model_name="m"}'] == 0
    assert found['vllm:request_prompt_tokens_bucket{le="100.0",engine="0",model_name="m"}'] == 2
    assert found[f"vllm:request_generation_tokens_sum{label}"] == 6
    config = f'block_size="16",num_gpu_blocks="{LAPTOP.kv_blocks}",enable_prefix_caching="True",engine="0"'
    assert found[f"vllm:cache_config_info{{{config}}}"] == 1


def test_label_values_are_escaped() -> None:
    assert r'model_name="a\"b\\c"' in Metrics('a"b\\c', 1.0).render(Engine(LAPTOP))
