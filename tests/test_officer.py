"""The report for a data-protection officer: true, readable, and never there for a ledger that does not verify."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from gossamer import Budget, algorithms, problems, topology
from gossamer.cli import app
from gossamer.data.schema import Choice, Number, Schema
from gossamer.net import Agreement, Identity, Ledger, NodeDirectory, Pace, Settings, Spent, prepared, try_network
from gossamer.net.membership.documents import write as document
from gossamer.net.node.spending import Cost, added_up, costs_of
from gossamer.net.registry import Known, Registry, default_registry
from gossamer.privacy import Assumption, Gaussian, Guarantee, Pure
from gossamer.privacy.guarantee import rounded_up
from gossamer.privacy.meaning import best_guess, in_hundred, most_belief, most_hits
from gossamer.reports.officer import gathered, html, words
from gossamer.reports.officer.facts import Agreed
from gossamer.reports.officer.page import code_of
from tests.lives import hub
from tests.test_launch import alone, go, opened, say
from tests.test_registry import growing
from tests.test_reports import Loads

__all__ = ["hub"]  # nodes speak in memory, and this machine has a folder of its own

EVIL = "<script>alert(1)</script>\"'><img src=http://evil/x onerror=alert(2)>"


@pytest.fixture
def node(tmp_path: Path) -> NodeDirectory:
    made = alone(tmp_path / "one")
    go(made, 4)
    return made


def report(place: Path, *options: str) -> tuple[int, str, Path]:
    """Exit status, what was said, and where the report would be."""
    out = place.parent / f"{place.name}.report.html"
    done = CliRunner().invoke(app, ["ledger", "report", str(place), "--out", str(out), *options])
    return done.exit_code, " ".join((done.stdout + done.stderr).split()), out


def shown(page: str) -> str:
    loads = Loads()
    loads.feed(page)
    return " ".join(" ".join(loads.shown).split())


def exported(node: NodeDirectory, out: Path) -> Path:
    assert CliRunner().invoke(app, ["ledger", "export", str(node.path), "--out", str(out)]).exit_code == 0
    return out


# What it says


def test_it_says_what_guarantee_and_ledger_say(node: NodeDirectory) -> None:
    code, said, out = report(node.path)
    assert code == 0, said
    text = shown(out.read_text())
    with Ledger.open(node.ledger, read_only=True) as ledger:
        cost, promise, last = costs_of(ledger)[0], ledger.promise, ledger.last
    assert promise is not None
    assert last.hash in said
    epsilon, delta = map(rounded_up, added_up([cost]))
    for wanted in (
        promise.sentence(),
        last.hash,
        f"epsilon {epsilon} and delta {delta}. It does not grow with more exchanges",
        "6 rows, each tied to the one before; the witness agrees",
        *(one.claim for one in promise.assumptions),
        *(one.enforced_by for one in promise.assumptions),
        "gossamer/core/flow.py",
        "computed again from the signed agreement: it is the same",
        f"right in at most {in_hundred(best_guess(*added_up([cost])))} of 100",
        NodeDirectory(node.path).members().fingerprint,
        "this site has accepted them",
        "pd_ogd",
        "no other run over these data",
        "gossamer ledger verify node-0",
    ):
        assert wanted in text, wanted
    assert '<span class="good">Proven' in out.read_text()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_name_is_no_command(node: NodeDirectory) -> None:
    moved = node.path.rename(node.path.parent / "x; rm -rf $HOME")
    assert "<pre>gossamer ledger verify &#x27;x; rm -rf $HOME&#x27;</pre>" in html(gathered(moved))


def test_it_loads_nothing_and_needs_no_script(node: NodeDirectory) -> None:
    page = html(gathered(node.path))
    loads = Loads()
    loads.feed(page)
    assert loads.fetched == []
    assert "<script" not in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_a_run_whose_cost_grows_says_so_and_how_far(tmp_path: Path) -> None:
    algorithm = growing()
    node = alone(tmp_path / "one", prepared(algorithm))
    go(node, 10, algorithm)
    facts = gathered(node.path)
    text = shown(html(facts))
    assert [point.exchange for point in facts.growth] == [0, 1, 3, 7]
    assert facts.growth[-1].epsilon == added_up([facts.spent])[0] < added_up([facts.promised])[0]
    assert "It grows while the network goes on, up to epsilon 1 " in text
    assert "After 64 steps the program releases nothing more" in text
    say(node, "[budget]\nepsilon = 0.7\ndelta = 1e-6")
    go(node, 64, algorithm)
    assert "this run has ended, and the program refuses to go on" in shown(html(gathered(node.path)))


def test_what_all_runs_over_the_data_cost_is_said(tmp_path: Path) -> None:
    nodes = [alone(tmp_path / name) for name in ("one", "two", "three")]
    for made in nodes:
        go(made, 2)
    shutil.rmtree(nodes[2].path)
    facts = gathered(nodes[0].path)
    text = shown(html(facts))
    assert added_up(facts.together)[0] == pytest.approx(3.0, rel=1e-5)
    assert f"3 runs over these data have spent epsilon {rounded_up(added_up(facts.together)[0])}" in text
    assert f"{nodes[2].path} (gone)" in text
    assert f"a guess is right in at most {in_hundred(best_guess(*added_up(facts.together)))} of 100" in text


def test_runs_that_protect_another_unit_are_not_added(node: NodeDirectory, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    Ledger.create(other, Identity("a1", 0, "b2", "meters", "c3"))
    with Ledger.open(other) as ledger, closing(Registry(default_registry())) as registry:
        ledger.begin("r", Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,), observer="wiretap"))
        ledger.commit("release", 0, 0, [Spent("x", 1, Pure(1.0))], {}, b"state")
        registry.enter(ledger, tmp_path)
    assert "do not protect the same" in shown(html(gathered(node.path)))


def test_an_export_is_reported_with_what_it_knows(node: NodeDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    file = exported(node, node.path.parent / "rows.jsonl")
    monkeypatch.setenv("XDG_STATE_HOME", str(node.path.parent / "the auditor's machine"))
    code, said, out = report(file)
    assert code == 0, said
    text = shown(out.read_text())
    assert "an export: the chain only" in text
    assert "Only the ledger was given" in text
    assert "without the node's directory nothing was computed again" in text
    assert '<span class="open">Proven' in out.read_text()
    assert "No registry on this machine knows this run" in text


def test_a_node_that_runs_is_reported(node: NodeDirectory) -> None:
    running = opened(node, 6)
    with running.opened:
        code, said, out = report(node.path)
        assert code == 0, said
        running.node.run()
    assert "6 rows" in shown(out.read_text())
    assert "8 rows" in shown(html(gathered(node.path)))


def test_media_that_nobody_can_write_to(node: NodeDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite would make two files beside a database, to read it."""
    for name in ("ledger.db-wal", "ledger.db-shm"):
        (node.path / name).unlink(missing_ok=True)
    before = sorted(node.path.iterdir())
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(sqlite3, "connect", _without_writing(sqlite3.connect))
    assert "intact" in shown(html(gathered(node.path)))
    assert sorted(node.path.iterdir()) == before


