"""When an endpoint takes, uses and gives up hosts, and when its deployment moves on. Pure: a snapshot in, actions out.

A host is *claimed* for a variant (probed, no traffic), *activated* (in the routes), *withdrawn* (out of the routes) and
*released* (free again) once every worker follows. A deployment claims hosts for its pending variants, is *promoted*
when they are healthy, which turns the routes to them at once, and is *finished* when every worker follows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from controlplane.endpoint_status import Event, Status
from controlplane.host_pool import Tiers, assign


@dataclass(frozen=True)
class Health:
    """What probes of one ping path say. ``error``: why the last failed; None before the first and after a success."""

    healthy: bool
    since: datetime
    error: str | None = None


@dataclass(frozen=True)
class BoundHost:
    """A host in this endpoint's hands; ``active`` and ``pending`` are names of variants. ``health`` is by ping path."""

    id: int
    identity: str
    active: str | None
    pending: str | None
    health: Mapping[str, Health] = field(default_factory=dict)


@dataclass(frozen=True)
class PoolHost:
    """A host of a model's pool. ``holder``: name of the other endpoint that has it, None if none has."""

    id: int
    identity: str
    holder: str | None = None


@dataclass(frozen=True)
class Variant:
    name: str
    model_id: int
    model_name: str
    ping_path: str
    count: int


@dataclass(frozen=True)
class Snapshot:
    """All that decides about one endpoint, at one moment."""

    status: Status
    now: datetime
    active: tuple[Variant, ...] = ()
    pending: tuple[Variant, ...] = ()
    """Of the running deployment; empty without one."""
    deadline: datetime | None = None
    """When the running deployment fails."""
    promoted: bool = False
    same_config: bool = False
    """The deployment changes weights and counts only."""
    hosts: tuple[BoundHost, ...] = ()
    pools: Mapping[int, tuple[PoolHost, ...]] = field(default_factory=dict)
    """By model id, in order of preference. A model that was deleted has no pool; its endpoints keep their hosts."""
    followed: bool = False
    """Every live worker follows the routes of this endpoint as they are now."""
    eject_seconds: float = 10.0
    """A host that is unhealthy for so long is replaced, if another can be had."""

    @cached_property
    def members(self) -> Mapping[int, frozenset[int]]:
        """Hosts of each pool, for look-up."""
        return {model_id: frozenset(host.id for host in pool) for model_id, pool in self.pools.items()}


@dataclass(frozen=True)
class Claim:
    """Take the host, free or own, for the variant: it is probed and gets no traffic yet."""

    host_id: int
    variant: str


@dataclass(frozen=True)
class Drop:
    """Undo a claim. The host is free at once unless it is active too."""

    host_id: int


@dataclass(frozen=True)
class Activate:
    """Let a claimed host serve."""

    host_id: int


@dataclass(frozen=True)
class Withdraw:
    """Take the host out of the routes."""

    host_id: int


@dataclass(frozen=True)
class Release:
    """Give up a withdrawn host."""

    host_id: int


@dataclass(frozen=True)
class Promote:
    """Turn the routes to the pending variants."""


@dataclass(frozen=True)
class Finish:
    """Make the pending variants the active ones and release all hosts that are not theirs; the event is READY."""


@dataclass(frozen=True)
class Move:
    """Change the status by this event, with a FailureReason."""

    event: Event
    reason: str | None = None


Action = Claim | Drop | Activate | Withdraw | Release | Promote | Finish | Move


def plan(snapshot: Snapshot) -> tuple[Action, ...]:
    """Return what to do now, all in one transaction. Empty: wait for something to change."""
    match snapshot.status:
        case Status.CREATING | Status.UPDATING:
            return tuple(dict.fromkeys(_deploy(snapshot)))
        case Status.IN_SERVICE:
            return tuple(dict.fromkeys(_keep(snapshot)))
        case Status.ROLLING_BACK:
            return (Move(Event.ROLLED_BACK),)
        case Status.DELETING if snapshot.followed:
            return (Move(Event.GONE),)
        case _:
            return ()


def blocked_by(snapshot: Snapshot, variant: Variant) -> str:
    """Return what keeps a pending variant from being ready and what to do about it; empty if nothing does."""
    if _choice(snapshot, variant) is not None:
        return ""
    held = _held(snapshot, variant)
    if len(held) < variant.count:
        if len(held) + len(_free(snapshot, variant)) >= variant.count:
            return f'Instances are being taken from the pool of model "{variant.model_name}".'
        return _short_of_hosts(snapshot, variant, len(held))
    silent = [host for host in held if not _healthy(host, variant)]
    shown = "; ".join(f"{host.identity}: {_answer(host, variant)}" for host in silent[:4])
    more = f"; and {len(silent) - 4} more" if len(silent) > 4 else ""
    # The first sentence is AWS's.
    return (
        f"The primary container for production variant {variant.name} did not pass the ping health check. "
        f"{shown}{more}. Each must answer 200 to GET {variant.ping_path}: start its model server, or name another path "
        "in WARMROUTE_PING_PATH of a new model."
    )


