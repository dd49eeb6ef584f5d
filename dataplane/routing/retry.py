"""What happened to a delivery -> try another instance, or give up. By evidence of what the host may have run.

Nothing sent: another instance may take it. Sent without an answer: never again, the host may be running it. An answer
begun: never. Retries over all requests are kept to a share of the traffic, so that a sick fleet is not hit harder.
"""

from enum import Enum

from dataplane.host import Failure

BUDGET_SHARE = 0.2
BUDGET_MAX = 50.0
"""So many retries may be saved up by quiet traffic."""


class Next(Enum):
    OTHER = "other"
    GIVE_UP = "give up"


def next_step(failure: Failure, instances_left: int, budget: float, seconds_left: float) -> Next:
    """``seconds_left`` of the time for finding a connection; ``budget`` of retries, one is taken by OTHER."""
    if failure is Failure.REFUSED and instances_left > 0 and budget >= 1 and seconds_left > 0:
        return Next.OTHER
    return Next.GIVE_UP
