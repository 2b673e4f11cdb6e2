"""When samples come: networks that have nothing to say keep their model, and say no more than was agreed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from gossamer import Budget, algorithms, problems, sets, topology
from gossamer.cli import app
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net import Ledger, NodeDirectory, Pace, launch, prepared, startup, try_network
from gossamer.net.data.samples import block_of, require_silence
from gossamer.net.node.agreement import frame_format, require_kept
from gossamer.net.node.participant import Participant
from gossamer.net.node.spending import unit_of
from gossamer.privacy import Guarantee
from tests.networks import Faults, Hub, Member, _run, make_member, run_all, until

pytestmark = pytest.mark.unoptimized

PROBLEM = problems.Logistic(3, feature_bound=1.0, domain=sets.L2Ball(2.0))
SAMPLE = (np.array([0.5, -0.25, 0.5], np.float32), 1)
PACE = Pace(deadline=20.0, patience=20.0, retry=0.02)
IDLE = 0.4  # seconds in which a network without samples must do nothing


class Network:
    """Nodes in memory whose samples come when the test says so."""

    def __init__(self, folder: Path, algorithm: Any, hub: Hub | None = None, **options: Any) -> None:
        self.folder, self.algorithm, self.hub = folder, algorithm, hub or Hub()
        self.options = {"pace": PACE, "exchanges": None, "arrivals": "public", **options}
        self.given: list[deque[Any]] = [deque() for _ in range(algorithm.learners)]
        self.members: list[Member] = []
        self.threads: list[threading.Thread] = []

    def make(self, learner: int, **options: Any) -> Member:
        folder, transport = self.folder / str(learner), self.hub.transport(learner)
        samples = self._come(self.given[learner])
        return make_member(folder, self.algorithm, learner, transport, samples, **{**self.options, **options})

    def start(self) -> Network:
        self.members = [self.make(learner) for learner in range(self.algorithm.learners)]
        self.threads = [threading.Thread(target=_run, args=(one,), daemon=True) for one in self.members]
        for thread in self.threads:
            thread.start()
        return self

    def stop(self, learner: int) -> None:
        self.members[learner].node.stop()
        self.threads[learner].join(20)

    def again(self, learner: int) -> None:
        """The node's process is started anew, with the same key and directory."""
        self.members[learner].node.ledger.close()
        self.members[learner] = self.make(learner, key=self.members[learner].key)
        self.threads[learner] = threading.Thread(target=_run, args=(self.members[learner],), daemon=True)
        self.threads[learner].start()

    @property
    def made(self) -> list[int]:
        """Exchanges that each node has begun."""
        return [one.node.ledger.last.exchange + 1 for one in self.members]

    def come_to(self, exchanges: int) -> None:
        """All nodes make so many exchanges, and then wait: no more come."""
        until(lambda: self.made == [exchanges] * len(self.members) and self.waiting)
        threading.Event().wait(IDLE)
        assert self.made == [exchanges] * len(self.members)

    @property
    def waiting(self) -> bool:
        return all(one.node.board.state == "waiting" for one in self.members)

    @staticmethod
    def _come(given: deque[Any]) -> Iterator[Any]:
        while True:
            item = given.popleft() if given else None
            if item == "the end":
                return
            yield item

    def __enter__(self) -> Network:
        return self.start()

    def __exit__(self, *_: object) -> None:
        for one in self.members:
            one.node.stop()
        for thread in self.threads:
            thread.join(20)
        errors = [one.error for one in self.members if one.error is not None]
        assert not errors, errors


def private(network: Any = None, **options: Any) -> Any:
    given = {"budget": Budget(1.0), "clip": 1.0, "step": 0.1, **options}
    return prepared(algorithms.pd_ogd(PROBLEM, network or topology.ring(3), **given))


def in_pairs(**options: Any) -> Any:
    given = {"budget": Budget(1.0, 1e-5), "clip": 1.0, "horizon": 200, "steps_per_exchange": 2, **options}
    return prepared(algorithms.pd_ftgl(PROBLEM, topology.ring(3, weights="lazy"), noise="gaussian", **given))


def raw(problem: problems.Problem) -> Any:
    return prepared(algorithms.d_ogd(problem, topology.isolated(1), step=0.1), allow_no_guarantee=True)


def said(algorithm: Any, sender: int, data: bytes) -> str:
    """The kind of a frame of a network under test."""
    return frame_format(algorithm, "0" * 32, Participant(algorithm, sender).leaves).decode(data, sender).kind


