"""A report is one file, says what was run, and loads nothing from outside."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer import Run, algorithms, problems, simulate, streams, topology
from gossamer.reports import Network, Part, Report, Table, network_of, summarize, summary_table
from gossamer.reports.blocks import inline, table_block
from gossamer.reports.figures import MOST_NODES, curves, networks, scale_of
from gossamer.reports.html import CONFIDENTIAL, PUBLIC
from gossamer.simulation.plot import MOST_ACCURACIES, bands, figure, measured, spread


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
        notes=("Mind `a < b`.",),
        command="gossamer run x.toml",
    )


@pytest.fixture(scope="module")
def run() -> Run:
    return run_of()


@pytest.fixture(scope="module")
def page(run: Run) -> str:
    return report_of(run).html()


class Loads(HTMLParser):
    """Everything that a browser would fetch for a page, the text that it would show, and what tables stand in."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.shown: list[str] = []
        self.around_tables: list[tuple[str, str | None]] = []
        self._inside = ""
        self._before: tuple[str, str | None] = ("", None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        if tag == "table":
            self.around_tables.append(self._before)
        self._before = (tag, dict(attrs).get("class"))
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


def layouts(page: str) -> list[dict[str, Any]]:
    """Of all figures."""
    figures = re.findall(r'<script type="application/json">(.*?)</script>', page, flags=re.DOTALL)
    return [json.loads(each)["layout"] for each in figures]


def visible(page: str) -> str:
    """The text that a browser shows."""
    loads = Loads()
    loads.feed(page)
    return "\n".join(loads.shown)


def test_plotly_is_inside_once(page: str) -> None:
    assert page.count("plotly.js v") == 1
    assert page.count('<div class="plot">') == len(layouts(page)) == 3


def test_the_page_shows_the_table_the_guarantee_and_the_command(parsed: Loads, run: Run) -> None:
    text = "\n".join(parsed.shown)
    *numbers, guarantee = summary_table(run).rows
    assert all(cell in text for row in numbers for cell in row)
    assert text.count(guarantee[1]) == 1
    assert run.algorithm.rsplit("\n", 1)[0] in text
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
    assert network_of(run, algorithms.centralized_ogd(problems.Linear(3), 4, step=0.1).graph) is None
    assert network_of(replace(run, losses=run.losses[:, :1]), ring) is None
    many = MOST_NODES + 1
    assert network_of(replace(run, losses=np.zeros((50, many))), topology.ring(many)) is None


def test_bands_reach_from_worst_to_best(run: Run) -> None:
    assert run.accuracy is not None
    high, low, mean = (np.asarray(trace.y) for trace in curves({"d_ogd": run})[1].figure.data)
    np.testing.assert_allclose(high, run.accuracy.max(axis=1))
    np.testing.assert_allclose(low, run.accuracy.min(axis=1))
    np.testing.assert_allclose(mean, run.accuracy.mean(axis=1))


def test_bands_of_several_seeds_are_seeds() -> None:
    several = run_of(seed=None, seeds=[0, 1, 2])
    assert bands(several).startswith("The line is the mean over 3 seeds, each the mean over its learners;")
    values = np.arange(2 * 5 * 4.0).reshape(2, 5, 4)
    np.testing.assert_allclose(spread(values).low, values[0].mean(axis=1))
    np.testing.assert_allclose(spread(values).high, values[1].mean(axis=1))
    one = run_of(seed=None, seeds=[0])
    assert bands(one) == bands(run_of())
    np.testing.assert_array_equal(spread(values[:1]).high, spread(values[0]).high)
    assert "there is no band" in bands(replace(several, losses=several.losses[0, :, :1]))
    assert bands(replace(several, losses=several.losses[..., :1])).startswith("The line is the mean over 3 seeds;")


def test_a_plot_names_its_axes_and_says_what_its_bands_are(run: Run) -> None:
    layout = figure([run]).layout
    assert [axis.title.text for axis in (layout.xaxis, layout.xaxis2)] == ["step", "step"]
    assert [axis.title.text for axis in (layout.yaxis, layout.yaxis2)] == ["average loss", "accuracy of predictions"]
    assert layout.title.text == bands(run)


def test_many_rows_are_merged_to_points_that_count_every_prediction(run: Run) -> None:
    rows = 3 * MOST_ACCURACIES + 1
    steps = np.cumsum(np.random.default_rng(0).integers(1, 5, rows))
    values = np.random.default_rng(1).random((rows, 4))
    (points,) = measured([replace(run, steps=steps, losses=values, accuracy=values)])["accuracy of predictions"]
    assert len(points.steps) == MOST_ACCURACIES
    assert points.steps[-1] == steps[-1]
    total = (points.values * np.diff(points.steps, prepend=0)[:, None]).sum(axis=0)
    np.testing.assert_allclose(total, (values * np.diff(steps, prepend=0)[:, None]).sum(axis=0))


def test_losses_that_can_be_negative_or_hardly_differ_get_a_linear_axis(run: Run) -> None:
    def kind(losses: np.ndarray[Any, Any]) -> str | None:
        return curves({"a": replace(run, losses=losses)})[0].figure.layout.yaxis.type  # type: ignore[no-any-return]

    wide = np.ones_like(run.losses)
    wide[0] = 1000.0
    assert kind(wide) == "log"
    assert kind(wide - 1000) is None
    assert kind(np.ones_like(run.losses)) is None


def test_losses_of_a_network_are_good_where_they_are_low() -> None:
    pair = Network("pair", topology.complete(2), (0.5, 0.25), ("0", "1"), "average loss")
    assert scale_of([pair]).ends == ("0.25", "0.5")
    assert scale_of([pair]).colours == scale_of([replace(pair, meaning="accuracy")]).colours[::-1]
    assert "average loss 0.500" in networks([pair])[0].figure.data[1].hovertext[0]


def test_every_table_scrolls(parsed: Loads) -> None:
    assert parsed.around_tables == [("div", "scroll")]


def test_numbers_stand_on_the_right_and_texts_on_the_left() -> None:
    rows = (
        ("a", "1,234", "3.1\N{NO-BREAK SPACE}± 0.2", "93.1%", "5 of them", "-"),
        ("b", "-0.5", "3.0 (one run)", "-", "7", "1e-05"),
    )
    page = table_block(Table(("run", "steps", "loss", "accuracy", "what", "delta"), rows), {"a": "good"})
    assert re.findall(r'<th class="number">(\w+)', page) == ["steps", "loss", "accuracy", "delta"]
    assert '<td class="good">a</td>' in page
    assert "<td>5 of them</td>" in page


def test_axes_are_named(page: str) -> None:
    loss, accuracy, network = layouts(page)
    assert [each["xaxis"]["title"]["text"] for each in (loss, accuracy)] == ["step", "step"]
    assert [each["yaxis"]["title"]["text"] for each in (loss, accuracy)] == ["average loss", "accuracy of predictions"]
    assert network["xaxis"]["visible"] is False
    assert all("width" not in each and each["paper_bgcolor"] == "rgba(0,0,0,0)" for each in (loss, accuracy, network))


def test_backticks_are_code(parsed: Loads, page: str) -> None:
    assert "Mind <code>a &lt; b</code>." in page
    assert "`" not in "".join(parsed.shown)
    assert inline("``x`` and `<y>`") == "<code>x</code> and <code>&lt;y&gt;</code>"


def test_data_of_a_figure_cannot_end_its_script(run: Run) -> None:
    page = replace(report_of(run), runs={"</script><b>": run}).html()
    assert len(layouts(page)) == 3
    assert "</script><b>" not in page


def test_the_style_knows_the_dark_paper_and_narrow_screens(page: str) -> None:
    style = page.split("<style>")[1].split("</style>", maxsplit=1)[0]
    for rule in ("@media screen and (prefers-color-scheme: dark)", "@media print", "@media (max-width"):
        assert rule in style
    assert 'name="viewport" content="width=device-width' in page


@pytest.mark.parametrize(("public", "mode", "said"), [(False, 0o600, CONFIDENTIAL), (True, 0o644, PUBLIC)])
def test_a_page_says_who_may_read_it_and_has_that_mode(
    public: bool, mode: int, said: str, run: Run, tmp_path: Path
) -> None:
    place = replace(report_of(run), public=public).write(tmp_path / "report.html")
    assert stat.S_IMODE(place.stat().st_mode) == mode
    assert [text in visible(place.read_text(encoding="utf-8")) for text in (CONFIDENTIAL, PUBLIC)] == [
        not public,
        public,
    ]
    assert f"(mode {mode:o})" in said


def test_parts_have_their_own_numbers_curves_and_guarantees(run: Run) -> None:
    table = Table(("setting", "loss"), (("ring", "17.25"),))
    parts = (
        Part("First & best", ("Hello.",), table, {"mine": run, "yours": run}),
        Part("Second", notes=("Only a note.",)),
    )
    page = replace(report_of(run), runs={}, networks=(), parts=parts).html()
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["Results", "First &amp; best", "Second", "Run it again"]
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["Results", "Guarantee", "Over time", "What ran"]
    assert len(layouts(page)) == 2
    guarantee = page.split("<h3>Guarantee</h3>")[1].split("<h3>")[0]
    assert guarantee.count(run.guarantee.sentence()) == 1
    assert page.count("border-top:3px solid #") == 2


def test_names_stand_before_what_differs(run: Run) -> None:
    secret = replace(run, guarantee=replace(run.guarantee, reason="nothing is hidden"))
    page = replace(report_of(run), runs={"a": run, "b": secret, "c": secret}).html()
    assert "<p><b>b, c:</b> No privacy guarantee: nothing is hidden.</p>" in page


def test_a_report_needs_no_network(run: Run) -> None:
    page = replace(report_of(run), networks=()).html()
    assert "The network" not in page
    assert replace(report_of(run), table=Table(("only",), (("17.25",),))).html().count("17.25") == 1
