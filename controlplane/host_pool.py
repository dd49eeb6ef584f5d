"""Who gets which host when the variants of an endpoint take hosts from pools that may overlap. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

Tiers = Sequence[Sequence[int]]
"""Hosts that a variant may have, by number: the tiers, and the hosts in a tier, in order of preference."""


def assign(needs: Mapping[str, int], held: Mapping[int, str], tiers: Mapping[str, Tiers]) -> dict[int, str]:
    """Return host -> variant so that as many needs as possible are met, taking better tiers first.

    ``held`` hosts stay taken, though they may change hands among the variants where that lets another need be met. All
    three mappings name the same variants; a held host must be in the tiers of the variant that holds it, or it does not
    change hands. At most O(variants * hosts) steps for each need that is not met at once.
    """
    owner = dict(held)
    count = Counter(owner.values())
    for tier in range(max((len(each) for each in tiers.values()), default=0)):
        for variant, need in needs.items():
            for host in tiers[variant][tier]:
                if count[variant] >= need:
                    break
                if host not in owner:
                    owner[host] = variant
                    count[variant] += 1
    options = {variant: [host for tier in each for host in tier] for variant, each in tiers.items()}
    for variant, need in needs.items():
        while count[variant] < need and _augment(variant, options, owner, {variant}):
            count[variant] += 1
    return owner


def _augment(variant: str, options: Mapping[str, Sequence[int]], owner: dict[int, str], seen: set[str]) -> bool:
    """Give ``variant`` one more host, moving others along to hosts of theirs if need be."""
    for host in options[variant]:
        if host not in owner:
            owner[host] = variant
            return True
    for host in options[variant]:
        other = owner[host]
        if other not in seen and other in options:
            seen.add(other)
            if _augment(other, options, owner, seen):
                owner[host] = variant
                return True
    return False