def test_public_exchanges_happen_when_there_is_something_to_say(tmp_path: Path) -> None:
    """On a ring of five, of which some nodes have samples at different times, and two never."""
    with Network(tmp_path, private(topology.ring(5))) as five:
        five.come_to(0)
        five.given[0].append(SAMPLE)
        five.come_to(1)
        decisions = [max(one.played) for one in five.members], [one.played[1] for one in five.members]
        assert decisions[0] == [1] * 5
        assert all(np.isfinite(one).all() and one.any() for one in decisions[1])
        five.given[2].extend([SAMPLE] * 3)
        five.given[3].append(SAMPLE)
        five.come_to(4)
        assert not any(five.given)


def test_an_idle_public_network_keeps_its_model_to_the_bit(tmp_path: Path) -> None:
    with Network(tmp_path, private(topology.ring(3), step=1.0)) as three:
        for given in three.given:
            given.extend([SAMPLE] * 5)
        until(lambda: min(three.made) >= 5 and three.waiting)
        kept = [one.node.board.decision()["decision"] for one in three.members]
        sent = sum(one.node.board.numbers()["messages_sent"] for one in three.members)
        three.come_to(max(three.made))
        assert [one.node.board.decision()["decision"] for one in three.members] == kept
        assert sum(one.node.board.numbers()["messages_sent"] for one in three.members) == sent


def test_a_block_is_waited_for_and_a_neighbour_takes_along_what_is_there(tmp_path: Path) -> None:
    with Network(tmp_path, in_pairs()) as three:
        three.given[0].append(SAMPLE)
        three.come_to(0)  # half a block
        three.given[1].extend([SAMPLE] * 2)
        three.come_to(1)
        three.given[0].append(SAMPLE)  # the first one has been used
        three.come_to(1)


def test_the_end_of_data_is_said_with_the_last_samples(tmp_path: Path) -> None:
    with Network(tmp_path, in_pairs()) as three:
        three.given[0].extend([SAMPLE] * 3 + ["the end"])
        three.come_to(2)
        three.given[1].extend([SAMPLE] * 2)  # who has come to its end goes on with the others
        three.come_to(3)


def test_who_missed_the_first_word_asks_for_it(tmp_path: Path) -> None:
    """A message that is lost when nobody waits for it would have its receiver never begin."""
    lost, algorithm = [], private(topology.path(2))

    def lose(sender: int, receiver: int, data: bytes) -> bool:
        if (sender, receiver) == (0, 1) and said(algorithm, sender, data) == "message" and not lost:
            lost.append(data)
            return True
        return False

    with Network(tmp_path, algorithm, Hub(Faults(lose=lose))) as two:
        two.given[0].append(SAMPLE)
        two.come_to(1)
        assert lost


def test_a_crash_while_waiting_changes_nothing(tmp_path: Path) -> None:
    """Half a block was read and not used: it is read again. What the others did meanwhile is made up for."""
    with Network(tmp_path, in_pairs()) as three:
        three.given[1].extend([SAMPLE] * 2)
        three.come_to(1)
        three.given[0].append(SAMPLE)
        until(lambda: not three.given[0])
        three.stop(0)
        three.given[0].append(SAMPLE)  # the source begins anew: what no exchange has used comes again
        three.again(0)
        three.come_to(1)
        three.given[0].append(SAMPLE)
        three.come_to(2)
        three.stop(2)
        three.members[2].node.ledger.close()
        three.given[0].extend([SAMPLE] * 2)
        until(lambda: three.made[0] == 3)
        three.members[2] = three.make(2, key=three.members[2].key)
        three.threads[2] = threading.Thread(target=_run, args=(three.members[2],), daemon=True)
        three.threads[2].start()
        three.come_to(3)


def test_common_batches_are_waited_for(tmp_path: Path) -> None:
    """Batch t belongs to exchange t at every node, whoever has it first."""
    problem = problems.LeastSquares(4, feature_bound=1.0, domain=sets.L2Ball(2.0))
    options = {"budget": Budget(1.0), "horizon": 20, "clip": 1.0, "unit": "batch"}
    algorithm = prepared(algorithms.dpsda_c(problem, topology.ring(3), **options))
    sample = (np.full(4, 0.5, np.float32), 1.0)
    with Network(tmp_path, algorithm) as three:
        for given in three.given[:2]:
            given.append(sample)
        until(lambda: three.made == [1, 1, 0])
        three.given[2].append(sample)
        three.come_to(1)


