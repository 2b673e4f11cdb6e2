"""The registry of an owner's runs: what several networks spend on the same data adds up without anybody saying so."""

from __future__ import annotations

import math
import os
import shutil
import stat
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gossamer import Budget, problems, topology
from gossamer.algorithms import pd_ftgl
from gossamer.cli import app
from gossamer.errors import ConfigurationError, GossamerError, PrivacyError
from gossamer.net import Ledger, NodeDirectory, back_up, prepared, restore
from gossamer.net.ledgers import enter_own, open_ledger
from gossamer.net.node.spending import Cost, added_up, costs_of, within
from gossamer.net.registry import DataAccount, Known, Registry, beginning, counted, default_registry
from gossamer.net.store.witness import Mark, Witness
from gossamer.privacy import BoundedRange, Gaussian, Loss, Pure, accounting, compose
from gossamer.privacy.units import Unit
from gossamer.reports.officer.facts import gathered
from tests.lives import hub
from tests.test_launch import ALONE, alone, go, opened, rows, say, try_out

__all__ = ["hub"]  # nodes speak in memory, and this machine has a folder of its own

EXCEEDED = "budget: these data may cost"
GROWING = {"budget": Budget(1.0), "clip": 1.0, "steps_per_exchange": 1, "horizon": 64, "aggregation": "tree"}


def growing() -> Any:
    """Its cost grows with every power of two."""
    return pd_ftgl(problems.Logistic(3, feature_bound=1.0), topology.isolated(1), **GROWING)


def limited(folder: Path, epsilon: float, *lines: str, **options: Any) -> NodeDirectory:
    node = alone(folder, **options)
    say(node, *lines, f"[budget]\nepsilon = {epsilon}\ndelta = 1e-6")
    return node


def all_runs() -> list[Known]:
    with closing(Registry(default_registry(), read_only=True)) as registry:
        return registry.runs()


def spent(node: NodeDirectory) -> Cost:
    with Ledger.open(node.ledger, read_only=True) as ledger:
        return costs_of(ledger)[0]


def refused(node: NodeDirectory, why: str = EXCEEDED, **options: Any) -> None:
    with pytest.raises(PrivacyError, match=why):
        try_out(node, **options)
    assert rows(node) == 1


# What adds up


@pytest.mark.parametrize(("budget", "enough"), [(2.0, True), (1.99, False)])
def test_a_second_network_counts_what_the_first_spent(tmp_path: Path, budget: float, enough: bool) -> None:
    go(alone(tmp_path / "one"), 2)
    node = limited(tmp_path / "two", budget)
    if enough:
        assert go(node, 3) == "finished"
    else:
        refused(node)
    elsewhere = limited(tmp_path / "three", 1.0, source="litres")
    assert go(elsewhere, 3) == "finished"


def lines(count: int = 200) -> str:
    return "".join(f'{{"x": [{i / 1000}, 0.5, -0.25], "y": {i % 2}}}\n' for i in range(count))


def the_same_path(file: Path) -> Path:
    return file.parent / "." / "folder" / ".." / file.name


def a_link(file: Path) -> Path:
    (file.parent / "link.jsonl").symlink_to(file)
    return file.parent / "link.jsonl"


def a_hard_link(file: Path) -> Path:
    os.link(file, file.parent / "hard.jsonl")
    return file.parent / "hard.jsonl"


def a_copy_that_grew(file: Path) -> Path:
    copy = Path(shutil.copy(file, file.parent / "copy.jsonl"))
    with copy.open("a") as opened_file:
        opened_file.write(lines(3))
    return copy


def other_data(file: Path) -> Path:
    other = file.parent / "other.jsonl"
    other.write_text(lines().replace("0.5", "0.75"))
    return other


