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
    # One pass over what may be a thousand numbers; set aside and tried are few.
    ill = {variant.number_of[identity] for identity in out if identity in variant.number_of}
    healthy = tuple([number for number in numbers if number not in ill and number not in tried])
    if healthy or len(numbers) < len(variant.numbers):
        return healthy
    return tuple([number for number in numbers if number not in tried])