def test_what_cannot_be_used_counts_as_come_and_adds_nothing(tmp_path: Path) -> None:
    def apply(params: Any, x: Any) -> Any:
        return x @ params["w"] + params["b"]

    model = problems.Model(apply, {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}, features=(3,), classes=2)
    unusable = [(np.ones(4), 1), (np.array([1.0, np.nan, 0.0]), 1), (np.ones(3), 7), "nonsense"]
    for name, problem in {"linear": PROBLEM, "model": model}.items():
        with Network(tmp_path / name, raw(problem)) as one:
            one.given[0].extend(unusable)
            one.come_to(len(unusable))
            assert one.members[0].played[len(unusable)].tolist() == problem.initial_decision().tolist()
            one.given[0].append(SAMPLE)
            one.come_to(len(unusable) + 1)
            assert one.members[0].played[len(unusable) + 1].any()


@pytest.mark.parametrize("bound", [None, 1.0])
@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
def test_a_row_without_a_sample_has_no_gradient_in_any_model(bound: float | None, loss: Any) -> None:
    def apply(params: Any, x: Any) -> Any:
        return jnp.where(x[0] > 0, x, 1.0) @ params["w"] + params["b"]  # where turns NaN into a number

    classes = 2 if loss == "cross-entropy" else None
    start = {"w": jnp.ones((2, classes or 1)), "b": jnp.zeros(classes or 1)}
    model = problems.Model(apply, start, loss, features=(2,), classes=classes, feature_bound=bound)
    require_silence(model)
    one, sample = np.full(model.dim, 0.3, np.float32), (np.ones(2, np.float32), 1)
    alone, padded = (model.clipped_data_gradient_sum(one, block_of(model, [sample], rows), 1.0) for rows in (1, 3))
    assert np.array_equal(alone, padded)
    assert np.any(alone)


def test_a_problem_of_ones_own_must_be_silent_without_a_sample() -> None:
    class Loud(problems.LeastSquares):
        zero_rows_are_silent = False

        def _clipped_data_gradient_sum(self, decision: Any, block: Any, clip: Any) -> Any:
            return jnp.ones(self.dim)

    with pytest.raises(ConfigurationError, match="a row without a sample has no gradient"):
        require_silence(Loud(2))


def test_the_guarantee_says_what_is_public(tmp_path: Path) -> None:
    algorithm = private(topology.isolated(1))
    with Network(tmp_path, algorithm) as alone:
        alone.given[0].append(SAMPLE)
        alone.come_to(1)
        shown = alone.members[0].node.board.guarantee
    with Ledger.open(tmp_path / "0" / "ledger.db", read_only=True) as ledger:
        written = ledger.promise
    for promise in (written, shown):
        assert promise is not None
        assert promise.basis == "proven"
        assert promise.losses == algorithm.guarantee.losses
        assert "the content of one sample of one learner, of which everybody knows that and when" in promise.sentence()
        assert Guarantee.from_json(promise.to_json()) == promise
        assert unit_of(promise) != unit_of(algorithm.guarantee)
    assert "proven" in shown.sentence().lower()
    alone.members[0].node.ledger.close()
    with pytest.raises(PrivacyError, match="arrivals: got 'hidden'; allowed: what they were when the run began"):
        alone.make(0, key=alone.members[0].key, arrivals="hidden")


def test_a_hidden_network_speaks_alike_with_and_without_samples_until_its_end(tmp_path: Path) -> None:
    """One has a sample at every exchange, one now and then, one never: all send as many bytes, at every exchange."""
    hub = Hub()
    samples = [[SAMPLE] * 20, [SAMPLE if step % 3 else None for step in range(20)], []]
    pace, algorithm = Pace(deadline=20.0, patience=20.0, retry=0.02, period=0.01), private()
    three = [
        make_member(tmp_path / str(i), algorithm, i, hub.transport(i), samples[i], exchanges=20, pace=pace)
        for i in range(3)
    ]
    run_all(three)
    assert [one.ended for one in three] == ["finished"] * 3
    frames = [(sender, len(data)) for sender, _, data in hub.sent if said(algorithm, sender, data) == "message"]
    sizes = [[size for sender, size in frames if sender == i] for i in range(3)]
    assert [len(each) for each in sizes] == [40] * 3  # two neighbours, twenty exchanges
    assert sizes[0] == sizes[1] == sizes[2]