@pytest.mark.parametrize(
    ("other", "same"),
    [(the_same_path, True), (a_link, True), (a_hard_link, True), (a_copy_that_grew, True), (other_data, False)],
)
def test_another_name_for_the_same_file_is_noticed(tmp_path: Path, other: Callable[[Path], Path], same: bool) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "readings.jsonl"
    file.write_text(lines())
    one = alone(tmp_path / "one", source="meters")
    say(one, f'data = "{file}"')
    assert go(one, 2, data=None) == "finished"
    node = limited(tmp_path / "two", 1.5, f'data = "{other(file)}"', source="litres")
    if same:
        refused(node, data=None)
    else:
        assert go(node, 2, data=None) == "finished"


def test_runs_that_turn_out_to_read_the_same_data_are_put_together(tmp_path: Path) -> None:
    """Two sources, and a third run that reads the file of the one under the name of the other."""
    file = tmp_path / "readings.jsonl"
    file.write_text(lines())
    one, two = alone(tmp_path / "one", source="meters"), alone(tmp_path / "two", source="litres")
    say(one, f'data = "{file}"')
    go(one, 2, data=None)
    go(two, 2)
    third = limited(tmp_path / "three", 2.5, f'data = "{file}"', source="litres")
    refused(third, data=None)
    assert len({run.data for run in all_runs()}) == 1


def changed(node: NodeDirectory, data: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["node", "data", str(node.path), "--data", str(data), *words])
    assert done.exit_code == 0, done.output + done.stderr
    return done.output


def test_a_run_whose_data_were_changed_counts_for_both(tmp_path: Path) -> None:
    """Its new file is one that another network has read, under another name."""
    file = tmp_path / "readings.jsonl"
    file.write_text(lines())
    other = other_data(file)
    one = alone(tmp_path / "one", source="meters")
    say(one, f'data = "{file}"')
    go(one, 2, data=None)
    two = limited(tmp_path / "two", 1.5, f'data = "{other}"', source="litres")
    assert go(two, 2, data=None) == "finished"
    before = rows(two)
    assert "other runs over the same data: 1" in changed(two, file, "--source", "fresh")
    with pytest.raises(PrivacyError, match=r"\(1\) have cost epsilon 1; this one costs, with its next .* epsilon 1\."):
        try_out(two, data=None)
    assert rows(two) == before + 1  # that of the change
    text = (two.path / "node.toml").read_text().replace("epsilon = 1.5", "epsilon = 2.0")
    (two.path / "node.toml").write_text(text)
    assert go(two, 4, data=None) == "finished"
    assert sorted(run.source for run in all_runs()) == ["fresh", "litres", "meters"]
    assert len({run.data for run in all_runs()}) == 2
    total = CliRunner().invoke(app, ["ledger", "total"]).output
    assert sorted(line.split()[-2] for line in total.splitlines() if "sum of" in line) == ["1", "2"]
    refused(limited(tmp_path / "three", 1.9, f'data = "{other}"', source="third"), data=None)
    assert go(limited(tmp_path / "four", 2.0, f'data = "{other}"', source="fourth"), 2, data=None) == "finished"


@pytest.mark.parametrize("words", [("--again",), ("--source", "fresh")])
def test_a_copy_of_what_a_run_has_read_costs_as_records_that_come_twice(tmp_path: Path, words: tuple[str]) -> None:
    """Also where its owner says that it is something else."""
    file = tmp_path / "readings.jsonl"
    file.write_text(lines())
    node = limited(tmp_path / "one", 1.5, f'data = "{file}"')
    go(node, 2, data=None)
    changed(node, a_copy_that_grew(file), *words)
    (run,) = all_runs()
    twice = compose([loss for _, loss in prepared(ALONE).spent(2, 0).values()]).group(2)
    assert (run.times, run.cost.loss) == (2, twice)
    with pytest.raises(PrivacyError, match=EXCEEDED):
        try_out(node, data=None)
    facts = gathered(node.path)
    assert (facts.times, facts.spent.loss, facts.promised.loss) == (2, twice, twice)