def _out_of_time(snapshot: Snapshot) -> str:
    """Return what to add when free hosts were there, and nobody to take them: no control plane ran until too late."""
    if any(host.pending for host in snapshot.hosts):
        return ""
    if any(len(_free(snapshot, variant)) < variant.count for variant in snapshot.pending):
        return ""
    return " The time for it (WARMROUTE_PROVISION_TIMEOUT_SECONDS) ran out while no control plane was up: ask again."


def _deploy(snapshot: Snapshot) -> Iterator[Action]:
    if snapshot.promoted:
        if snapshot.followed:
            yield Finish()
        return
    yield from _leave(snapshot)
    choices = [_choice(snapshot, variant) for variant in snapshot.pending]
    if None not in choices:
        chosen = {host.id for choice in choices if choice for host in choice}
        yield from (Drop(host.id) for host in snapshot.hosts if host.pending and host.id not in chosen)
        yield Promote()
    elif snapshot.deadline is not None and snapshot.now >= snapshot.deadline:
        yield from (Drop(host.id) for host in snapshot.hosts if host.pending)
        reasons = filter(None, (blocked_by(snapshot, variant) for variant in snapshot.pending))
        yield Move(Event.BROKEN, (" ".join(reasons) + _out_of_time(snapshot))[:1024])
    else:
        yield from _claim_for_deployment(snapshot)


def _keep(snapshot: Snapshot) -> Iterator[Action]:
    """Keep a serving endpoint at its counts: replace what left or fails, fill up from what came."""
    yield from _leave(snapshot)
    needs: dict[str, int] = {}
    tiers: dict[str, Tiers] = {}
    for variant in snapshot.active:
        serving = [host for host in _active(snapshot, variant) if _may_have(snapshot, variant, host)]
        failing = [host for host in serving if _failing(snapshot, host, variant)]
        empty = max(variant.count - len(serving), 0)
        waiting = []
        for host in _held(snapshot, variant):
            if not _healthy(host, variant):
                waiting.append(host)
            elif empty:
                empty -= 1
                yield Activate(host.id)
            elif failing:
                yield Withdraw(failing.pop(0).id)
                yield Activate(host.id)
            else:
                yield Drop(host.id)
        missing = empty + len(failing)
        if not missing:
            yield from (Drop(host.id) for host in waiting)
        needs[variant.name] = missing - sum(not _failing(snapshot, host, variant) for host in waiting) if missing else 0
        tiers[variant.name] = [_free(snapshot, variant)]
    yield from (Claim(host_id, variant) for host_id, variant in sorted(assign(needs, {}, tiers).items()))


def _leave(snapshot: Snapshot) -> Iterator[Action]:
    """Release what the workers no longer use; withdraw what is in its pool no more."""
    variants = {variant.name: variant for variant in snapshot.active}
    targets = _targets(snapshot)
    for host in snapshot.hosts:
        if host.active is None and host.pending is None:
            if snapshot.followed:
                yield Release(host.id)
            continue
        claimed = host.pending is not None
        if host.pending is not None and not _may_have(snapshot, targets.get(host.pending), host):
            claimed = False
            yield Drop(host.id)
        # One that the deployment carries over serves on, whatever became of its old pool.
        if host.active is not None and not claimed and not _may_have(snapshot, variants.get(host.active), host):
            yield Withdraw(host.id)


def _claim_for_deployment(snapshot: Snapshot) -> Iterator[Action]:
    needs: dict[str, int] = {}
    held: dict[int, str] = {}
    spare: list[BoundHost] = []
    probed: set[tuple[int, str]] = set()
    for variant in snapshot.pending:
        mine = _best_first(variant, _held(snapshot, variant))
        need = needs[variant.name] = variant.count + sum(_failing(snapshot, host, variant) for host in mine)
        held |= dict.fromkeys((host.id for host in mine[:need]), variant.name)
        # Taken while others failed that are well again; another variant may be short of them.
        spare += mine[need:]
        # One that was claimed before this deployment began may be probed on another path only.
        probed |= {(host.id, variant.name) for host in mine if variant.ping_path in host.health}
    tiers = {variant.name: _tiers(snapshot, variant, spare) for variant in snapshot.pending}
    yield from (Claim(*wanted) for wanted in sorted(assign(needs, held, tiers).items()) if wanted not in probed)