@pytest.mark.parametrize(
    ("arrivals", "exchanges", "period", "said"),
    [
        ("hidden", None, 1.0, "exchanges: got None; .* noise without samples would ruin the model"),
        ("hidden", 100, 0.0, "period: got 0.0; allowed: seconds above 0"),
        ("sometimes", 100, 1.0, "arrivals: got 'sometimes'"),
        ("public", 0, 1.0, "exchanges: got 0"),
        ("hidden", 100, 1.0, ""),
        ("public", None, 0.0, "period: got 0.0; allowed: seconds above 0"),
        ("public", None, 0.01, ""),
    ],
)
def test_agreements_that_would_lose_the_model_are_refused(
    arrivals: Any, exchanges: int | None, period: float, said: str
) -> None:
    for algorithm in (private(), in_pairs()):  # a horizon is no end that sites have chosen
        if not said:
            require_kept(algorithm, arrivals, exchanges, period)
            continue
        with pytest.raises(ConfigurationError, match=said):
            require_kept(algorithm, arrivals, exchanges, period)


TOML = """
problem = {kind = "logistic", feature_bound = 1.0}
topology = {kind = "ring"}
algorithm = {name = "pd_ogd", budget = {epsilon = 1.0}, clip = 1.0, step = 0.1}
data = {generator = "heterogeneous-logistic", dim = 2, alpha = 1.0, beta = 1.0, seed = 1}
"""


@pytest.mark.parametrize(
    ("options", "agreed", "said"),
    [
        (["--samples", "20"], ("hidden", 20), "Learning ends after 20 exchanges."),
        (["--samples", "20", "--exchanges", "7"], ("hidden", 7), "nobody sees when they come"),
        (["--samples", "20", "--arrivals", "public"], ("public", None), "everybody sees when they come"),
    ],
)
def test_the_command_line_says_what_is_agreed(
    tmp_path: Path, options: list[str], agreed: tuple[str, int | None], said: str
) -> None:
    file = tmp_path / "a.toml"
    file.write_text(TOML)
    given = ["network", "try", str(tmp_path / "net"), "--algorithm", str(file), "--nodes", "3", *options]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.stderr
    shown = " ".join(done.output.split())
    assert said in shown
    assert ("the content of one sample" in shown) == (agreed[0] == "public")
    agreement = NodeDirectory(tmp_path / "net" / "node-0").agreement()
    assert (agreement.arrivals, agreement.exchanges) == agreed


def test_without_an_end_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(TOML)
    sites = [f"--member=site-{i}=127.0.0.1:{7400 + i}" for i in range(3)]
    done = CliRunner().invoke(app, ["network", "new", str(tmp_path / "net"), "--algorithm", str(file), *sites])
    assert done.exit_code == 2
    assert "noise without samples would ruin the model" in " ".join(done.stderr.split())
    assert not (tmp_path / "net").exists()


def test_the_agreed_end_binds_and_a_node_may_end_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "machine"))
    monkeypatch.setattr(startup, "ZenohTransport", lambda link, forged: hub.transport(link.learner))
    pace = Pace(deadline=0.1, patience=0.1, retry=0.02, period=0.001)
    algorithm = private(topology.isolated(1))
    (node,) = try_network(tmp_path / "net", algorithm, hosts=["127.0.0.1"], pace=pace, exchanges=4)
    for asked, made in ((2, 2), (9, 4), (None, 4)):
        running = launch(node, node.settings(), algorithm, data=[SAMPLE] * 20, exchanges=asked)
        running.run(linger=False)
        assert running.node.board.state == "finished"
        with Ledger.open(node.ledger, read_only=True) as ledger:
            assert ledger.last.exchange + 1 == made


@pytest.mark.parametrize(("first", "second"), [("hidden", "public"), ("public", "hidden")])
def test_earlier_runs_count_where_they_protect_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Any, second: Any
) -> None:
    hub, algorithm = Hub(), private(topology.isolated(1))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "machine"))
    monkeypatch.setattr(startup, "ZenohTransport", lambda link, forged: hub.transport(link.learner))
    pace = Pace(deadline=0.1, patience=0.1, retry=0.02, period=0.001)
    given = {"hosts": ["127.0.0.1"], "pace": pace, "exchanges": 2, "sources": ["meters"]}
    made = [try_network(tmp_path / one, algorithm, arrivals=one, **given)[0] for one in (first, second)]
    launch(made[0], made[0].settings(), algorithm, data=[SAMPLE] * 5).run(linger=False)
    settings = replace(made[1].settings(), earlier=[str(made[0].path)], budget={"epsilon": 2.0, "delta": 1e-6})
    if second == "hidden":
        with pytest.raises(ConfigurationError, match="runs that protect one sample of one learner"):
            launch(made[1], settings, algorithm, data=[SAMPLE] * 5)
        return
    running = launch(made[1], settings, algorithm, data=[SAMPLE] * 5)
    running.run(linger=False)
    assert running.node.board.state == "finished"
