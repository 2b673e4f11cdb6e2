"""A report is one file, says what was run, and loads nothing from outside."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from gossamer import Run, algorithms, problems, simulate, streams, topology
from gossamer.core import Federation
from gossamer.reports import Report, Table, network_of, summarize, summary_table
from gossamer.reports.figures import MOST_NODES, curves


def run_of(learners: int = 4, **options: object) -> Run:
    problem = problems.Logistic(3)
    algorithm = algorithms.d_ogd(problem, topology.ring(learners), step=0.5)
    stream = streams.smooth_cycle_logistic(learners, 3, seed=1)
    return simulate(algorithm, stream, 50, progress=False, **({"seed": 0} | options))  # type: ignore[arg-type]


def report_of(run: Run) -> Report:
    picture = network_of(run, topology.ring(4))
    assert picture is not None
    return Report(
        title="A <title> & more",
        introduction=("First.", "Second."),
        table=summary_table(run),
        runs={run.name: run},
        networks=(picture,),
        caption="Who is where.",
        notes=("Mind this.",),
        command="gossamer run x.toml",
    )


@pytest.fixture(scope="module")
def run() -> Run:
    return run_of()


@pytest.fixture(scope="module")
def page(run: Run) -> str:
    return report_of(run).html()


class Loads(HTMLParser):
    """Everything that a browser would fetch for a page, and the text that it would show."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.shown: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.fetched += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "data")]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.fetched += re.findall(r"url\([^)]*\)|@import[^;]*", data)
        elif self._inside != "script":
            self.shown.append(data)


@pytest.fixture(scope="module")
def parsed(page: str) -> Loads:
    loads = Loads()
    loads.feed(page)
    return loads


def test_nothing_is_fetched(parsed: Loads) -> None:
    assert parsed.fetched == []


def test_the_check_of_fetching_can_fail() -> None:
    loads = Loads()
    loads.feed('<script src="https://cdn.plot.ly/x.js"></script><style>body {background: url(http://a/b)}</style>')
    assert len(loads.fetched) == 2


def test_plotly_is_inside_once(page: str) -> None:
    assert page.count("plotly.js v") == 1
    assert page.count("Plotly.newPlot(") >= 2


def test_the_page_shows_the_table_the_guarantee_and_the_command(parsed: Loads, run: Run) -> None:
    text = "\n".join(parsed.shown)
    for row in summary_table(run).rows:
        assert all(cell in text for cell in row)
    assert run.guarantee.sentence() in text
    assert run.algorithm in text
    assert "gossamer run x.toml" in text
    assert re.search(r"Gossamer \d.*Python 3.*jax \d.*plotly \d", text)


def test_texts_are_escaped(page: str) -> None:
    assert "<h1>A &lt;title&gt; &amp; more</h1>" in page


def test_write_says_where(run: Run, tmp_path: Path) -> None:
    place = report_of(run).write(tmp_path / "report.html")
    assert place.is_absolute()
    assert place.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_summary_by_hand(run: Run) -> None:
    assert run.accuracy is not None
    numbers = summarize(run)
    assert numbers.average_loss == pytest.approx(run.losses.mean(), rel=1e-12)
    assert numbers.accuracy == pytest.approx(run.accuracy[-5:].mean(), rel=1e-12)
    assert numbers.consensus == pytest.approx(run.consensus[-5:].mean(), rel=1e-12)


def test_summary_over_several_seeds_is_the_mean() -> None:
    several = run_of(seed=None, seeds=[0, 1])
    assert summarize(several) == pytest.approx(summarize(run_of()))


def test_networks_are_drawn_only_where_they_say_something(run: Run) -> None:
    ring = topology.ring(4)
    picture = network_of(run, ring)
    assert picture is not None
    assert run.accuracy is not None
    assert picture.values == pytest.approx(run.accuracy[-5:].mean(axis=0))
    assert network_of(run, Federation(4)) is None
    assert network_of(replace(run, losses=run.losses[:, :1]), ring) is None
    many = MOST_NODES + 1
    assert network_of(replace(run, losses=np.zeros((50, many))), topology.ring(many)) is None


def test_bands_reach_from_worst_to_best(run: Run) -> None:
    assert run.accuracy is not None
    high, low, mean = (np.asarray(trace.y) for trace in curves({"d_ogd": run}).data[3:])
    np.testing.assert_allclose(high, run.accuracy.max(axis=1))
    np.testing.assert_allclose(low, run.accuracy.min(axis=1))
    np.testing.assert_allclose(mean, run.accuracy.mean(axis=1))


def test_losses_that_can_be_negative_get_a_linear_axis(run: Run) -> None:
    assert curves({"a": run}).layout.yaxis.type == "log"
    assert curves({"a": replace(run, losses=run.losses - 10)}).layout.yaxis.type is None


def test_a_report_needs_no_network(run: Run) -> None:
    page = replace(report_of(run), networks=()).html()
    assert "The network" not in page
    assert replace(report_of(run), table=Table(("only",), (("17.25",),))).html().count("17.25") == 1
