"""The rooms of docs/architecture.md as rules that run. Each says what it prevents."""

import ast
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("access", "contract", "controlplane", "dataplane", "simulator", "warmroute", "migrations")
BESIDE = ("benchmarks",)
"""Runs the packages, is no part of them."""
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 400
IMPURE = {"asyncio", "time", "random", "secrets", "logging", "socket", "threading", "subprocess", "os", "signal"}
FRAMEWORKS = {"fastapi", "starlette", "uvicorn", "httpx"}
DATABASE = {"sqlalchemy", "sqlmodel", "asyncpg", "alembic"}


@dataclass(frozen=True)
class Import:
    """One imported module; ``is_lazy``: inside a function."""

    name: str
    line: int
    is_lazy: bool

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    tree: ast.Module
    lines: int

    @property
    def imports(self) -> list[Import]:
        top_level = {id(node) for node in self.tree.body}
        return [
            Import(name, node.lineno, id(node) not in top_level)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in _imported(node)
        ]

    def is_in(self, *rooms: str) -> bool:
        return any(self.name == room or self.name.startswith(f"{room}.") for room in rooms)

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line}"


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.module is not None
    assert not node.level, f"relative import of {node.module}"
    known = {f"{node.module}.{alias.name}" for alias in node.names if _is_module(f"{node.module}.{alias.name}")}
    return sorted(known) if len(known) == len(node.names) else [node.module, *sorted(known)]


@cache
def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.joinpath("__init__.py").exists()


