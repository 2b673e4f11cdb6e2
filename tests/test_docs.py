"""The documentation is true: examples print what they say, links lead somewhere, the reference is current."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest

from gossamer.algorithms import REGISTRY
from gossamer.cli import demo
from gossamer.cli.commands import COMMANDS
from gossamer.cli.kinds import GENERATORS
from gossamer.spec import build, kinds, spec_of
from gossamer.spec.kinds import PLUGINS, _families

pytestmark = pytest.mark.unoptimized

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = [ROOT / "docs" / "api.md", *(ROOT / "docs" / "api").glob("*.md")]  # its examples are doctests of the source
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def without_code(text):
    return re.sub(r"(?ms)^```.*?^```", "", text)


def anchors(page):
    headings = re.findall(r"(?m)^#+ (.*)$", without_code(page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), target
        assert not anchor or there.suffix != ".md" or anchor in anchors(there), target


@pytest.mark.parametrize("page", [p for p in PAGES if p not in REFERENCE], ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_print_what_they_say(page):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    names: dict[str, object] = {}
    for block in re.findall(r"(?ms)^```python\n(>>> .*?)\n```", page.read_text()):
        test = doctest.DocTestParser().get_doctest(block + "\n", names, page.name, str(page), 0)
        runner.run(test, clear_globs=False)
        names.update(test.globs)
    assert runner.failures == 0


def test_every_algorithm_has_a_page():
    assert {page.stem for page in (ROOT / "docs" / "algorithms").glob("*.md")} == set(REGISTRY)


def test_reference_is_current():
    script = runpy.run_path(str(ROOT / "docs" / "api.py"), run_name="api")
    written = {str(page.relative_to(ROOT / "docs")): page.read_text() for page in REFERENCE}
    assert written == script["pages"](), "run docs/api.py"


PROGRAMS = re.findall(r"(?ms)^```python\n((?!>>>).*?)^```\n\nIt prints:\n\n```\n(.*?)^```", PAGES[0].read_text())


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_readme_programs_print_what_they_say(program, printed, capsys):
    exec(compile(program, "README.md", "exec"), {})
    assert without_times(capsys.readouterr().out) == without_times(printed)


def without_times(text):
    return re.sub(r"[\d.,]+ seconds", "some seconds", text)


def test_readme_has_a_program_and_is_short():
    assert len(PROGRAMS) == 1
    assert len(PAGES[0].read_text().splitlines()) <= 150


STALE = {
    r"exists for later|no algorithm has such|not recorded|today refused|coordinates yet|Four longer": "",
    r"for now|currently|at the moment|will be|in a later|since then|(?:was|were) tried|first design": "",
    r"used to|no longer|formerly|previously|issue \d|SOUNDNESS|DESIGN\.md|STYLE\.md": "",
    r"not yet": "docs/network.md",  # samples that were read and not yet committed
    r"later release": "docs/specification.md",  # the error that refuses what a later release wrote
}
"""Words of history, of plans and of internal notes, and the one page on which they are meant otherwise."""


@every_page
def test_pages_tell_the_present(page):
    for stale, allowed in STALE.items():
        assert str(page.relative_to(ROOT)) == allowed or not re.findall(rf"\b(?:{stale})\b", page.read_text()), stale


def found(name):
    """Whether a dotted name leads to a module, or to something in one."""
    first, *rest = name.split(".")
    thing = importlib.import_module(first)
    for place, part in enumerate(rest, start=1):
        if not hasattr(thing, part):
            try:
                importlib.import_module(".".join([first, *rest[:place]]))
            except ImportError:
                return False
        thing = getattr(thing, part)
    return True


SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("page", [*PAGES, *SOURCES], ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_code_and_of_files_exist(page):
    text = page.read_text()
    names = set(re.findall(r"\bgossamer(?:\.[A-Za-z_]\w*)+", text)) - {PLUGINS}
    assert [name for name in names if not found(name)] == []
    places = set(re.findall(r"(?<![\w/.])(?:src|tests|bench|docs|examples|tools)/[\w./-]*\w", text))
    assert [place for place in places if not (ROOT / place).exists()] == []
    commands = [ROOT / name.replace(".", "/") for name in re.findall(r"-m (bench\.\w+)", text)]
    assert [one for one in commands if not (one.with_suffix(".py").exists() or (one / "__main__.py").exists())] == []


NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
COUNTED = {
    "algorithms": len(REGISTRY),
    "papers": len(list((ROOT / "src" / "gossamer" / "experiments" / "papers").glob("paper_00?*"))),
    "commands": len(COMMANDS),
    "settings": sum(getattr(one, "__annotations__", {}).get("return") is demo.Setting for one in vars(demo).values()),
    "families": len(list((ROOT / "src" / "gossamer" / "algorithms").glob("*/__init__.py"))),
    "topologies": len(kinds("topology")),
    "problems": len(kinds("problem")),
}


@every_page
def test_counts_are_those_of_the_code(page):
    """Where a page says how many of a thing there are in all, so many there are."""
    claims = rf"(?i)\b(?:all|the|in) (\d+|{'|'.join(NUMBERS)}) ({'|'.join(COUNTED)})\b"
    for number, what in re.findall(claims, page.read_text()):
        said = int(number) if number.isdigit() else NUMBERS.index(number.lower())
        assert said == COUNTED[what.lower()], f"{number} {what}"


def test_the_list_of_algorithms_is_that_of_the_registry():
    page = (ROOT / "docs" / "algorithms.md").read_text()
    rows = re.findall(r"(?m)^\| \[`(\w+)`\]\(algorithms/\w+\.md\) \| (\w+) \|", page)
    assert dict(rows) == {name: entry.network for name, entry in REGISTRY.items()}
    assert len(rows) == len(REGISTRY)


def test_every_word_of_the_vocabulary_is_an_option():
    _, table = (ROOT / "docs" / "algorithms.md").read_text().split("## Options")
    words = [word for cell in re.findall(r"(?m)^\| (`.*?) \|", table) for word in re.findall(r"`(\w+)`", cell)]
    known = {name for entry in REGISTRY.values() for name in inspect.signature(entry.make).parameters}
    assert len(words) >= 15
    assert set(words) <= known


def test_the_toml_format_names_every_kind():
    page = (ROOT / "docs" / "command-line.md").read_text()
    words = [name for family in ("problem", "set", "topology") for name, one in kinds(family).items() if one.readable]
    words += GENERATORS
    assert [word for word in words if ":" not in word and f"`{word}`" not in page and f'"{word}"' not in page] == []


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_tree_has_every_package():
    shown, above = set(), []
    for indent, name in re.findall(r"(?m)^( +)(\w+)/ ", ARCHITECTURE):
        above[len(indent) // 2 - 1 :] = [name]
        shown.add("/".join(above))
    base = ROOT / "src" / "gossamer"
    assert shown == {str(file.parent.relative_to(base)) for file in base.rglob("__init__.py")} - {"."}


def test_the_picture_of_the_layers_is_current():
    script = runpy.run_path(str(ROOT / "docs" / "layers.py"), run_name="layers")
    assert (ROOT / "docs" / "images" / "layers.svg").read_text() == script["picture"](), "run docs/layers.py"


def test_walks_have_one_file_for_each_hop():
    walks = re.findall(r"(?s)passes (\d+) files(.*?)\n\n(?!\|)", ARCHITECTURE)
    assert len(walks) == 2
    for number, walk in walks:
        hops = re.findall(r"(?m)^\| (\d+) \| `(src/gossamer/[\w/]+\.py)` \|", walk)
        assert [int(hop) for hop, _ in hops] == list(range(1, int(number) + 1))
        assert len({file for _, file in hops}) == len(hops)
        assert all((ROOT / file).is_file() for _, file in hops)


def test_the_kinds_of_a_page_can_be_written_down_and_read_back(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "specification.md").read_text()
    (source,) = re.findall(r"(?ms)^```python\n# clinic/models.py\n(.*?)^```", page)
    (table,) = re.findall(r"(?ms)^```toml\n(\[problem\].*?)^```", page)
    (package,) = re.findall(r"(?ms)^```toml\n(# pyproject.toml.*?)^```", page)
    (tmp_path / "clinic").mkdir()
    (tmp_path / "clinic" / "models.py").write_text(source)
    named = tomllib.loads(package)["project"]["entry-points"][PLUGINS]
    (tmp_path / "clinic-1.dist-info").mkdir()
    (tmp_path / "clinic-1.dist-info" / "entry_points.txt").write_text(f"[{PLUGINS}]\nclinic = {named['clinic']}\n")
    (tmp_path / "clinic-1.dist-info" / "METADATA").write_text("Name: clinic\nVersion: 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        for problem in (tomllib.loads(table)["problem"], {"kind": "clinic.models:Readings", "dim": 2}):
            assert spec_of(build("[problem]", problem, "problem")) == problem
    finally:
        _families["problem"].pop("clinic-risk", None)
        for module in ("clinic.models", "clinic"):
            sys.modules.pop(module, None)
