"""What tables and sentences say of made-up figures."""

import pytest

from benchmarks.proxy.contenders import NGINX_PROXY, WARMROUTE, Contender
from benchmarks.proxy.load import JSON_2K, LOADS, STREAM, Load
from benchmarks.proxy.measure import CONNECTIONS, DIRECT, Measured, Sample
from benchmarks.proxy.tables import Comparison

PRODUCT = WARMROUTE[0]


def router(name: str, *, by_prefix: bool) -> Contender:
    return Contender(name, "policy", NGINX_PROXY.start, by_prefix=by_prefix, is_router=True)


KNOWING, BLIND = router("knowing", by_prefix=True), router("blind", by_prefix=False)
COSTS = {"direct": (0.0, 0.0), "nginx": (20.0, 100.0), PRODUCT.name: (60.0, 290.0), KNOWING.name: (100.0, 400.0),
         BLIND.name: (50.0, 200.0)}  # fmt: skip
"""CPU and latency, us."""


def comparison(
    *contenders: Contender,
    loads: tuple[Load, ...] = LOADS,
    costs: dict[str, tuple[float, float]] = COSTS,
    rounds: int = 3,
) -> Comparison:
    measured = Measured()
    for name in (DIRECT, *(one.name for one in contenders)):
        cpu, latency = costs[name]
        for load in loads:
            for connections in CONNECTIONS:
                measured.samples[name, load, connections] = [
                    # A machine that is slower round by round is slower for all.
                    Sample(cpu * slow, 5.0, 1000.0 / slow, 10.0 + latency, 20.0 + 2 * latency, 0.5)
                    for slow in range(1, rounds + 1)
                ]
        measured.memory_bytes[name] = 50_000_000
    counted = {one.name: dict.fromkeys(loads, 22_500.0) for one in contenders}
    return Comparison(contenders, loads, measured, counted)


ALL = (NGINX_PROXY, PRODUCT, KNOWING, BLIND)


def test_rows_have_a_cell_for_each_column_and_name_everybody() -> None:
    for table in comparison(*ALL).tables():
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
        if table.name != "ratios":
            assert {one.name for one in ALL} <= {row[0] for row in table.rows}


def test_costs_are_medians_with_their_spread() -> None:
    cost = comparison(*ALL).tables()[0]
    row = dict(zip(cost.columns, cost.rows[1], strict=True))
    assert row["JSON 2 KB: CPU, us"] == "120 [60, 180]"
    assert row["JSON 2 KB: requests/s"] == "500"
    assert row["RSS, MB"] == "50"
    assert row["Redis CPU, us"] == "5.0"
    assert dict(zip(cost.columns, cost.rows[0], strict=True))["Redis CPU, us"] == ""


def test_ratios_are_of_the_same_round() -> None:
    """The medians' ratio would be the same here; a slow round must not be: it is slow for both."""
    found = comparison(*ALL)
    found.measured.samples[PRODUCT.name, JSON_2K, 32][0] = Sample(6_000.0, 5.0, 1.0, 1.0, 1.0, 1.0)
    found.measured.samples["nginx", JSON_2K, 32][0] = Sample(2_000.0, 5.0, 1.0, 1.0, 1.0, 1.0)
    assert found.measured.ratio(PRODUCT.name, "nginx", JSON_2K, 32) == pytest.approx(3.0)


def test_the_product_is_compared_with_nginx_and_the_cheapest_routers() -> None:
    ratios = next(table for table in comparison(*ALL).tables() if table.name == "ratios")
    assert [row[1:3] for row in ratios.rows] == [
        ["nginx", "3.00"],
        ["the cheapest router by prefix", "0.60 (knowing policy)"],
        ["the cheapest router", "1.20 (blind policy)"],
    ]


def test_without_rivals_there_are_no_ratios() -> None:
    assert "ratios" not in {table.name for table in comparison(PRODUCT).tables()}
    assert comparison(PRODUCT).findings() == []


def test_added_latency_is_that_beyond_the_hosts_own() -> None:
    latency = next(table for table in comparison(*ALL).tables() if table.name == "latency")
    assert latency.rows[1][1:3] == ["0.29 [0.29, 0.29]", "0.58 [0.58, 0.58]"]
    assert latency.rows[-1][:3] == ["(the hosts alone)", "0.01", "0.02"]


@pytest.mark.parametrize(
    ("cpu", "latency", "said"),
    [
        (60.0, 290.0, ["3.00 times nginx's CPU a request, within the target of 4.0", "within the target of 0.7",
                       "0.29 ms added at P50 (nginx: 0.10), within the target of 0.60 ms"]),
        (81.0, 700.0, ["4.05 times nginx's CPU a request, over the target of 4.0", "over the target of 0.7",
                       "0.70 ms added at P50 (nginx: 0.10), over the target of 0.60 ms"]),
    ],
)  # fmt: skip
def test_findings_hold_the_figures_against_the_targets(cpu: float, latency: float, said: list[str]) -> None:
    found = " ".join(comparison(*ALL, costs={**COSTS, PRODUCT.name: (cpu, latency)}).findings())
    assert all(words in found for words in said)


def test_the_plot_names_each_once_and_marks_ours() -> None:
    (plot,) = comparison(*ALL, loads=(JSON_2K, STREAM)).plots()
    first, second = plot.panels
    assert [bar.label for bar in first.bars] == ["nginx", "blind policy", PRODUCT.name, "knowing policy"]
    assert [bar.label for bar in second.bars] == [""] * 4
    assert [bar.text for bar in first.bars] == ["40", "100 (2.5x)", "120 (3.0x)", "200 (5.0x)"]
    assert [bar.is_ours for bar in first.bars] == [False, False, True, False]


def test_records_have_every_measurement() -> None:
    records = comparison(*ALL).records()
    assert len(records) == (len(ALL) + 1) * len(LOADS) * len(CONNECTIONS)
    one = next(r for r in records if (r["proxy"], r["load"], r["connections"]) == (PRODUCT.name, "SSE", 32))
    assert one["cpu_us"] == [120.0, 60.0, 180.0]
    assert one["instructions"] == 22_500
    assert one["rss_mb"] == 50.0


@pytest.mark.parametrize(("share", "told"), [(0.04, False), (0.37, True)])
def test_a_machine_that_was_shared_is_told_of(share: float, told: bool) -> None:
    found = comparison(*ALL)
    found.measured.others_share = share
    assert any(said.startswith("Others used 37 % of the machine") for said in found.findings()) is told