@cache
def modules() -> tuple[Module, ...]:
    found = []
    for package in (*PACKAGES, *BESIDE):
        for path in sorted(ROOT.joinpath(package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            text = path.read_text()
            found.append(Module(name, path, ast.parse(text), len(text.splitlines())))
    assert len(found) > 80
    return tuple(found)


def room(*names: str) -> list[Module]:
    """Return the modules of rooms; a room that is gone would let its rule pass for nothing."""
    found = [module for module in modules() if module.is_in(*names)]
    assert found, f"no module in {names}"
    return found


def breaches(found: Collection[Module], *, never: Collection[str]) -> list[str]:
    """Return where these modules import anything below one of ``never``."""
    return [
        f"{module.at(one.line)} imports {one.name}"
        for module in found
        for one in module.imports
        if any(one.name == name or one.name.startswith(f"{name}.") for name in never)
    ]


def strangers(found: Collection[Module], *, allowed: Collection[str]) -> list[str]:
    """Return where these modules import anything but ``allowed`` and the standard library."""
    return [
        f"{module.at(one.line)} imports {one.name}"
        for module in found
        for one in module.imports
        if one.top not in sys.stdlib_module_names
        and not any(one.name == name or one.name.startswith(f"{name}.") for name in allowed)
    ]


# --- between packages ------------------------------------------------------------------------------------------------


def test_the_contract_stands_on_nothing() -> None:
    """Both planes import it: whatever it needed, every worker and every replica would have to install."""
    assert strangers(room("contract"), allowed=("contract", "msgspec")) == []


def test_access_is_decided_without_looking_around() -> None:
    """Whether a caller may in must follow from its bytes, the principals and the time, or no test can show it."""
    assert strangers(room("access"), allowed=("access", "contract", "cryptography", "msgspec")) == []
    assert breaches(room("access"), never=IMPURE) == []


def test_the_planes_meet_in_the_contract_and_in_access_only() -> None:
    """A worker that could reach into the control plane would soon need its database, and its release."""
    assert strangers(room("dataplane"), allowed=("access", "contract", "dataplane", *THIRD_PARTY["dataplane"])) == []
    allowed = ("access", "contract", "controlplane", "migrations.runner", *THIRD_PARTY["controlplane"])
    assert strangers(room("controlplane"), allowed=allowed) == []


THIRD_PARTY = {
    "dataplane": ("hiredis", "httptools", "msgspec", "redis", "uvloop", "xxhash"),
    "controlplane": (*sorted(DATABASE), "fastapi", "h11", "httpx", "pydantic", "pydantic_core", "redis", "regex",
                     "starlette", "uvicorn"),
    "simulator": ("msgspec", "starlette", "uvicorn", "xxhash"),
}  # fmt: skip
"""What each part's extra in pyproject.toml installs: an import beyond it works here and fails in production."""


def test_a_simulated_host_knows_neither_plane() -> None:
    """It stands for a stranger's server; what it knew of the router would make every measurement with it void."""
    assert strangers(room("simulator"), allowed=("simulator", *THIRD_PARTY["simulator"])) == []


def test_migrations_know_the_tables_only() -> None:
    """They run before anything else does, and years after it was changed."""
    allowed = ("migrations", "controlplane.store.tables", "controlplane.store.session", *DATABASE)
    assert strangers(room("migrations"), allowed=allowed) == []
    assert strangers(room("migrations.versions"), allowed=("alembic", "sqlalchemy")) == []


def test_the_command_line_loads_a_plane_only_to_run_it() -> None:
    """A worker's machine has no fastapi and a replica's no uvloop; ``warmroute --help`` needs neither."""
    for module in room("warmroute"):
        if module.is_in("warmroute.advise") and not module.is_in("warmroute.advise.command"):
            continue
        for one in module.imports:
            if one.top in ("controlplane", "dataplane", "simulator", "migrations"):
                assert one.is_lazy, f"{module.at(one.line)} imports {one.name} before it is asked for"
    assert strangers(room("warmroute.embedded"), allowed=("warmroute",)) == []


def test_advice_is_given_with_the_products_own_decisions() -> None:
    """Keys, order and pick of the data plane and the simulator's engine: pure parts, so that its extra stays small."""
    pure = ("dataplane.routing", "simulator.calibration", "simulator.engine", "simulator.kv_cache", "simulator.request",
            "simulator.tokens")  # fmt: skip
    allowed = (*pure, "warmroute.advise", "warmroute.faults", "matplotlib", "msgspec", "tqdm", "xxhash")
    assert strangers(room("warmroute.advise"), allowed=allowed) == []
    others = [module for module in room("warmroute") if not module.is_in("warmroute.advise")]
    inner = [module.name for module in room("warmroute.advise") if module.name.count(".") == 2]
    assert breaches(others, never=[name for name in inner if name != "warmroute.advise.command"]) == []


def test_nothing_is_built_on_a_main() -> None:
    """A composition root imports everything; whoever imports it does, too, and the next cycle is there."""
    roots = ("controlplane.main", "dataplane.main", "dataplane.worker", "warmroute.cli", "simulator.command")
    others = [module for module in modules() if not module.is_in("warmroute.cli", "warmroute.__main__", *roots)]
    assert breaches(others, never=roots) == []


def test_nothing_is_built_on_what_runs_beside() -> None:
    """Tests and benchmarks are not installed."""
    assert breaches([module for module in modules() if not module.is_in(*BESIDE)], never=(*BESIDE, "tests")) == []


# --- inside the data plane -------------------------------------------------------------------------------------------


def test_routing_decides_and_does_nothing() -> None:
    """Pure decisions are tried by the thousand in tests and driven in virtual time by benchmarks; dice, clock and
    counts come in as arguments."""
    routing = room("dataplane.routing")
    assert breaches(routing, never=IMPURE | {"redis", "hiredis"}) == []
    allowed = ("contract", "dataplane.routing", "dataplane.host", "msgspec", "xxhash")
    assert strangers(routing, allowed=allowed) == []


def test_state_and_wire_do_not_know_each_other() -> None:
    """Counting and delivering are brought together in one place, invoke; else each change of one breaks the other."""
    assert breaches(room("dataplane.state"), never=("dataplane.wire", "dataplane.api")) == []
    leaves = ("dataplane.host", "dataplane.lasting")
    allowed = ("contract", "dataplane.state", "dataplane.routing", *leaves, "hiredis", "msgspec", "redis")
    assert strangers(room("dataplane.state"), allowed=allowed) == []


def test_the_wire_has_no_opinion() -> None:
    """Bytes and sockets: it must be replaceable, and fed by hand in tests, without the rest of the plane."""
    assert strangers(room("dataplane.wire"), allowed=("dataplane.wire", "dataplane.host", "httptools", "msgspec")) == []


def test_the_words_of_the_apis_are_pure() -> None:
    """Their forms are checked against botocore's model, which needs no server."""
    words = room("dataplane.api")
    assert breaches(words, never=IMPURE) == []
    allowed = ("dataplane.api", "dataplane.host", "dataplane.routing.prefix_key", "dataplane.wire.http", "msgspec")
    assert strangers(words, allowed=allowed) == []


def test_only_invoke_knows_all_the_steps() -> None:
    """Two files that know the life of a request would disagree about who releases."""
    every = ("dataplane.api", "dataplane.routing", "dataplane.wire")
    knowing = [
        module.name
        for module in room("dataplane")
        if all(breaches([module], never=(step,)) for step in (*every, "dataplane.record"))
    ]
    assert knowing == ["dataplane.invoke"]


def test_hosts_in_words_are_a_leaf() -> None:
    """Everybody speaks of hosts and failures; the words themselves need nobody."""
    assert strangers(room("dataplane.host"), allowed=()) == []


# --- inside the control plane ----------------------------------------------------------------------------------------


def test_shapes_are_pure() -> None:
    """They are walked against botocore's model, and printed as documentation, without a database."""
    assert strangers(room("controlplane.shapes"), allowed=("controlplane.shapes", "controlplane.errors", "pydantic",
                                                           "pydantic_core", "regex")) == []  # fmt: skip
    assert breaches(room("controlplane.shapes"), never=IMPURE) == []


def test_rules_are_pure() -> None:
    """The life of an endpoint is tried in every order of events; that takes tables, not a database and a clock."""
    rules = room(*RULES)
    assert len(rules) == len(RULES)
    assert breaches(rules, never=IMPURE) == []
    assert strangers(rules, allowed=RULES) == []


RULES = tuple(
    f"controlplane.{name}" for name in ("errors", "arn", "endpoint_status", "deployment", "host_health", "host_pool")
)


def test_the_store_knows_no_rules() -> None:
    """A query that decided something would be a rule that no table shows."""
    allowed = ("controlplane.store", "controlplane.errors", *DATABASE)
    assert strangers(room("controlplane.store"), allowed=allowed) == []


def test_operations_never_see_http() -> None:
    """Each is reached by two doors, and by tests without any."""
    operations = room("controlplane.operations")
    assert breaches(operations, never=(*FRAMEWORKS, "controlplane.api", "controlplane.background", "asyncio")) == []


def test_the_api_asks_operations_only() -> None:
    """A door with a query of its own is an operation that has no other door."""
    assert breaches(room("controlplane.api"), never=("controlplane.store", "controlplane.background")) == []
    assert breaches(room("controlplane.api"), never=("sqlmodel", "asyncpg")) == []


def test_reconcilers_know_no_request() -> None:
    """They take no input: what they do must follow from the rows alone, or a restart would lose it."""
    never = ("controlplane.api", "controlplane.operations", "controlplane.shapes", "fastapi", "starlette")
    assert breaches(room("controlplane.background"), never=never) == []


# --- everywhere ------------------------------------------------------------------------------------------------------

ENTRY_POINTS = {"dataplane.main", "dataplane.worker", "warmroute.cli", "warmroute.embedded.postgres"}
"""They read settings for their process or hand an environment to a child."""


def test_the_environment_is_read_once_at_the_door() -> None:
    """A setting read in passing is in no table, has no bounds, and differs between two readers."""
    readers = {
        module.name
        for module in modules()
        if not module.is_in(*BESIDE)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and _is_os(node.value)
    }
    assert readers <= ENTRY_POINTS


def _is_os(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "os"


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_functions_fit_a_screen() -> None:
    """Beyond that nobody sees every way out of one, and ways out are where counts and connections are lost."""
    long = [
        f"{module.at(node.lineno)} {node.name}: {size} lines"
        for module in modules()
        for node in functions(module.tree)
        if (size := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_modules_are_one_idea_each() -> None:
    """One that has grown past this holds two; a file that needs more changes the number in the same commit."""
    assert [f"{module.name}: {module.lines}" for module in modules() if module.lines > MODULE_LINES_MAX] == []


def test_a_module_opens_with_its_job() -> None:
    """Whoever looks for something must be able to tell from the first lines that it is not here."""
    silent = [m.name for m in modules() if not ast.get_docstring(m.tree) and any(functions(m.tree))]
    assert silent == []


@pytest.mark.parametrize("call", ["print", "breakpoint", "exit", "quit"])
def test_parts_speak_by_logs_and_answers(call: str) -> None:
    """A print in a worker lands between two lines of its access log."""
    found = [
        module.at(node.lineno)
        for module in room("access", "contract", "controlplane", "dataplane")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == call
    ]
    assert found == []
