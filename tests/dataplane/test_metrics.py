import re
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.metrics import COUNTERS, GAUGES, HISTOGRAMS, PAST, Metrics, absorb

SAMPLE = re.compile(r'^(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
UNESCAPE = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Read Prometheus' text format strictly: (name, label values) -> value."""
    found = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.match(r"^# (HELP \w+ .+|TYPE \w+ (counter|gauge|histogram))$", line), line
            continue
        match = SAMPLE.match(line)
        assert match, line
        values = tuple(re.sub(r"\\.", lambda m: UNESCAPE[m[0]], value) for _, value in LABEL.findall(match[2] or ""))
        key = (match[1].removeprefix("warmroute_"), values)
        assert key not in found, f"{key} twice"
        found[key] = float(match[3])
    return found


def read(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    return samples(metrics.text())


def test_every_metric_is_described_even_before_it_has_a_value() -> None:
    text = Metrics().text()
    for name in (*COUNTERS, *GAUGES, *HISTOGRAMS):
        assert text.count(f"# HELP warmroute_{name} ") == 1
        assert text.count(f"# TYPE warmroute_{name} ") == 1
    assert samples(text) == {}


def test_counters_are_named_as_counters() -> None:
    assert all(name.endswith("_total") for name in COUNTERS)
    assert not any(name.endswith("_total") for name in (*GAUGES, *HISTOGRAMS))
    assert all(name.endswith("_seconds") for name in HISTOGRAMS)


def test_counts_add_up() -> None:
    metrics = Metrics()
    metrics.count("requests_total", ("e", "invoke", "200"))
    metrics.count("requests_total", ("e", "invoke", "200"), 2)
    metrics.count("requests_total", ("e", "invoke", "424"))
    metrics.count("store_calls_total")
    assert read(metrics) == {
        ("requests_total", ("e", "invoke", "200")): 3,
        ("requests_total", ("e", "invoke", "424")): 1,
        ("store_calls_total", ()): 1,
    }


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=30))
def test_histograms_hold_what_was_observed(values: list[float]) -> None:
    metrics = Metrics()
    for value in values:
        metrics.observe("request_seconds", ("e",), value)
    found = read(metrics)
    buckets = {labels[1]: count for (name, labels), count in found.items() if name == "request_seconds_bucket"}
    for bound, count in buckets.items():
        assert count == sum(value <= float(bound.replace("+Inf", "inf")) for value in values)
    assert buckets["+Inf"] == found["request_seconds_count", ("e",)] == len(values)
    assert found["request_seconds_sum", ("e",)] == pytest.approx(sum(values), abs=1e-4)


def test_a_gauge_is_replaced_whole() -> None:
    metrics = Metrics()
    metrics.set_all("in_flight", {("e", "v", "a"): 1, ("e", "v", "b"): 2})
    metrics.set_all("in_flight", {("e", "v", "b"): 3})
    assert read(metrics) == {("in_flight", ("e", "v", "b")): 3}


@given(st.text(st.characters(codec="utf-8"), max_size=12))
def test_any_label_value_is_written_so_that_it_can_be_read(value: str) -> None:
    """Identities are the operator's; a quote or a line end in one must not break a scrape."""
    metrics = Metrics()
    metrics.count("ejections_total", (value,))
    lines = [line for line in metrics.text().split("\n") if line and not line.startswith("#")]
    assert len(lines) == 1
    match = LABEL.search(lines[0])
    assert match
    assert re.sub(r"\\.", lambda m: UNESCAPE[m[0]], match[2]) == value


# --- several workers -------------------------------------------------------------------------------------------------


