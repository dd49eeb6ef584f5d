"""Whether the data plane follows: which routes each live worker reports to serve. Pure but for the reading."""

from collections.abc import Mapping

from controlplane.store.fleet import EndpointRows

Reports = Mapping[str, str] | None
"""What live workers report, ``epoch:generation`` by worker; None while that cannot be known."""


def all_serve(reports: Reports, epoch: str, generation: int) -> bool:
    """Tell whether every live worker serves this generation or a later one. True without workers: nobody is behind."""
    if reports is None:
        return False
    return all(_serves(report, epoch, generation) for report in reports.values())


def follow(reports: Reports, epoch: str, rows: EndpointRows) -> bool:
    """Tell whether every live worker serves the endpoint's present revision."""
    published = rows.published
    if published is None or published.revision != rows.endpoint.revision:
        return False
    return all_serve(reports, epoch, published.generation)


def _serves(report: str, epoch: str, generation: int) -> bool:
    theirs, _, number = report.rpartition(":")
    return theirs == epoch and number.isdecimal() and int(number) >= generation
