"""Laws of plan() over whole lives of an endpoint: a small world of hosts, pools, probes and workers, at random."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controlplane.deployment import (
    Action,
    Activate,
    BoundHost,
    Claim,
    Drop,
    Finish,
    Health,
    Move,
    PoolHost,
    Promote,
    Release,
    Snapshot,
    Variant,
    Withdraw,
    plan,
)
from controlplane.endpoint_status import SERVING, Event, Status, next_status

HOSTS = range(1, 7)
PATHS = ("/ping", "/health")
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class World:
    """One endpoint and what surrounds it. ``trusted``: hosts to which some worker may still send."""

    now: datetime = START
    status: Status | None = Status.CREATING
    active: tuple[Variant, ...] = ()
    pending: tuple[Variant, ...] = ()
    started: datetime = START
    promoted: bool = False
    same_config: bool = False
    bound: dict[int, tuple[str | None, str | None]] = field(default_factory=dict)
    health: dict[tuple[int, str], Health] = field(default_factory=dict)
    up: set[int] = field(default_factory=set)
    pools: dict[int, set[int]] = field(default_factory=lambda: {1: {1, 2, 3, 4}, 2: {3, 4, 5, 6}})
    foreign: set[int] = field(default_factory=set)
    trusted: set[int] = field(default_factory=set)
    followed: bool = True

    def snapshot(self) -> Snapshot:
        assert self.status is not None
        return Snapshot(
            self.status,
            self.now,
            self.active,
            self.pending,
            self.started + timedelta(seconds=30) if self.pending else None,
            self.promoted,
            self.same_config,
            tuple(
                BoundHost(
                    number,
                    f"h{number}",
                    *names,
                    {path: self.health[number, path] for path in PATHS if (number, path) in self.health},
                )
                for number, names in sorted(self.bound.items())
            ),
            {
                model: tuple(
                    PoolHost(number, f"h{number}", "other" if number in self.foreign else None)
                    for number in sorted(members)
                )
                for model, members in self.pools.items()
            },
            self.followed,
        )

    def routes(self) -> dict[int, str]:
        if self.status not in SERVING and not (self.status is Status.CREATING and self.promoted):
            return {}
        stage = 1 if self.promoted else 0
        return {number: name for number, names in self.bound.items() if (name := names[stage]) is not None}

    def apply(self, action: Action) -> None:
        match action:
            case Claim(number, name):
                assert number not in self.foreign
                target = next(variant for variant in (self.pending or self.active) if variant.name == name)
                assert number in self.pools.get(target.model_id, {number})
                self.bound[number] = (self.bound.get(number, (None, None))[0], name)
                self.health.setdefault((number, target.ping_path), Health(False, self.now))
            case Drop(number):
                serves, _ = self.bound[number]
                self.bound[number] = (serves, None)
                if serves is None:
                    self.free(number)
            case Activate(number):
                self.bound[number] = (self.bound[number][1], None)
            case Withdraw(number):
                self.bound[number] = (None, self.bound[number][1])
            case Release(number):
                self.free(number)
            case Promote():
                self.promoted = True
            case Finish():
                self.move(Event.READY)
                self.active, self.pending, self.promoted = self.pending, (), False
                for number, (_, name) in list(self.bound.items()):
                    self.bound[number] = (name, None)
                    if name is None:
                        self.free(number)
            case Move(event, _):
                self.move(event)
                if self.status is Status.FAILED or event is Event.ROLLED_BACK:
                    self.pending = ()
                if self.status is None:
                    for number in list(self.bound):
                        self.free(number)

    def move(self, event: Event) -> None:
        assert self.status is not None
        self.status = next_status(self.status, event)

    def free(self, number: int) -> None:
        assert number not in self.trusted, f"host {number} was freed while a worker may send to it"
        del self.bound[number]
        for path in PATHS:
            self.health.pop((number, path), None)

    def healthy(self, number: int, name: str) -> bool:
        stage = self.pending if self.promoted else self.active
        path = next(variant.ping_path for variant in stage if variant.name == name)
        found = self.health.get((number, path))
        return found is not None and found.healthy

    def settle(self) -> None:
        """Plan and act until there is nothing to do, checking every step."""
        for _ in range(20):
            if self.status is None or not (actions := plan(self.snapshot())):
                return
            before, was = self.routes(), self.status
            for action in actions:
                self.apply(action)
            self.check(before, was)
        raise AssertionError("plan does not come to rest")

    def check(self, before: dict[int, str], was: Status) -> None:
        after = self.routes()
        if after != before:
            self.followed = False
            self.trusted |= after.keys()
        for number in after.keys() - before.keys():
            assert self.healthy(number, after[number]), f"host {number} serves without a good probe"
        stage = self.pending if self.promoted else self.active
        for variant in stage:
            assert sum(name == variant.name for name in after.values()) <= variant.count
        if was in (Status.UPDATING, Status.ROLLING_BACK) and self.status is was and not self.promoted:
            for number in before.keys() - after.keys():
                members = {model: self.pools.get(model) for model in (1, 2)}
                left = [variant for variant in self.active if variant.name == before[number]]
                assert all(number not in (members[variant.model_id] or ()) for variant in left)

    def probe(self) -> None:
        for (number, path), found in self.health.items():
            if found.healthy != (number in self.up):
                self.health[number, path] = Health(number in self.up, self.now)

    def follow(self) -> None:
        self.followed, self.trusted = True, set(self.routes())


variants = st.builds(
    Variant,
    name=st.sampled_from("vw"),
    model_id=st.sampled_from([1, 2]),
    model_name=st.just("m"),
    ping_path=st.sampled_from(PATHS),
    count=st.integers(0, 3),
)
configs = st.lists(variants, min_size=1, max_size=2, unique_by=lambda variant: variant.name).map(tuple)
happenings = st.one_of(
    st.tuples(st.just("up"), st.sampled_from(HOSTS)),
    st.tuples(st.just("down"), st.sampled_from(HOSTS)),
    st.tuples(st.just("join"), st.sampled_from([1, 2]), st.sampled_from(HOSTS)),
    st.tuples(st.just("leave"), st.sampled_from([1, 2]), st.sampled_from(HOSTS)),
    st.tuples(st.just("forget model"), st.sampled_from([1, 2])),
    st.tuples(st.just("foreign"), st.sampled_from(HOSTS)),
    st.tuples(st.just("probe")),
    st.tuples(st.just("follow")),
    st.tuples(st.just("wait"), st.sampled_from([1, 12, 40])),
    st.tuples(st.just("update"), configs),
    st.tuples(st.just("scale"), st.integers(0, 3)),
    st.tuples(st.just("delete")),
)


def happen(world: World, what: str, *given: object) -> None:
    match what, *given:
        case "up", int(number):
            world.up.add(number)
        case "down", int(number):
            world.up.discard(number)
        case "join", int(model), int(number):
            if model in world.pools:
                world.pools[model].add(number)
        case "leave", int(model), int(number):
            world.pools.get(model, set()).discard(number)
        case "forget model", int(model):
            world.pools.pop(model, None)
        case "foreign", int(number):
            if number not in world.bound:
                world.foreign ^= {number}
        case "probe", *_:
            world.probe()
        case "follow", *_:
            world.follow()
        case "wait", int(seconds):
            world.now += timedelta(seconds=seconds)
        case "update", tuple(config) if world.status is Status.IN_SERVICE:
            world.pending, world.started, world.same_config = config, world.now, False
            world.move(Event.UPDATE)
        case "scale", int(count) if world.status is Status.IN_SERVICE:
            world.pending = tuple(replace(variant, count=count) for variant in world.active)
            world.started, world.same_config = world.now, True
            world.move(Event.UPDATE_CAPACITY)
        case "delete", *_ if world.status in (Status.IN_SERVICE, Status.FAILED):
            world.move(Event.DELETE)
            world.followed = False


@settings(max_examples=300, deadline=None)
@given(configs, st.lists(happenings, max_size=40))
def test_whatever_happens_no_law_is_broken(config: tuple[Variant, ...], story: list[tuple[object, ...]]) -> None:
    world = World(pending=config, up=set(HOSTS))
    world.settle()
    for what, *given_ in story:
        happen(world, str(what), *given_)
        world.settle()


_ONE = (Variant("v", 2, "m", "/ping", 1),)
_OF_ANOTHER_PATH = (Variant("v", 1, "m", "/health", 1),)
_TWO_OF_ONE_POOL = (Variant("v", 2, "m", "/ping", 3), Variant("w", 2, "m", "/ping", 2))


@settings(max_examples=200, deadline=None)
@example(_TWO_OF_ONE_POOL, [("wait", 12)])
@example(_ONE, [("probe",), ("leave", 2, 3), ("follow",), ("update", _OF_ANOTHER_PATH)])
@given(configs, st.lists(happenings.filter(lambda each: each[0] not in ("delete", "forget model")), max_size=30))
def test_when_all_is_well_again_an_endpoint_is_in_service_at_its_counts(
    config: tuple[Variant, ...], story: list[tuple[object, ...]]
) -> None:
    world = World(pending=config, up=set(HOSTS))
    world.settle()
    for what, *given_ in story:
        happen(world, str(what), *given_)
        world.settle()
    world.up, world.foreign = set(HOSTS), set()
    world.pools = {1: {*HOSTS}, 2: {*HOSTS}}
    for _ in range(6):
        world.settle()
        world.probe()
        world.follow()
    if world.status is Status.FAILED:
        return
    assert world.status is Status.IN_SERVICE
    serving = list(world.routes().values())
    for variant in world.active:
        assert serving.count(variant.name) == variant.count
    assert len(world.bound) == len(serving)