def _without_writing(connect: Callable[..., Any]) -> Callable[..., Any]:
    def connected(place: str, **options: Any) -> Any:
        assert place.endswith("mode=ro&immutable=1")
        return connect(place, **options)

    return connected


def test_a_run_that_protects_nobody_says_so_first(tmp_path: Path) -> None:
    algorithm = algorithms.d_ogd(problems.Logistic(3, feature_bound=1.0), topology.isolated(1), step=0.1)
    hosts = ["127.0.0.1"]
    (made,) = try_network(
        tmp_path / "one", algorithm, hosts=hosts, pace=Pace(patience=0.1, period=0.01), exchanges=9, no_guarantee=True
    )
    go(made, 2, algorithm)
    page = html(gathered(made.path))
    assert '<span class="bad">No protection: this run protects nobody.</span>' in page
    assert "Nothing is bounded" in page
    assert "<svg" not in page


def ledger_of(folder: Path, promise: Guarantee, source: str = "meters") -> Path:
    """A ledger by itself, with one release."""
    path = folder / "rows.db"
    Ledger.create(path, Identity("a1", 0, "b2", source, "c3"))
    with Ledger.open(path) as ledger:
        ledger.begin("run", promise)
        ledger.commit("release", 0, 0, [Spent("x", 1, loss) for loss in promise.losses], {}, b"state")
    return path


