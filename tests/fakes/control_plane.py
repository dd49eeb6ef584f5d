"""A real control plane as a process of its own."""

from collections.abc import Mapping
from pathlib import Path

from tests.fakes.plane_process import PlaneProcess


class ControlPlane(PlaneProcess):
    """One ``warmroute controlplane``, one of any number on the same database."""

    def __init__(
        self, database_url: str, redis_url: str, directory: Path, *, settings: Mapping[str, object] | None = None
    ) -> None:
        given = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, **(settings or {})}
        super().__init__("controlplane", directory, given)
