"""What an engine can do: step times, batch limits and KV capacity, with the source of every figure.

A step takes ``step + prompt tokens * prefill_token + sequences * sequence + cached tokens read * context_token``.
"""

import math
from dataclasses import dataclass, fields

BLOCK_TOKENS = 16
"""Tokens in a KV block: vLLM's default ``block_size`` on CUDA."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of model host. All times in seconds."""

    name: str
    step_seconds: float
    """Every step: weights read once, kernels launched, schedule made. > 0."""
    prefill_token_seconds: float
    """Each prompt token that is computed (not found in the cache). > 0."""
    sequence_seconds: float
    """Each sequence in the step. >= 0."""
    context_token_seconds: float
    """Each token of KV that a generating sequence reads in the step. >= 0."""
    token_budget: int
    """Tokens computed in one step at most; longer prompts are cut into chunks. At least max_sequences."""
    max_sequences: int
    """Sequences in the running batch at most. >= 1."""
    kv_blocks: int
    """Blocks of 16 tokens in the KV cache. >= 1."""
    model_tokens: int
    """Longest prompt plus answer that the model takes, in tokens. >= 2."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, str):
                continue
            whole = item.type is int
            lowest = 1 if whole else 0
            if not math.isfinite(value) or value < lowest or (whole and value != int(value)):
                kind = "a whole number of at least 1" if whole else "a number that is not negative"
                raise ValueError(f"{item.name} must be {kind}, not {value}")
        for name in ("step_seconds", "prefill_token_seconds"):
            if getattr(self, name) == 0:
                raise ValueError(f"{name} must be above 0: an engine that takes no time has no batches")
        if self.token_budget < self.max_sequences:
            raise ValueError(
                f"token_budget ({self.token_budget}) must be at least max_sequences ({self.max_sequences}): "
                "each running sequence computes one token a step"
            )

    @property
    def context_tokens(self) -> int:
        """Longest prompt plus answer that this host takes: the model's limit, or what the KV cache holds."""
        return min(self.model_tokens, self.kv_blocks * BLOCK_TOKENS)


def _h100_kv_blocks() -> int:
    memory = 8 * 81_559 * 2**20  # what nvidia-smi reports for an H100 80GB HBM3, in MiB, times 8
    usable = 0.9 * memory  # vLLM's default gpu_memory_utilization
    weights = 70.6e9 * 2  # parameters of Llama 3.1 70B (its model card) in BF16
    activations = 8 * 3 * 2**30  # assumption: 3 GiB a GPU for activations and CUDA graphs
    token = 2 * 80 * 8 * 128 * 2  # K and V, layers, KV heads, head size, bytes: the model's config.json
    return int((usable - weights - activations) / token) // BLOCK_TOKENS


LLAMA_3_1_70B_8XH100 = Profile(
    name="llama-3.1-70b-8xh100",
    step_seconds=0.011,
    prefill_token_seconds=34.4e-6,
    sequence_seconds=42e-6,
    context_token_seconds=49e-9,
    token_budget=8192,
    max_sequences=1024,
    kv_blocks=_h100_kv_blocks(),
    model_tokens=131_072,
)
"""Llama 3.1 70B in 16 bit on eight H100 SXM with tensor parallelism 8 (an ml.p5.48xlarge).

- prefill, sequence, context: least squares over the eight FP16 throughputs that NVIDIA publishes for this model on
  8 x H100 (TensorRT-LLM 0.14.0, performance overview, "LLaMA v3.1 70B", TP 8: 128/128 to 5000/500 tokens in/out),
  reproduced by running this engine on the same loads. The engine then misses the eight figures by 6% on average and by
  11% at most; tests/simulator/test_calibration.py repeats it. Context reads run at a quarter of the memory bandwidth.
- step: the least possible is 5.3 ms, 141 GB of weights over 8 x 3.35 TB/s (H100 datasheet). vLLM's public benchmark
  (buildkite vllm/performance-benchmark, build 9515, Llama 3 70B on 4 x H200, batch of 8: 2,077 ms for 128 tokens) takes
  2.2 times that bound on its hardware; assumption: the same ratio here. The fit above depends little on it.
- token budget 8,192, 1,024 sequences: vLLM's defaults for its API server on an H100 (EngineArgs.get_batch_defaults).
- model_tokens: max_position_embeddings in the model's config.json.

Not used for the fit, so a check: the announcement of prefix-aware routing on SageMaker (2026-09-10, 7 x ml.p5.48xlarge,
8,000-token prefixes) gives 63 to 280 ms as the range of its times to first token. A cold prompt of 8,000 tokens on an
idle host takes 286 ms here; a warm one with 250 new tokens 20 ms, without the network, the HTTP server and the
tokenizer, which this model leaves out.
"""

LAPTOP = Profile(
    name="laptop",
    step_seconds=0.010,
    prefill_token_seconds=1 / 7200,
    sequence_seconds=0.0002,
    context_token_seconds=0.0,
    token_budget=2048,
    max_sequences=64,
    kv_blocks=16_384,
    model_tokens=32_768,
)
"""For demos, calibrated to the eye: 1,000 cold tokens take about 150 ms to the first token, the same tokens warm about
11 ms, and an answer runs at almost 100 tokens a second. All figures are choices, none is a measurement."""

PROFILES = {profile.name: profile for profile in (LAPTOP, LLAMA_3_1_70B_8XH100)}