def test_a_change_of_data_is_refused_where_the_registry_has_lost_the_run(tmp_path: Path) -> None:
    file = tmp_path / "readings.jsonl"
    file.write_text(lines())
    node = alone(tmp_path / "one")
    say(node, f'data = "{file}"')
    go(node, 2, data=None)
    default_registry().unlink()
    before = (node.path / "node.toml").read_text()
    with pytest.raises(AssertionError, match="knows nothing of this run"):
        changed(node, other_data(file), "--source", "fresh")
    assert (node.path / "node.toml").read_text() == before


@pytest.mark.parametrize(
    ("data", "same"),
    [("sqlite:{}/clinic.db", True), ("postgresql://ward@host/clinic", False), ("-", False), ("{}/clinic.csv", True)],
)
def test_databases_in_files_are_known_by_their_place(tmp_path: Path, data: str, same: bool) -> None:
    with closing(Registry(default_registry())) as registry:
        for source in ("meters", "litres"):
            node = alone(tmp_path / source, source=source)
            query = {"rows": "SELECT * FROM visits", "cursor": "id"} if ":" in data else None
            settings = replace(node.settings(), data=data.format(tmp_path), query=query)
            with Ledger.open(node.ledger, read_only=True) as ledger:
                enter_own(registry, ledger, node.path, settings)
        assert len({run.data for run in registry.runs()}) == (1 if same else 2)


def test_a_file_in_a_folder_that_another_run_reads(tmp_path: Path) -> None:
    one, two = alone(tmp_path / "one", source="a"), alone(tmp_path / "two", source="b")
    with closing(Registry(default_registry())) as registry:
        for node, data in ((one, tmp_path / "in"), (two, tmp_path / "in" / "may.csv")):
            with Ledger.open(node.ledger, read_only=True) as ledger:
                registry.enter(ledger, node.path, data)
        assert len({run.data for run in registry.runs()}) == 1