def test_any_worker_answers_for_all(tmp_path: Path) -> None:
    workers = [Metrics(tmp_path, slot) for slot in range(3)]
    for number, metrics in enumerate(workers, start=1):
        metrics.count("requests_total", ("e", "invoke", "200"), number)
        metrics.observe("request_seconds", ("e",), 0.002)
        metrics.set_all("in_flight", {("e", "v", "a"): number})
        metrics.set_all("store_up", {(): 0.0 if number == 2 else 1.0})
        metrics.set_all("routes_generation", {(): 10 + number})
        metrics.set_all("instances_available", {("e", "v"): 5 - number})
        metrics.set_all("workers", {(): 1})
        metrics.publish()
    for metrics in workers:
        found = read(metrics)
        assert found["requests_total", ("e", "invoke", "200")] == 6
        assert found["request_seconds_count", ("e",)] == 3
        assert found["request_seconds_sum", ("e",)] == pytest.approx(0.006)
        assert found["in_flight", ("e", "v", "a")] == 6
        assert found["workers", ()] == 3
        assert found["store_up", ()] == 0, "the least"
        assert found["routes_generation", ()] == 11, "the oldest"
        assert found["instances_available", ("e", "v")] == 2, "the least optimistic"


def test_ones_own_numbers_are_those_of_now(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, 0)
    metrics.publish()
    metrics.count("store_calls_total")
    assert read(metrics)["store_calls_total", ()] == 1


def test_the_counters_of_workers_that_ended_stay(tmp_path: Path) -> None:
    """A sum that fell would read as a restart of everything."""
    for name in ("1-10", "0-11", "1-12"):
        ended = Metrics(tmp_path, name)
        ended.count("store_calls_total", amount=5)
        ended.observe("router_seconds", ("home",), 0.1)
        ended.set_all("client_connections", {(): 7})
        ended.publish()
        absorb(tmp_path, name)
        absorb(tmp_path, name)
    living = Metrics(tmp_path, "1-13")
    living.count("store_calls_total")
    found = read(living)
    assert found["store_calls_total", ()] == 16
    assert found["router_seconds_count", ("home",)] == 3
    assert ("client_connections", ()) not in found, "a gauge is of the living"
    assert [file.name for file in tmp_path.iterdir()] == [PAST]


def test_a_worker_whose_file_is_still_there_counts_once(tmp_path: Path) -> None:
    ended = Metrics(tmp_path, "0-1")
    ended.count("store_calls_total")
    ended.publish()
    with patch("dataplane.metrics.Path.unlink"):
        absorb(tmp_path, "0-1")
    assert read(Metrics(tmp_path, "0-2"))["store_calls_total", ()] == 1


def test_the_gauges_of_a_worker_that_is_gone_end_its_counters_stay(tmp_path: Path) -> None:
    gone, here = Metrics(tmp_path, 0), Metrics(tmp_path, 1)
    gone.count("store_calls_total")
    gone.set_all("in_flight", {("e", "v", "a"): 4})
    with patch("dataplane.metrics.time.time", return_value=time.time() - 60):
        gone.publish()
    assert read(here) == {("store_calls_total", ()): 1}


@pytest.mark.parametrize("data", [b"", b"no msgpack", b"\x80", b"\xc1"])
def test_a_damaged_file_is_passed_over(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "0.metrics").write_bytes(data)
    assert read(Metrics(tmp_path, 1)) == {}
    assert read(Metrics(tmp_path, 0)) == {}


def test_a_file_is_never_seen_half_written(tmp_path: Path) -> None:
    Metrics(tmp_path, 3).publish()
    assert [file.name for file in tmp_path.iterdir()] == ["3.metrics"]


def test_alone_nothing_is_written() -> None:
    metrics = Metrics()
    metrics.count("store_calls_total")
    metrics.publish()
    assert read(metrics) == {("store_calls_total", ()): 1}


def test_metrics_that_cannot_be_kept_are_said_once_and_stop_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics(tmp_path / "gone", "0-1")
    metrics.count("store_calls_total")
    for _ in range(3):
        metrics.publish()
    assert caplog.text.count("cannot be kept") == 1
    assert "warmroute_store_calls_total 1" in metrics.text()
    (tmp_path / "gone").mkdir()
    metrics.publish()
    assert "warmroute_store_calls_total 1" in Metrics(tmp_path / "gone", "1-2").text()
