"""The engine is one implementation for sockets and for virtual time, so it may know neither clock, loop nor chance."""

import ast
from pathlib import Path

import pytest

import simulator

ROOT = Path(simulator.__file__).parent
ROOMS = {"contract", "controlplane", "dataplane", "migrations", "warmroute"}
IMPURE = {"asyncio", "datetime", "random", "secrets", "select", "socket", "threading", "time", "uuid", "logging"}
SERVER = {"command", "host", "live", "native_api", "openai_api", "reply"}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if node.module == "simulator"
                else {str(node.module)}
            )
    return found


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.py")), ids=lambda path: path.stem)
def test_imports_point_one_way(path: Path) -> None:
    found = imports(path)
    assert not {name.split(".")[0] for name in found} & ROOMS
    if path.stem not in SERVER:
        assert not found & IMPURE
        assert not {name for name in found if name.startswith("simulator.")} & {f"simulator.{name}" for name in SERVER}