def test_what_nothing_enforces_is_marked(tmp_path: Path) -> None:
    loose = (Assumption("the <i>weather</i> is fine"), Assumption("sun", "os.system"))
    promise = Guarantee("heuristic", "", (Gaussian(0.5),), (1e-5,), assumptions=loose)
    page = html(gathered(ledger_of(tmp_path, promise)))
    assert '<td class="bad">NOTHING ENFORCES THIS</td>' in page
    assert "Not fully enforced" in page
    assert "<i>weather" not in page


def test_a_large_epsilon_is_no_number_out_of_range(tmp_path: Path) -> None:
    promise = Guarantee("proven", losses=(Pure(5000.0),), deltas=(0.0,))
    assert "at most 10^2172 times" in shown(html(gathered(ledger_of(tmp_path, promise))))
    assert "right in at most 100 of 100" in shown(html(gathered(tmp_path / "rows.db")))


# Others' words


def test_nothing_that_others_wrote_is_more_than_text(tmp_path: Path) -> None:
    """Source, members, columns, directories, and the claims of a guarantee."""
    bidi = "ab\u202ecd"
    promise = Guarantee("proven", EVIL, (Pure(1.0),), (0.0,), assumptions=(Assumption(EVIL, EVIL),), proof=EVIL)
    path = ledger_of(tmp_path, promise, EVIL + bidi)
    with closing(Registry(default_registry())) as registry:
        with Ledger.open(path, read_only=True) as ledger:
            registry.enter(ledger, tmp_path)
        other = tmp_path / "other"
        other.mkdir()
        with Ledger.open(ledger_of(other, promise, EVIL + bidi), read_only=True) as ledger:
            changed = ledger.identity.__class__("a2", 0, "b2", EVIL + bidi, "d4")
            ledger.identity = changed
            registry.enter(ledger, tmp_path / EVIL.replace("/", "-"))
    _only_text(html(gathered(path)), bidi)
    facts = gathered(path)
    strange = _agreement_of(topology.complete(2), {EVIL: "a:1", f"b{EVIL}": "b:2"}, _schema([EVIL, "b`c`"]))
    _only_text(html(_with(facts, strange)), bidi)


def _only_text(page: str, bidi: str) -> None:
    loads = Loads()
    loads.feed(page)
    assert loads.fetched == []
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
    assert bidi not in page


def _schema(names: list[str]) -> Schema:
    return Schema(tuple(Number(name, 0, 1) for name in names), Choice("ill", ("no", "yes")), intercept=False)


def _agreement_of(network: Any, members: dict[str, str], schema: Schema) -> Agreement:
    problem = problems.Logistic(len(schema.features), feature_bound=4.0)
    made = algorithms.pd_ogd(problem, network, budget=Budget(1.0), clip=1.0, step=0.1)
    return Agreement.new(
        prepared(made), members, Pace(), Ed25519PrivateKey.generate(), schema=schema, arrivals="public"
    )


def _with(facts: Any, agreement: Agreement) -> Any:
    """Facts with another agreement beside them."""
    settings = Settings(member="a", source="b", budget={"epsilon": 1.0})
    return replace(facts, agreed=Agreed(agreement, None, False, settings, True))


def test_names_of_code_are_looked_up_and_never_imported() -> None:
    assert code_of("gossamer.__main__").startswith("gossamer/__main__.py ")
    assert code_of("gossamer.core.Every(1): blocks").startswith("gossamer/core/schedule.py ")
    assert code_of("gossamer.../../etc.passwd") == code_of("antigravity") == code_of("") == ""


# What is refused


def changed_row(node: NodeDirectory) -> Path:
    with closing(sqlite3.connect(node.ledger, isolation_level=None)) as database:
        database.execute("UPDATE rows SET spent = '[]' WHERE number = 4")
    return node.path


def changed_message(node: NodeDirectory) -> Path:
    with closing(sqlite3.connect(node.ledger, isolation_level=None)) as database:
        database.execute("UPDATE blobs SET data = zeroblob(length(data)) WHERE place > 0")
    return node.path


def cut_ledger(node: NodeDirectory) -> Path:
    node.ledger.write_bytes(node.ledger.read_bytes()[:5000])
    for name in ("ledger.db-wal", "ledger.db-shm"):
        (node.path / name).unlink(missing_ok=True)
    return node.path


