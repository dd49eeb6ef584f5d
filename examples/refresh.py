"""Runs the notebook against the running product and keeps its outputs, without anything of this machine or this run.

``.venv/bin/python examples/refresh.py`` while `make run` is up in another terminal. The notebook says which variables
name another product. No kernel need be registered: ipykernel's own is used, with the Python that runs this.
"""

import getpass
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import nbformat
import zmq
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from traitlets import default

NOTEBOOK = Path(__file__).with_name("prefix_aware_routing.ipynb")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
CELL_SECONDS_MAX = 100
"""A cell takes 7 s at most on two quiet cores."""

_OF_A_MACHINE = re.compile(
    r"(?<![\w/:.])/[\w.-]+/[\w./-]*"  # an absolute path
    r"|(?:localhost|\d+\.\d+\.\d+\.\d+|\[[\da-f:]+\]):\d+"  # an address with its port
    r"|\b0x[\da-f]{6,}\b"  # where an object lies in memory
)


class OwnKernel(AsyncKernelManager):
    """Starts ipykernel's own kernel with this Python, whatever the user or the machine has registered."""

    @default("kernel_spec_manager")
    def _without_directories(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])

    @default("transport_encryption")
    def _where_it_can_be(self) -> str:
        # Without it, the kernel warns of neighbours who read along.
        return "auto" if zmq.has("curve") else "disabled"


def read() -> NotebookNode:
    """Return the notebook as it is kept."""
    return nbformat.read(NOTEBOOK, as_version=4)


def run(notebook: NotebookNode, directory: Path, environment: Mapping[str, str] | None = None) -> None:
    """Execute all cells in ``directory``; outputs go into ``notebook``. Raises CellExecutionError."""
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        kernel_manager_class=OwnKernel,
        timeout=CELL_SECONDS_MAX,
        resources={"metadata": {"path": str(directory)}},
    )
    client.execute(**({} if environment is None else {"env": dict(environment)}))


def strip(notebook: NotebookNode) -> None:
    """Remove what an execution leaves beside its outputs: times, versions, names of displays, pauses in a text."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = NotebookNode()
        if "outputs" in cell:
            cell.outputs = _joined(cell.outputs)
        for output in cell.get("outputs", ()):
            output.pop("transient", None)
            if "metadata" in output:
                output.metadata = NotebookNode()


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Return ``outputs`` with texts of one stream that follow each other as one: where they part is chance."""
    joined: list[NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == "stream" and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def traces(notebook: NotebookNode) -> list[str]:
    """Return what the outputs say of the machine: paths, ports, memory addresses, the names of host and user."""
    sources = " ".join(cell.source for cell in notebook.cells)
    # A user called "host" is no trace.
    names = [name for name in (socket.gethostname(), _user()) if name and not _word(name).search(sources)]
    patterns = [_OF_A_MACHINE, *map(_word, names)]
    return [
        f"{cell.id}: {match[0]}"
        for cell in notebook.cells
        for text in texts(cell)
        for pattern in patterns
        for match in pattern.finditer(text)
    ]


def texts(cell: NotebookNode) -> Iterator[str]:
    """Yield what the outputs of ``cell`` show as text."""
    for output in cell.get("outputs", ()):
        if "text" in output:
            yield output.text
        yield from output.get("traceback", ())
        yield from (value for kind, value in output.get("data", {}).items() if kind.startswith("text/"))


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{re.escape(name)}\b")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A user id without a name, as containers have.
        return ""


def main() -> int:
    """Run, strip, write; return the exit code."""
    notebook = read()
    try:
        with tempfile.TemporaryDirectory() as directory:
            run(notebook, Path(directory))
    except CellExecutionError as error:
        print(f"{error}\n{NOTEBOOK.name} is as it was. Is the product running? `make run` starts it.", file=sys.stderr)
        return 1
    strip(notebook)
    if found := traces(notebook):
        print(f"{NOTEBOOK.name} is as it was. Its outputs tell of this machine:", *found, sep="\n", file=sys.stderr)
        return 1
    nbformat.write(notebook, NOTEBOOK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