def _tiers(snapshot: Snapshot, variant: Variant, spare: Sequence[BoundHost]) -> Tiers:
    """Hosts that a pending variant may have: those of the variant it replaces, others of the endpoint, free ones."""
    own = [host for host in snapshot.hosts if host.active is not None and _may_have(snapshot, variant, host)]
    own.sort(key=lambda host: (not _healthy(host, variant), host.id))
    same = [host.id for host in own if host.active == variant.name]
    other = [host.id for host in own if host.active != variant.name]
    claimed = [host.id for host in _held(snapshot, variant) if host.active is None]
    of_others = [host.id for host in spare if host.id not in claimed and _may_have(snapshot, variant, host)]
    return [same, other, [*claimed, *_free(snapshot, variant), *of_others]]


def _choice(snapshot: Snapshot, variant: Variant) -> list[BoundHost] | None:
    """Return the claimed hosts with which the variant is ready, or None.

    A host that is carried over counts even while it fails, since it serves no worse afterwards: a switch of strategy
    must not wait for a dead host. If all fail, a new configuration waits; new weights do not, for they are how traffic
    is led away from a dead variant.
    """
    if variant.count == 0:
        return []
    usable = [
        host
        for host in _held(snapshot, variant)
        if _healthy(host, variant) or _is_carried_over(snapshot, host, variant)
    ]
    if len(usable) < variant.count:
        return None
    if not snapshot.same_config and not any(_healthy(host, variant) for host in usable):
        return None
    return _best_first(variant, usable)[: variant.count]


def _best_first(variant: Variant, hosts: Sequence[BoundHost]) -> list[BoundHost]:
    return sorted(hosts, key=lambda host: (not _healthy(host, variant), host.active != variant.name, host.id))


def _is_carried_over(snapshot: Snapshot, host: BoundHost, variant: Variant) -> bool:
    return any(old.name == host.active and old.ping_path == variant.ping_path for old in snapshot.active)


def _targets(snapshot: Snapshot) -> Mapping[str, Variant]:
    """What claims are for: the deployment's variants, or without one the active variants themselves."""
    return {variant.name: variant for variant in (snapshot.pending or snapshot.active)}


def _held(snapshot: Snapshot, variant: Variant) -> list[BoundHost]:
    return [host for host in snapshot.hosts if host.pending == variant.name and _may_have(snapshot, variant, host)]


def _active(snapshot: Snapshot, variant: Variant) -> list[BoundHost]:
    return [host for host in snapshot.hosts if host.active == variant.name]


def _may_have(snapshot: Snapshot, variant: Variant | None, host: BoundHost) -> bool:
    """Tell whether an own host is in the variant's pool, or serves the same model and that has been deleted."""
    if variant is None:
        return False
    members = snapshot.members.get(variant.model_id)
    if members is not None:
        return host.id in members
    return any(old.name == host.active and old.model_id == variant.model_id for old in snapshot.active)


def _free(snapshot: Snapshot, variant: Variant) -> Sequence[int]:
    own = {host.id for host in snapshot.hosts}
    pool = snapshot.pools.get(variant.model_id, ())
    return [member.id for member in pool if member.holder is None and member.id not in own]


def _healthy(host: BoundHost, variant: Variant) -> bool:
    health = host.health.get(variant.ping_path)
    return health is not None and health.healthy


def _failing(snapshot: Snapshot, host: BoundHost, variant: Variant) -> bool:
    """Tell whether the host has been unhealthy for long enough to look for another."""
    health = host.health.get(variant.ping_path)
    if health is None or health.healthy:
        return False
    return (snapshot.now - health.since).total_seconds() >= snapshot.eject_seconds


def _answer(host: BoundHost, variant: Variant) -> str:
    health = host.health.get(variant.ping_path)
    return health.error if health is not None and health.error else "not probed yet"


def _short_of_hosts(snapshot: Snapshot, variant: Variant, held: int) -> str:
    head = f"Unable to provision the requested capacity for production variant {variant.name}: "
    pool = snapshot.pools.get(variant.model_id)
    if pool is None:
        return head + (
            f'model "{variant.model_name}" has been deleted, so it gives no more hosts ({held} of {variant.count} are '
            "there). Update the endpoint to a configuration whose models exist."
        )
    holders: dict[str, list[str]] = {}
    for member in pool:
        if member.holder is not None:
            holders.setdefault(member.holder, []).append(member.identity)
    busy = "".join(
        f" {', '.join(identities[:3])}{' and others' if len(identities) > 3 else ''}"
        f' {"is" if len(identities) == 1 else "are"} in use by endpoint "{name}".'
        for name, identities in sorted(holders.items())[:3]
    )
    return head + (
        f'model "{variant.model_name}" can give {held} of the {variant.count} hosts needed (its pool has {len(pool)}). '
        "Register more with RegisterModelHost, name more in WARMROUTE_HOSTS of a new model, free some by deleting "
        f"another endpoint, or ask for fewer instances.{busy}"
    )
