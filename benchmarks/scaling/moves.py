"""Which keys are at home elsewhere after a change of hosts. Pure."""

from collections.abc import Sequence

from dataplane.routing.instance_order import SLOTS, InstanceOrder


def homes(hosts: Sequence[str]) -> list[str]:
    """Return each slot's home, by the product's order."""
    order = InstanceOrder(hosts, range(len(hosts)))
    return [hosts[order.first(slot)[0]] for slot in range(SLOTS)]


def moved(before: Sequence[str], after: Sequence[str]) -> float:
    """Return the share of slots whose home is another one."""
    changed = sum(one != other for one, other in zip(before, after, strict=True))
    return changed / len(before)


def moved_needlessly(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many slots moved although their home is still there and the new one was there before, too."""
    stayed = set(before) & set(after)
    return sum(one != other and one in stayed and other in stayed for one, other in zip(before, after, strict=True))


def moved_by_remainder(before: int, after: int) -> float:
    """Return the share of keys that move where a key's home is its remainder by the number of hosts."""
    return sum(slot % before != slot % after for slot in range(SLOTS)) / SLOTS