def test_too_little_to_tell_files_apart(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x0,x1,y\n" + "0,0,1\n" * 50)
    assert beginning(file) == beginning(tmp_path / "nowhere") == beginning(tmp_path) == ""
    file.write_text("x0,x1,y\n" + "0,0,1\n" * 500)
    assert len(beginning(file)) == 64


def test_a_directory_that_is_gone_still_counts(tmp_path: Path) -> None:
    one = alone(tmp_path / "one")
    go(one, 2)
    shutil.rmtree(one.path)
    refused(limited(tmp_path / "two", 1.5))


def test_a_copy_of_a_directory_counts_once(tmp_path: Path) -> None:
    one = limited(tmp_path / "one", 1.0)
    go(one, 2)
    one.path.rename(tmp_path / "moved")
    assert go(NodeDirectory(tmp_path / "moved"), 4) == "finished"
    (run,) = all_runs()
    assert run.directory == str(tmp_path / "moved")


def test_a_newer_word_of_the_owner_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    go(limited(tmp_path / "one", 1.0), 2)
    refused(limited(tmp_path / "two", 1.5))
    assert go(limited(tmp_path / "three", 2.5), 2) == "finished"


def test_a_budget_binds_runs_without_one_while_its_owner_can_change_it(tmp_path: Path) -> None:
    one = limited(tmp_path / "one", 1.5)
    go(one, 2)
    node = alone(tmp_path / "two")
    refused(node)
    shutil.rmtree(one.path)
    assert go(node, 2) == "finished"


def test_a_budget_below_the_first_exchange_is_refused(tmp_path: Path) -> None:
    refused(limited(tmp_path / "one", 0.5), r"Other runs over them \(0\) have cost epsilon 0; the first .* epsilon 1\.")


def test_two_nodes_at_once_stay_within_the_budget_of_both(tmp_path: Path) -> None:
    algorithm = growing()
    nodes = [limited(tmp_path / name, 0.9, algorithm=prepared(algorithm)) for name in ("one", "two")]
    running = [opened(node, 64, algorithm) for node in nodes]
    threads = [threading.Thread(target=one.run, kwargs={"linger": False}) for one in running]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    costs = [spent(node) for node in nodes]
    assert all(cost.loss != Pure(0.0) for cost in costs)
    assert within(costs, Budget(0.9, 1e-6))
    assert {one.node.board.state for one in running} == {"exhausted"}
    whole = Cost("", "", 0, compose([loss for _, loss in prepared(algorithm).spent(64, 0).values()]), 0.0, 0.0, "")
    assert within([whole], Budget(1.0, 1e-6))
    assert not within([whole, whole], Budget(0.9, 1e-6))


def test_what_stands_there_is_never_less_than_what_was_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked at the moment at which each release is committed; a crash right after it changes nothing."""
    algorithm, seen = growing(), []
    node = alone(tmp_path / "one", prepared(algorithm))
    commit = Ledger.commit

    def watched(ledger: Ledger, kind: Any, exchange: int, *rest: Any) -> Any:
        row = commit(ledger, kind, exchange, *rest)
        (run,) = all_runs()
        assert run.exchanges > exchange
        seen.append(added_up([run.cost])[0] - added_up([costs_of(ledger)[0]])[0])
        return row

    monkeypatch.setattr(Ledger, "commit", watched)
    go(node, 40, algorithm)
    assert len(seen) == 40
    assert min(seen) >= 0
    (run,) = all_runs()
    assert (run.cost.loss, run.exchanges) == (spent(node).loss, 40)  # an orderly end gives back what was not used


def test_few_writes_for_many_exchanges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    reserve = Registry.reserve
    monkeypatch.setattr(Registry, "reserve", lambda *given: asked.append(given[3]) or reserve(*given))
    go(alone(tmp_path / "one"), 200)
    assert asked[:3] == [1, 3, 7]
    assert len(asked) < 40


def test_a_crash_is_made_good_at_the_next_start(tmp_path: Path) -> None:
    node = alone(tmp_path / "one")
    go(node, 2)
    with closing(Registry(default_registry())) as registry:
        key = registry.runs()[0].key
        assert registry.reserve(key, spent(node)._replace(loss=Pure(7.0)), 9)
    assert all_runs()[0].cost.loss == Pure(7.0)
    try_out(node)
    assert (all_runs()[0].cost.loss, all_runs()[0].exchanges) == (spent(node).loss, 2)


def test_an_export_does_not_take_back_what_is_known(tmp_path: Path) -> None:
    node = alone(tmp_path / "one")
    go(node, 2)
    CliRunner().invoke(app, ["ledger", "export", str(node.path), "--out", str(tmp_path / "old.jsonl")])
    go(node, 5)
    say(after := limited(tmp_path / "two", 5.0), 'earlier = ["../../old.jsonl"]')
    try_out(after)
    assert [run.exchanges for run in all_runs()] == [5, 0]


# Which composition


@pytest.mark.parametrize(
    ("losses", "epsilon"),
    [
        ([Pure(0.5), Pure(0.25)], lambda delta: 0.75),
        ([Gaussian(0.3), Gaussian(0.4)], lambda delta: accounting.gaussian_epsilon(0.5, delta)),
        (
            [Pure(0.5), Gaussian(0.3), BoundedRange((0.1, 0.1))],
            lambda delta: accounting.mixed_epsilon(delta, pure=[0.5], mu=0.3, bounded_range=[0.1, 0.1]),
        ),
    ],
)
def test_runs_add_up_as_the_accounting_says(losses: list[Loss], epsilon: Callable[[float], float]) -> None:
    """Pure losses by their sum, Gaussian ones by the root of squares, others through Renyi divergences."""
    costs = [Cost("meters", str(i), 0, loss, 1e-6, 1e-9, "u") for i, loss in enumerate(losses)]
    total, delta = added_up(costs)
    assert total == pytest.approx(epsilon(len(costs) * 1e-6), rel=1e-9)
    error = len(costs) * 1e-9
    assert delta == pytest.approx(len(costs) * 1e-6 + error * (1 + math.exp(total)), rel=1e-9)
    assert within(costs, Budget(total * (1 + 1e-9), delta * 1.001))
    for left_out in range(len(costs)):
        fewer = [cost for place, cost in enumerate(costs) if place != left_out]
        assert added_up(fewer)[0] < total


def known(network: str, unit: str, loss: Loss | None, learner: int = 0) -> Known:
    return Known(
        f"{network}{learner}", 1, network, learner, "m", "", 1, Cost("m", "", learner, loss, 0.0, 0.0, unit), None
    )


def test_a_guarantee_that_covers_all_learners_counts_once_a_network() -> None:
    batch, own = "one common batch (occurrence), observer outsiders", "one sample of one learner (occurrence)"
    runs = [known("a", batch, Pure(0.5), 0), known("a", batch, Pure(0.75), 1), known("b", batch, Pure(0.5))]
    assert added_up(counted(runs)) == (1.25, 0.0)
    runs = [known("a", own, Pure(0.5), 0), known("a", own, Pure(0.75), 1)]
    assert added_up(counted(runs)) == (1.25, 0.0)
    assert added_up(counted([known("a", batch, Pure(0.5)), known("a", batch, None, 1)])) == (math.inf, 1.0)


def test_what_protects_another_unit_does_not_add_up() -> None:
    costs = [Cost("m", "", 0, Pure(0.1), 0.0, 0.0, unit) for unit in ("a", "b")]
    assert not within(costs, Budget(100.0))
    assert within([costs[0], costs[0]], Budget(100.0))


# The file


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        go(alone(tmp_path / "one"), 1)
        path = default_registry()
        path.chmod(0o644)
        go(alone(tmp_path / "two"), 1)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("sources.db*")} == {0o600}


def test_a_sealed_node_leaves_nothing_of_its_data(tmp_path: Path) -> None:
    (tmp_path / "readings.jsonl").write_text(lines())
    node = alone(tmp_path / "one")
    (key := tmp_path / "state.key").write_bytes(bytes(32))
    say(node, f'data = "{tmp_path / "readings.jsonl"}"', "sealed = true")
    go(node, 1, data=None, state_key=key)
    assert beginning(tmp_path / "readings.jsonl").encode() not in default_registry().read_bytes()


def damaged(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def no_registry(path: Path) -> None:
    path.write_bytes(b"")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [damaged, cut, no_registry, a_folder])
def test_a_damaged_registry_is_refused(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    node = alone(tmp_path / "one")
    go(node, 2)
    spoil(default_registry())
    for directory, count in ((node, 4), (alone(tmp_path / "two"), 1)):
        with pytest.raises(PrivacyError, match=r"registry: .*sources.db cannot be read .* --adopt"):
            try_out(directory)
        assert rows(directory) == count
    assert CliRunner().invoke(app, ["ledger", "total"]).exit_code == 2


def test_a_lost_registry_is_noticed(tmp_path: Path) -> None:
    node = alone(tmp_path / "one")
    go(node, 2)
    for file in default_registry().parent.glob("sources.db*"):
        file.unlink()
    for _ in range(2):
        with pytest.raises(PrivacyError, match="knows nothing of this run, which has spent"):
            try_out(node)
    assert go(node, 3, adopt=True) == "finished"
    assert go(node, 4) == "finished"


def test_a_registry_that_is_lost_while_a_node_runs(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "sources.db")
    with closing(registry), pytest.raises(PrivacyError, match="has lost a run"):
        DataAccount(registry, "c3").covers(lambda exchanges: Cost("", "", 0, Pure(1.0), 0.0, 0.0, ""), 1)


def test_a_registry_in_a_volume_is_shared_by_two_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f'registry = "{tmp_path / "volume" / "sources.db"}"'
    one, two = alone(tmp_path / "one"), limited(tmp_path / "two", 1.5)
    say(one, line)
    say(two, line)
    go(one, 2)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another home"))
    refused(two)
    say(two, f'registry = "{two.path / "sources.db"}"')
    with pytest.raises(ConfigurationError, match="outside of the node's"):
        try_out(two)


def test_many_processes_may_make_it_at_once(tmp_path: Path) -> None:
    nodes = [alone(tmp_path / str(i), source=str(i)) for i in range(6)]
    faults: list[GossamerError] = []

    def enter(node: NodeDirectory) -> None:
        try:
            with (
                closing(Registry(tmp_path / "sources.db")) as registry,
                Ledger.open(node.ledger, read_only=True) as ledger,
            ):
                registry.enter(ledger, node.path)
        except GossamerError as error:
            faults.append(error)

    threads = [threading.Thread(target=enter, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    with closing(Registry(tmp_path / "sources.db")) as registry:
        assert len(registry.runs()) == len({run.data for run in registry.runs()}) == 6


# What the owner sees


def test_the_owner_is_told(tmp_path: Path) -> None:
    runner = CliRunner()
    file = tmp_path / "algorithm.toml"
    file.write_text(
        'problem = {kind = "logistic", dim = 2}\ntopology = {kind = "complete"}\n'
        'algorithm = {name = "pd_ogd", budget = {epsilon = 1.0}, clip = 1.0, step = 0.1}\n'
    )
    members = ["--member", "north=127.0.0.1:7400", "--member", "south=127.0.0.1:7401"]
    runner.invoke(
        app, ["network", "new", str(tmp_path / "net"), "--algorithm", str(file), "--exchanges", "9", *members]
    )
    go(alone(tmp_path / "one"), 2)
    join = ["node", "join", str(tmp_path / "net" / "agreement.json"), "--member", "north", "--source"]
    told = runner.invoke(app, [*join, "meters", str(tmp_path / "north")])
    assert told.exit_code == 0, told.output
    said = " ".join(told.stderr.split())
    assert "other runs over the same data: 1 (source 'meters' in" in said
    assert "So far they have spent epsilon 1" in said
    assert "other runs" not in runner.invoke(app, [*join, "litres", str(tmp_path / "again")]).stderr
    total = runner.invoke(app, ["ledger", "total"])
    assert total.exit_code == 0
    assert "sum of 2 runs" in total.stdout


def test_learners_of_one_network_count_once_and_runs_of_one_learner_add_up() -> None:
    def run(key: str, learner: int) -> Known:
        cost = Cost("meters", key, learner, Pure(1.0), 0.0, 0.0, f"{Unit.BATCH} (occurrence), observer peers")
        return Known(key, 1, "net", learner, "meters", "", 3, cost, None, 1)

    assert [cost.loss for cost in counted([run("a", 0), run("b", 1)])] == [Pure(1.0)]
    assert [cost.loss for cost in counted([run("a", 0), run("a again", 0), run("b", 1)])] == [Pure(2.0)]


def test_a_ledger_that_nobody_knows_leaves_the_registry_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is on disk, the witness fails: what was reserved is not given back to other runs."""
    node = alone(tmp_path / "one")
    running = opened(node, 3)
    key = running.node.ledger.identity.key

    whole = Witness.record

    def record(witness: Witness, mark: Mark) -> None:
        if mark.number >= 3:  # of the first release
            raise OSError("the volume is gone")
        whole(witness, mark)

    monkeypatch.setattr(Witness, "record", record)
    with pytest.raises((PrivacyError, OSError)):
        running.run(linger=False)
    with closing(Registry(default_registry(), read_only=True)) as registry:
        (known,) = registry.over_same_data(key)
    assert known.exchanges >= 1


def test_a_lost_run_counts_in_full_whatever_was_known_of_it(tmp_path: Path) -> None:
    """It went on after its backup, here or elsewhere: nobody knows for how long."""
    algorithm = growing()
    node = alone(tmp_path / "one", algorithm)
    go(node, 2, algorithm)
    back_up(node, tmp_path / "backup")
    go(node, 5, algorithm)
    restored, _ = restore(tmp_path / "backup", tmp_path / "restored")
    before = added_up([one.cost for one in all_runs()])[0]
    with ExitStack() as stack, closing(Registry(default_registry())) as registry:
        registry.enter(open_ledger(restored.path, stack))
    assert before < 0.9
    assert added_up([one.cost for one in all_runs()])[0] == pytest.approx(1.0, rel=1e-3)
