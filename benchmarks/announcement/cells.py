"""What is run: the announcement's test configurations, and sweeps around them.

The announcement (AWS machine learning blog, 2026-09-10) says: Llama 3.1 70B on 7 ml.p5.48xlarge with vLLM, prefixes of
8,000 tokens for an hour, ShareGPT-like chats for half an hour, native and OpenAI API. What it does not say is read off
its figures or chosen, as told where it stands: n and the turns of a chat by RANDOM's hit rate, the load with the long
context's P90 in view.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from benchmarks.fleet.closed_loop import PREFIX_AWARE, Clients, Plan, Routing
from benchmarks.fleet.conversations import Api, Chats, Documents, Lengths
from benchmarks.fleet.strategies import STRATEGIES
from simulator.calibration import LLAMA_3_1_70B_8XH100

PROFILE = LLAMA_3_1_70B_8XH100
HOSTS = 7
CLIENTS_PER_HOST = 5
"""Chosen: the announcement does not state the load. With its P90 in view: with three or fewer, cold prompts hardly wait
for one another, and P90 is a cold prompt under each strategy. See the sweep."""
OPEN = 4
"""Conversations under way for each client. Chosen: the turns of one are some 15 s apart."""
THRESHOLD = 16
"""Chosen: about three times what is in flight on a host."""


@dataclass(frozen=True, slots=True)
class Context:
    """One of the announcement's two workloads."""

    name: str
    kind: Documents | Chats
    prefix_length: int
    seconds: float


LONG = Context(
    "long",
    # With n requests of each prefix over 7 hosts, perfect caches find 1 - 1/n where each prefix has one host, and
    # 1 - 7 (1 - (6/7)^n) / n where hosts are random: 0.82 and 0.27 at n = 5.5, the announcement's two figures.
    # The question of 50 tokens is its introduction's example. The length of answers is chosen.
    Documents(per_prefix=(5, 6), shared_tokens=8_000, own_tokens=50, output_tokens=256),
    prefix_length=32_000,
    seconds=3_600,
)
SHORT = Context(
    "short",
    # Means of ShareGPT, in tokens: user 161, answer 338 (Kwon et al., SOSP 2023, figure 11); sigmas and cuts are
    # chosen. Turns are fitted: with 3.4 on average RANDOM finds the announcement's 30%.
    Chats(turns=3.4, user=Lengths(161, 1.2, 2_048), answer=Lengths(338, 0.9, 2_048)),
    prefix_length=1_024,
    seconds=1_800,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration. ``sweep`` is empty for the announcement's own ones."""

    sweep: str
    value: float
    context: Context
    api: Api
    strategy: str
    clients_per_host: int = CLIENTS_PER_HOST
    threshold: int = THRESHOLD

    def plan(self, seed: int, seconds: float) -> Plan:
        """Return what to run. Hosts have names of the seed, so that homes differ, too."""
        return Plan(
            start=self.context.kind.start,
            api=self.api,
            clients=Clients(self.clients_per_host * HOSTS, OPEN),
            routing=Routing(self.strategy, self.context.prefix_length, self.threshold),
            hosts=tuple(f"seed-{seed}-host-{number}" for number in range(HOSTS)),
            seconds=seconds,
            profile=PROFILE,
        )


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it is run."""

    seeds: tuple[int, ...]
    time_share: float
    """Of the contexts' time, in the announcement's cells."""
    sweep_seconds: float
    sweep_warm_up_seconds: float
    """Served, but left out of the sweeps' figures; those of the announcement's cells have the cold start in them."""
    sweeps: dict[str, tuple[float, ...]]


SWEEPS: dict[str, tuple[float, ...]] = {
    "n": (2, 3, 4, 5.5, 8, 16),
    "clients per host": (1, 2, 3, 5, 8, 12),
    "answer tokens": (64, 128, 256, 512),
    "threshold": (2, 4, 6, 8, 12, 16, 32),
}
WHOLE = Size((1, 2, 3, 4, 5), 1.0, 1_200, 300, SWEEPS)
QUICK = Size((1,), 0.01, 20, 5, {name: values[-1:] for name, values in SWEEPS.items()})


def announced() -> list[Cell]:
    """Return the announcement's cells, with LEAST_OUTSTANDING_REQUESTS beside its two strategies."""
    return [Cell("", 0, context, api, strategy)
            for context, api, strategy in product((LONG, SHORT), Api, STRATEGIES)]  # fmt: skip


def swept(size: Size) -> Iterator[Cell]:
    """Yield the cells of the sweeps: the long context over the native API, one thing changed at a time."""
    for name, values in size.sweeps.items():
        for value, strategy in product(values, ("RANDOM", PREFIX_AWARE)):
            if name != "threshold" or strategy == PREFIX_AWARE:
                yield _changed(Cell(name, value, LONG, Api.NATIVE, strategy))


def _changed(cell: Cell) -> Cell:
    if cell.sweep == "clients per host":
        return replace(cell, clients_per_host=int(cell.value))
    if cell.sweep == "threshold":
        return replace(cell, threshold=int(cell.value))
    documents = cell.context.kind
    assert isinstance(documents, Documents), "sweeps are of the long context"
    if cell.sweep == "answer tokens":
        changed = replace(documents, output_tokens=int(cell.value))
    else:
        changed = replace(documents, per_prefix=tuple({int(cell.value), int(cell.value + 0.5)}))
    return replace(cell, context=replace(cell.context, kind=changed))
