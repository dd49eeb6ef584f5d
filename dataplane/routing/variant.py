"""Endpoint -> production variant, by TargetVariant or by weight (share = weight / sum of weights)."""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Weighted(Protocol):
    """What a choice by weight needs."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> float: ...


V = TypeVar("V", bound=Weighted)


def choose_variant(variants: Sequence[V], target: str | None, dice: float) -> V | None:
    """Return the variant named ``target``, else one by weight with ``dice`` in [0, 1).

    None when no variant has that name, or when no weight is above zero. TargetVariant beats weights, zero included
    (AWS developer guide, model A/B testing).
    """
    if target is not None:
        return next((variant for variant in variants if variant.name == target), None)
    if len(variants) == 1:
        return variants[0] if variants[0].weight > 0 else None
    mark = dice * sum(variant.weight for variant in variants)
    chosen = None
    for variant in variants:
        if variant.weight > 0:
            chosen = variant
            mark -= variant.weight
            if mark < 0:
                break
    return chosen
