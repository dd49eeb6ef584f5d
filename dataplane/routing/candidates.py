"""Which instances may take a request: not tried yet, and not set aside unless all are."""

from collections.abc import Collection

from dataplane.routing.routes import VariantRoutes


def candidates(
    variant: VariantRoutes, numbers: tuple[int, ...], tried: Collection[int], out: Collection[str]
) -> tuple[int, ...]:
    """Return those of ``numbers`` that may be asked, in their order.

    ``out`` are identities that are set aside. When that leaves none of the variant's instances, they may be asked all
    the same: a fleet of which every instance has failed may be working again.
    """
    if not out and not tried:
        return numbers
    untried = tuple([number for number in numbers if number not in tried])
    if not out:
        return untried
    healthy = tuple([n for n in untried if variant.instances[variant.positions[n]].identity not in out])
    if healthy or len(numbers) < len(variant.numbers):
        return healthy
    return untried
