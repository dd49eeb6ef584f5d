"""The notebook as a new user runs it: against a running product, from top to bottom; and what of it is kept."""

import copy
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from examples import refresh
from tests.waiting import wait_until
from tests.warmroute.test_up import Up
from warmroute.embedded.processes import alive

FIGURE_CELLS = ["plots-code"]


class Fresh(NamedTuple):
    """A run of this test session: the notebook as executed, before anything is stripped, and what it left."""

    notebook: NotebookNode
    left: dict[str, list[Any]]


def _remaining(control: str) -> dict[str, list[Any]]:
    """Return what the control plane has, by the member that lists it."""
    found: dict[str, list[Any]] = {}
    for operation in ("ListEndpoints", "ListEndpointConfigs", "ListModels"):
        found |= httpx.post(f"{control}/{operation}", json={}).raise_for_status().json()
    return found


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a kernel, without this user's configuration, start-up files and settings."""
    directory = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
            patch.setenv(name, str(directory / name.lower()))
        yield {name: value for name, value in os.environ.items() if not name.startswith("WARMROUTE_")}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, quiet: dict[str, str]) -> Iterator[Fresh]:
    directory = tmp_path_factory.mktemp("notebook")
    up = Up(directory / "data", "--hosts", "0")
    try:
        up.ready()
        notebook = refresh.read()
        addresses = {"AWS_ENDPOINT_URL_SAGEMAKER": up.control, "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": up.data}
        refresh.run(notebook, directory, quiet | addresses)
        yield Fresh(notebook, _remaining(up.control))
    finally:
        if up.process.poll() is None:
            up.end()


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) > 10
    return cells


def structure(notebook: NotebookNode) -> list[Any]:
    """Return, cell by cell, what was executed in which order and the kinds of its outputs."""
    return [(cell.id, cell.execution_count, [_kind(one) for one in cell.outputs]) for cell in code_cells(notebook)]


def _kind(output: NotebookNode) -> tuple[str, str, list[str]]:
    return output.output_type, output.get("name", ""), sorted(output.get("data", ()))


def words(notebook: NotebookNode) -> list[list[str]]:
    """Return the words of each cell's text outputs, with a mark for each figure."""
    return [
        [re.sub(r"\d+(?:\.\d+)?", "#", word) for text in refresh.texts(cell) for word in text.split()]
        for cell in code_cells(notebook)
    ]


def cached_shares(notebook: NotebookNode) -> dict[str, float]:
    """Return strategy -> share of prompt tokens found in a cache, from what the loads print."""
    shown = " ".join(text for cell in notebook.cells for text in refresh.texts(cell))
    found = re.findall(r"(\w+): 96 answers, (\d+)% of the prompt tokens cached", shown)
    return {strategy: int(percent) / 100 for strategy, percent in found}


