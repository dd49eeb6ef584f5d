"""A real data plane as a process of its own."""

from collections.abc import Mapping
from pathlib import Path

from tests.fakes.plane_process import PlaneProcess


class DataPlane(PlaneProcess):
    """One ``warmroute dataplane`` with its workers."""

    def __init__(
        self,
        redis_url: str,
        data_dir: Path,
        *,
        workers: int = 1,
        settings: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        descriptors_max: int | None = None,
    ) -> None:
        self.workers = workers
        given = {"REDIS_URL": redis_url, **(settings or {})}
        options = ("--workers", str(workers), "--data-dir", str(data_dir))
        super().__init__(
            "dataplane", data_dir, given, options=options, environ=environ, descriptors_max=descriptors_max
        )
