"""``/metrics`` in Prometheus text, under the names, labels and buckets of vLLM's V1 engine.

Times are those a client of this host sees: the engine's divided by the speed.
"""

from bisect import bisect_left
from collections.abc import Iterator

from simulator.calibration import BLOCK_TOKENS
from simulator.engine import Engine
from simulator.request import Event, Kind, Request

# vLLM, vllm/v1/metrics/loggers.py.
TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
TPOT_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
LATENCY_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
TOKEN_BUCKETS = (*(float(step * 10**power) for power in range(5) for step in (1, 2, 5)), 100_000.0)


class Histogram:
    """Observations counted by upper bounds."""

    def __init__(self, name: str, about: str, bounds: tuple[float, ...]) -> None:
        self.name = name
        self.about = about
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, labels: str) -> Iterator[str]:
        """Return the lines of the text format."""
        yield from _head(self.name, "histogram", self.about)
        below = 0
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            below += count
            yield f'{self.name}_bucket{{le="{bound}",{labels}}} {below}'
        yield f"{self.name}_count{{{labels}}} {below}"
        yield f"{self.name}_sum{{{labels}}} {self.total}"


class Metrics:
    """What one host reports; fed with the engine's events."""

    def __init__(self, model: str, speed: float) -> None:
        escaped = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        self._labels = f'engine="0",model_name="{escaped}"'
        self._speed = speed
        self._success: dict[str, int] = {"stop": 0, "length": 0, "abort": 0}
        self._ttft = Histogram("vllm:time_to_first_token_seconds", "Time to first token.", TTFT_BUCKETS)
        self._tpot = Histogram(
            "vllm:request_time_per_output_token_seconds", "Mean time per output token of a request.", TPOT_BUCKETS
        )
        self._e2e = Histogram("vllm:e2e_request_latency_seconds", "Whole request.", LATENCY_BUCKETS)
        self._queue = Histogram("vllm:request_queue_time_seconds", "Time in the waiting queue.", LATENCY_BUCKETS)
        self._inference = Histogram("vllm:request_inference_time_seconds", "Time in the batch.", LATENCY_BUCKETS)
        self._prefill = Histogram("vllm:request_prefill_time_seconds", "Of it, until the first token.", LATENCY_BUCKETS)
        self._decode = Histogram("vllm:request_decode_time_seconds", "Of it, the rest.", LATENCY_BUCKETS)
        self._prompt = Histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", TOKEN_BUCKETS)
        self._generation = Histogram("vllm:request_generation_tokens", "Tokens of an answer.", TOKEN_BUCKETS)

    def observe(self, event: Event, finish_reason: str) -> None:
        """Count one event of a request that ends with ``finish_reason``."""
        request = event.request
        if event.kind is Kind.FIRST_TOKEN:
            self._ttft.observe((event.at - request.submitted_at) / self._speed)
        elif event.kind is Kind.FINISHED:
            self._success[finish_reason] += 1
            self._finished(request, event.at)

    def observe_abort(self) -> None:
        """Count a request whose client left."""
        self._success["abort"] += 1

    def render(self, engine: Engine) -> str:
        """Return the whole page."""
        labels = self._labels
        lines: list[str] = []
        for name, kind, about, value in _engine_values(engine):
            lines += [*_head(name, kind, about), f"{name}{{{labels}}} {value}"]
        name = "vllm:request_success_total"
        lines += _head(name, "counter", "Requests that ended, by reason.")
        lines += [f'{name}{{{labels},finished_reason="{reason}"}} {count}' for reason, count in self._success.items()]
        for histogram in (self._ttft, self._tpot, self._e2e, self._queue, self._inference, self._prefill, self._decode,
                          self._prompt, self._generation):  # fmt: skip
            lines += histogram.lines(labels)
        name = "vllm:cache_config_info"
        lines += _head(name, "gauge", "The KV cache, in blocks of so many tokens.")
        cache = f'block_size="{BLOCK_TOKENS}",num_gpu_blocks="{engine.profile.kv_blocks}",enable_prefix_caching="True"'
        lines.append(f'{name}{{{cache},engine="0"}} 1')
        return "\n".join(lines) + "\n"

    def _finished(self, request: Request, at: float) -> None:
        assert request.admitted_at is not None, "finished without being admitted"
        assert request.first_token_at is not None, "finished without a token"
        for histogram, seconds in (
            (self._e2e, at - request.submitted_at),
            (self._queue, request.admitted_at - request.submitted_at),
            (self._inference, at - request.admitted_at),
            (self._prefill, request.first_token_at - request.admitted_at),
            (self._decode, at - request.first_token_at),
        ):
            histogram.observe(seconds / self._speed)
        self._prompt.observe(request.prompt_tokens)
        self._generation.observe(request.output_tokens)
        if request.output_tokens > 1:
            self._tpot.observe((at - request.first_token_at) / (request.output_tokens - 1) / self._speed)


def _engine_values(engine: Engine) -> Iterator[tuple[str, str, str, float]]:
    counters = engine.counters
    yield "vllm:num_requests_running", "gauge", "Requests in the batch.", engine.running
    yield "vllm:num_requests_waiting", "gauge", "Requests waiting to be processed.", engine.waiting
    yield "vllm:kv_cache_usage_perc", "gauge", "KV cache in use by requests; 1 means all of it.", engine.cache.usage
    yield "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", counters.prefix_cache_queries
    yield "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the cache.", counters.prefix_cache_hits
    yield "vllm:num_preemptions_total", "counter", "Preemptions.", counters.preemptions
    yield "vllm:prompt_tokens_total", "counter", "Prompt tokens processed, cached ones too.", counters.prompt_tokens
    yield "vllm:generation_tokens_total", "counter", "Tokens generated.", counters.generation_tokens


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