def test_it_runs_from_top_to_bottom_and_says_nothing_on_stderr(fresh: Fresh) -> None:
    cells = code_cells(fresh.notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert [one for one in cell.outputs if one.output_type == "error" or one.get("name") == "stderr"] == [], cell.id


def test_prefix_aware_finds_more_in_the_caches_than_random(fresh: Fresh) -> None:
    """RANDOM is expected at 45%; PREFIX_AWARE has a ceiling of 83%."""
    shares = cached_shares(fresh.notebook)
    assert set(shares) == {"RANDOM", "PREFIX_AWARE"}
    assert 0.2 < shares["RANDOM"] < shares["PREFIX_AWARE"] <= 0.84


def test_each_request_is_among_the_decisions_of_its_strategy(fresh: Fresh) -> None:
    (cell,) = [cell for cell in fresh.notebook.cells if cell.id == "decisions-code"]
    rows = [line.split() for text in refresh.texts(cell) for line in text.splitlines()]
    counts = {(strategy, outcome): int(count) for strategy, outcome, count in rows}
    # The load, an invocation, a stream, a chat, and the stream that the switch finds open.
    assert counts.pop(("RANDOM", "random")) == 96 + 4
    assert sum(counts.values()) == 96
    assert counts["PREFIX_AWARE", "home"] > 48


def test_a_stream_that_is_open_over_the_switch_is_whole(fresh: Fresh) -> None:
    (cell,) = [cell for cell in fresh.notebook.cells if cell.id == "switch-code"]
    assert "".join(refresh.texts(cell)).splitlines() == [
        "InService with PREFIX_AWARE",
        "the open stream has 200 of 200 tokens",
    ]


def test_it_cleans_up_after_itself(fresh: Fresh) -> None:
    assert fresh.left == {"Endpoints": [], "EndpointConfigs": [], "Models": []}
    assert "hosts ended with exit codes [0, 0, 0, 0]" in "".join(refresh.texts(fresh.notebook.cells[-1]))


def test_hosts_end_with_a_kernel_that_failed(quiet: dict[str, str], tmp_path: Path) -> None:
    (hosts,) = [cell for cell in refresh.read().cells if cell.id == "hosts-code"]
    fault = nbformat.v4.new_code_cell("print([process.pid for process in processes])\n1 / 0", id="fault")
    notebook = nbformat.v4.new_notebook(cells=[hosts, fault])
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        refresh.run(notebook, tmp_path, quiet)
    pids = json.loads(next(refresh.texts(fault)))
    assert len(pids) == 4
    wait_until(lambda: not any(alive(pid) for pid in pids), 10, "the end of the hosts")


def test_what_is_kept_is_what_it_shows(fresh: Fresh) -> None:
    """Outputs of an older notebook mislead whoever reads it on the web; examples/refresh.py makes them anew."""
    kept, again = refresh.read(), copy.deepcopy(fresh.notebook)
    nbformat.validate(kept)
    refresh.strip(again)
    assert structure(kept) == structure(again)
    assert words(kept) == words(again)
    assert [cell for cell, _, kinds in structure(kept) if any("image/png" in kind[2] for kind in kinds)] == FIGURE_CELLS
    shares = cached_shares(kept)
    assert shares["RANDOM"] < shares["PREFIX_AWARE"]


def test_nothing_of_a_machine_is_kept_and_nothing_is_shown(fresh: Fresh) -> None:
    kept = refresh.read()
    assert refresh.traces(kept) == []
    stripped = copy.deepcopy(kept)
    refresh.strip(stripped)
    assert stripped == kept
    # A run in another directory and on other ports would show what is this machine's alone.
    assert refresh.traces(fresh.notebook) == []


def test_metadata_of_an_execution_is_removed(fresh: Fresh) -> None:
    assert any("execution" in cell.metadata for cell in fresh.notebook.cells)
    notebook = copy.deepcopy(fresh.notebook)
    refresh.strip(notebook)
    assert [cell.metadata for cell in notebook.cells] == [{}] * len(notebook.cells)
    assert notebook.metadata == refresh.METADATA
    assert words(notebook) == words(fresh.notebook)


def test_texts_of_one_stream_are_joined() -> None:
    """A cell that pauses between two lines hands them over in two parts, or does not."""
    parts = [("stdout", "a\n"), ("stdout", "b\n"), ("stderr", "c\n"), ("stdout", "d\n")]
    outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in parts]
    outputs.insert(3, nbformat.v4.new_output("display_data", {"text/plain": "<Figure>"}, metadata={"width": 3}))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("pass", id="one", outputs=outputs)])
    refresh.strip(notebook)
    assert list(refresh.texts(notebook.cells[0])) == ["a\nb\n", "c\n", "<Figure>", "d\n"]
    assert notebook.cells[0].outputs[2].metadata == {}


@pytest.mark.parametrize(
    "text",
    ["/opt/python/lib", "at http://127.0.0.1:34749", "[::1]:80", "localhost:7080", "<object at 0x7f2a64c8e110>"],
)
def test_a_trace_of_a_machine_is_found(text: str) -> None:
    outputs = [nbformat.v4.new_output("stream", text=f"before {text} after")]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("pass", id="one", outputs=outputs)])
    assert len(refresh.traces(notebook)) == 1


@pytest.mark.parametrize("text", ["1 - 1/n", "and/or", "83% 0.45 96", "12 ms / 20 ms", "host-1: 37"])
def test_figures_and_words_are_no_traces(text: str) -> None:
    outputs = [nbformat.v4.new_output("stream", text=text)]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("pass", id="one", outputs=outputs)])
    assert refresh.traces(notebook) == []
