"""The small case that both worlds run. Pure."""

from dataclasses import dataclass

from benchmarks.fleet.closed_loop import PREFIX_AWARE, Clients, Plan, Routing
from benchmarks.fleet.conversations import Api, Documents
from simulator.calibration import LLAMA_3_1_70B_8XH100

PROFILE = LLAMA_3_1_70B_8XH100
HOSTS = ("bench-1", "bench-2", "bench-3", "bench-4")
"""Registered under these names, so prefixes are at home in the same places in both worlds."""
KIND = Documents(per_prefix=(5, 6), shared_tokens=6_000, own_tokens=1_000, output_tokens=32)
CLIENTS = Clients(number=8, open=4, ramp_seconds=1.0)
PREFIX_LENGTH, THRESHOLD = 24_000, 8


@dataclass(frozen=True, slots=True)
class Case:
    """One run. ``seed`` differs from case to case: hosts keep what they have cached."""

    strategy: str
    api: Api
    seed: int

    def plan(self, seconds: float) -> Plan:
        """Return what to run for ``seconds`` of the engines' time."""
        routing = Routing(self.strategy, PREFIX_LENGTH, THRESHOLD)
        return Plan(KIND.start, self.api, CLIENTS, routing, HOSTS, seconds, PROFILE)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run, and how fast."""

    cases: tuple[Case, ...]
    real_seconds: float
    """Of each case over sockets."""
    speed: float
    """Engine seconds in a real second. Lower: what sockets, workers and hosts' servers cost weighs less."""
    dice: int
    """Virtual runs of each case, which differ in the dice of RANDOM and of ties."""


_CASES = (
    Case(PREFIX_AWARE, Api.NATIVE, 1),
    Case(PREFIX_AWARE, Api.OPENAI, 2),
    Case("LEAST_OUTSTANDING_REQUESTS", Api.NATIVE, 3),
    Case("RANDOM", Api.NATIVE, 4),
)
WHOLE = Size(_CASES, real_seconds=45, speed=0.8, dice=10)
QUICK = Size((_CASES[1], _CASES[3]), real_seconds=2, speed=2.0, dice=2)
