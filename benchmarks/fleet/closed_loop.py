"""A closed loop on a fleet in virtual time: each client waits for its answer before it asks again. Pure.

Keys come from native_key and chat_key over whole bodies, orders from InstanceOrder, choices from admission.py, on exact
counts. Hosts may join and leave on the way.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from benchmarks.fleet.conversations import Api, Conversation, Start, Turn
from benchmarks.fleet.fleet import Fleet
from benchmarks.fleet.strategies import STRATEGIES
from dataplane.routing.admission import Outcome
from dataplane.routing.instance_order import InstanceOrder
from simulator.calibration import Profile
from simulator.request import Kind, Request

DICE_BITS = 30
PREFIX_AWARE = "PREFIX_AWARE"


@dataclass(frozen=True, slots=True)
class Clients:
    """Who asks."""

    number: int
    """So many requests are under way at any time."""
    open: int
    """Conversations under way for each client. All clients share them: a client that has its answer sends the next turn
    of one of those that wait for none, chosen by chance. So the turns of one conversation are apart in time, and a
    client's next request is not about what the host that has just become free has in its cache."""
    ramp_seconds: float = 10.0
    """They start one by one over this time."""


@dataclass(frozen=True, slots=True)
class Routing:
    """How the endpoint is configured."""

    strategy: str
    prefix_length: int
    threshold: int


@dataclass(frozen=True, slots=True)
class Change:
    """Another set of hosts from ``at`` seconds on. What is under way on a host that leaves is finished there."""

    at: float
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One run but for its seed."""

    start: Start
    api: Api
    clients: Clients
    routing: Routing
    hosts: tuple[str, ...]
    """Their identities, which decide what is at home where."""
    seconds: float
    profile: Profile
    changes: tuple[Change, ...] = ()
    """In order of time."""


class Answered(NamedTuple):
    """One request and its whole answer. Times in seconds from the start."""

    submitted_at: float
    first_token_at: float
    finished_at: float
    prompt_tokens: int
    cached_tokens: int
    reusable_tokens: int
    """What could have been cached: an earlier turn left it on some host."""
    output_tokens: int
    host: str
    outcome: Outcome
    key: int
    """0 where the strategy needs none."""


class Conversations:
    """Those under way. What each says depends on its number and the seed alone, not on when its turns are sent."""

    def __init__(self, start: Start, clients: Clients, seed: int) -> None:
        self._start = start
        self._seed = seed
        self._dice = random.Random(f"{seed}/turns")  # noqa: S311
        self._begun = 0
        self._idle = [self._begin() for _ in range(clients.number * clients.open)]

    def take(self) -> tuple[Conversation, Turn]:
        """Return a conversation that waits for no answer, and its next turn. It is one of those again after give()."""
        position = self._dice.randrange(len(self._idle))
        self._idle[position], self._idle[-1] = self._idle[-1], self._idle[position]
        conversation = self._idle.pop()
        while (turn := conversation.next_turn()) is None:
            conversation = self._begin()
        return conversation, turn

    def give(self, conversation: Conversation) -> None:
        """The answer is there."""
        self._idle.append(conversation)

    def _begin(self) -> Conversation:
        self._begun += 1
        return self._start(random.Random(f"{self._seed}/{self._begun}"), self._begun)  # noqa: S311


def run(plan: Plan, seed: int, dice: int = 0) -> list[Answered]:
    """Return what was answered within the plan's time, in order of the answers' ends.

    ``seed`` draws what is said and which turn is next, ``dice`` with it what is routed by chance.
    """
    return _Loop(plan, seed, dice).run()


class _Loop:
    """One run. Owner of the fleet and of what is under way."""

    def __init__(self, plan: Plan, seed: int, dice: int) -> None:
        self._plan = plan
        self._dice = random.Random(f"{seed}/{dice}/routing")  # noqa: S311
        self._fleet = Fleet(0, plan.profile)
        self._identities: list[str] = []
        """By number in the fleet."""
        self._use(plan.hosts)
        self._changes = list(plan.changes)
        self._conversations = Conversations(plan.start, plan.clients, seed)
        pace = plan.clients.ramp_seconds / plan.clients.number
        self._ready = [(number * pace, number) for number in range(plan.clients.number)]
        """(when, client) that send next; a heap."""
        self._under_way: dict[int, tuple[Conversation, Turn, int, Outcome, int]] = {}
        """By client: conversation, turn, host, outcome, key."""
        self._answered: list[Answered] = []

    def run(self) -> list[Answered]:
        fleet, ready = self._fleet, self._ready
        while True:
            change_at = fleet.next_change_at()
            if ready and (change_at is None or ready[0][0] <= change_at):
                now, client = heappop(ready)
                if now >= self._plan.seconds:
                    return self._answered
                self._send(client, now)
                continue
            assert change_at is not None, "a client waits for an answer that no host has"
            if change_at >= self._plan.seconds:
                return self._answered
            for event in fleet.settle(change_at):
                if event.kind is Kind.FINISHED:
                    self._finish(event.request)

    def _send(self, client: int, now: float) -> None:
        while self._changes and self._changes[0].at <= now:
            self._use(self._changes.pop(0).hosts)
        conversation, turn = self._conversations.take()
        host, outcome, key = self._choose(turn)
        self._fleet.send(host, client, turn.blocks, turn.prompt_tokens, turn.output_tokens, now)
        self._under_way[client] = (conversation, turn, host, outcome, key)

    def _choose(self, turn: Turn) -> tuple[int, Outcome, int]:
        routing, api = self._plan.routing, self._plan.api
        key, order = 0, self._current
        if routing.strategy == PREFIX_AWARE:
            key = api.key(api.body(turn.messages, turn.output_tokens), routing.prefix_length)
            order = self._order.first(key)
        counts = [self._fleet.in_flight[number] for number in order]
        rank, outcome = STRATEGIES[routing.strategy](counts, routing.threshold, self._dice.getrandbits(DICE_BITS))
        return order[rank], outcome, key

    def _finish(self, request: Request) -> None:
        assert isinstance(request.id, int), "requests are named by their client"
        assert request.first_token_at is not None, "finished without a token"
        assert request.finished_at is not None, "not finished"
        conversation, turn, host, outcome, key = self._under_way.pop(request.id)
        self._conversations.give(conversation)
        self._answered.append(
            Answered(
                submitted_at=request.submitted_at,
                first_token_at=request.first_token_at,
                finished_at=request.finished_at,
                prompt_tokens=request.prompt_tokens,
                cached_tokens=request.cached_tokens,
                reusable_tokens=turn.reusable_tokens,
                output_tokens=request.output_tokens,
                host=self._identities[host],
                outcome=outcome,
                key=key,
            )
        )
        heappush(self._ready, (request.finished_at, request.id))

    def _use(self, hosts: Sequence[str]) -> None:
        for host in hosts:
            if host not in self._identities:
                self._identities.append(host)
                self._fleet.add()
        self._current = tuple(self._identities.index(host) for host in hosts)
        self._order = InstanceOrder(hosts, self._current)