def old_copy(node: NodeDirectory) -> Path:
    shutil.copytree(node.path, node.path.parent / "copy")
    go(node, 6)
    return node.path.parent / "copy"


def changed_export(node: NodeDirectory) -> Path:
    file = exported(node, node.path.parent / "rows.jsonl")
    file.write_text(file.read_text().replace('"exchange":2', '"exchange":3'))
    return file


def cut_export(node: NodeDirectory) -> Path:
    file = exported(node, node.path.parent / "rows.jsonl")
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    return file


def changed_agreement(node: NodeDirectory) -> Path:
    file = node.path / "agreement.json"
    file.write_text(file.read_text().replace("node-0", "node-9"))
    return node.path


def other_agreement(node: NodeDirectory) -> Path:
    other = alone(node.path.parent.parent / "other")
    for name in ("agreement.json", "members.json"):
        shutil.copy(other.path / name, node.path / name)
    return node.path


def other_algorithm(node: NodeDirectory) -> Path:
    """Signed anew by somebody, for the same network."""
    agreement, signer = node.agreement(), Ed25519PrivateKey.generate()
    table = agreement.document() | {"coordinator": signer.public_key().public_bytes_raw().hex()}
    table["algorithm"] = prepared(algorithms.pd_ogd(
        problems.Logistic(3, feature_bound=1.0), topology.isolated(1), budget=Budget(1.0), clip=1.0, step=0.5
    )).spec()  # fmt: skip
    (node.path / "agreement.json").write_bytes(document(table))
    read = Agreement.__dataclass_fields__
    made = Agreement(**{name: getattr(agreement, name) for name in read} | {
        "spec": table["algorithm"], "coordinator": table["coordinator"]
    })  # fmt: skip
    (node.path / "agreement.json").write_bytes(made.signed(signer).to_bytes())
    (node.path / "members.json").unlink()
    return node.path


def changed_members(node: NodeDirectory) -> Path:
    file = node.path / "members.json"
    table = json.loads(file.read_text())
    table["requests"][0]["pair_key"] = "00" * 32
    file.write_text(json.dumps(table))
    return node.path


def damaged_registry(node: NodeDirectory) -> Path:
    default_registry().write_bytes(b"\xff" * 4096)
    return node.path


def not_begun(node: NodeDirectory) -> Path:
    return alone(node.path.parent.parent / "new").path


def nowhere(node: NodeDirectory) -> Path:
    return node.path.parent / "nowhere"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (changed_row, "row 4: its content does not match its hash"),
        (changed_message, "the stored messages are not those of the row"),
        (cut_ledger, "ledger"),
        (old_copy, "old copy"),
        (changed_export, "it was changed"),
        (cut_export, "does not agree with the rows"),
        (changed_agreement, "was changed after the coordinator signed it"),
        (other_agreement, "of another network than the ledger"),
        (other_algorithm, "its algorithm is another one than that of the ledger"),
        (changed_members, "was changed after the coordinator signed it"),
        (damaged_registry, "registry: .* cannot be read"),
        (not_begun, "one whose run has begun"),
        (nowhere, "a file that can be read"),
    ],
)
def test_what_does_not_verify_has_no_report(
    node: NodeDirectory, spoil: Callable[[NodeDirectory], Path], why: str
) -> None:
    code, said, out = report(spoil(node))
    assert code == 2, said
    assert re.search(why, said), said
    assert not out.exists()


def test_a_report_does_not_take_the_place_of_another_file(node: NodeDirectory) -> None:
    _, _, out = report(node.path)
    before = out.read_bytes()
    code, said, _ = report(node.path)
    assert (code, out.read_bytes()) == (2, before)
    assert "a file that is not there yet" in said
    code, said, _ = report(node.path, "--out", str(node.path / "nowhere" / "report.html"))
    assert code == 2
    assert "a file that can be written" in said


# On paper


CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.fixture
def wide(node: NodeDirectory) -> Any:
    """Forty members, sixty columns, thirty other runs, and an assumption for each rule."""
    members = {f"hospital-number-{i} of the north": f"10.0.0.{i}:7400" for i in range(40)}
    agreement = _agreement_of(topology.ring(40), members, _schema([f"measured column {i}" for i in range(60)]))
    facts = _with(gathered(node.path), agreement)
    more = tuple(
        Assumption(f"claim {i} about the world, as long as such claims are", "gossamer.core.flow.Flow")
        for i in range(6)
    )
    cost = Cost("meters", "r", 0, Pure(0.1), 1e-9, 1e-15, facts.spent.unit)
    others = tuple(Known(str(i), 1, "f" * 32, 0, "meters", f"/srv/nodes/{i}", 9, cost, None) for i in range(30))
    promise = replace(facts.promise, assumptions=(*facts.promise.assumptions, *more))
    return replace(facts, others=others, promise=promise, registry=default_registry())


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: how many sheets of paper it takes is not tested")
@pytest.mark.parametrize("which", ["usual", "wide"])
def test_it_prints_to_two_sheets(node: NodeDirectory, wide: Any, which: str, tmp_path: Path) -> None:
    page, pdf = tmp_path / "report.html", tmp_path / "report.pdf"
    page.write_text(html(gathered(node.path) if which == "usual" else wide))
    options = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    command = [str(CHROMIUM), *options.split(), f"--user-data-dir={tmp_path / 'profile'}", f"--print-to-pdf={pdf}"]
    subprocess.run([*command, page.as_uri()], check=True, capture_output=True, timeout=60)
    assert len(re.findall(rb"/Type */Page\b", pdf.read_bytes())) == 2


# What epsilon and delta mean


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.05])
def test_bounds_on_guesses_are_reached_and_never_exceeded(epsilon: float, delta: float) -> None:
    """By all tests between two distributions that are as far apart as epsilon and delta allow.

    With delta it says which one it is; else it answers as randomised response does.
    """
    e = math.exp(epsilon)
    there = np.array([delta, (1 - delta) * e / (1 + e), (1 - delta) / (1 + e), 0.0])
    gone = there[::-1]
    best_belief = 0.0
    for chosen in range(16):
        said = [(chosen >> place) & 1 for place in range(4)]
        hits, alarms = float(there @ said), float(gone @ said)
        assert hits <= most_hits(epsilon, delta, alarms) + 1e-12
        for prior in (0.01, 0.3, 0.5):
            assert prior * hits + (1 - prior) * (1 - alarms) <= best_guess(epsilon, delta, prior) + 1e-12
            if hits >= 0.06:
                bound = most_belief(epsilon, delta, prior, 0.06)
                assert prior * hits / (prior * hits + (1 - prior) * alarms) <= bound + 1e-12
        best_belief = max(best_belief, hits + 1 - alarms)
    assert best_belief / 2 == pytest.approx(best_guess(epsilon, delta))


def test_gaussian_noise_stays_within_what_its_epsilon_and_delta_say() -> None:
    from scipy.stats import norm

    loss = Gaussian(0.7)
    for delta in (1e-6, 1e-3):
        for alarms in np.linspace(0.0, 1.0, 101):
            hits = norm.cdf(norm.ppf(alarms) + 0.7)
            assert hits <= most_hits(loss.epsilon(delta), delta, float(alarms)) + 1e-9


def test_shares_are_rounded_up() -> None:
    assert [in_hundred(one) for one in (0.0, 0.50001, 0.9999, 1.0)] == ["0", "50.1", "100", "100"]


def test_where_arrivals_are_public_only_the_content_is_protected() -> None:
    promise = Guarantee("proven", losses=(Pure(0.5),), deltas=(0.0,))
    assert "everybody may know that it came" not in words.whom(promise)
    assert "everybody may know that it came" in words.whom(promise.with_public_arrivals())


def test_an_old_copy_says_that_there_is_a_newer_one(tmp_path: Path) -> None:
    node = alone(tmp_path / "one")
    go(node, 2)
    rows = tmp_path / "rows.jsonl"
    CliRunner().invoke(app, ["ledger", "export", str(node.path), "--out", str(rows)])
    go(node, 5)
    now, old = html(gathered(node.path)), html(gathered(rows))
    assert '<span class="good">intact' in now
    assert "of this run, this ledger" not in now
    assert '<span class="open">intact' in old
    assert "5 exchanges of this run, this ledger 2" in old
