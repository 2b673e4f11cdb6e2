"""What a node does with neighbours that are away, slow or rude, at its end, and after a restart; in memory."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from gossamer import Budget, algorithms, problems, sets, topology
from gossamer.errors import PrivacyError
from gossamer.net import Ledger, LedgerError, Pace, prepared
from gossamer.net.node.agreement import frame_format
from gossamer.net.node.checkpoint import unpack
from gossamer.net.node.gossip import Cumulative, restored
from gossamer.net.node.participant import Participant
from gossamer.net.node.spending import Cost
from gossamer.net.wire.frames import NEVER, Frame, Position
from gossamer.privacy import Pure, SecureNoise
from gossamer.problems import Block
from tests.networks import Faults, Hub, Member, _run, make_member, run_all, until

pytestmark = pytest.mark.unoptimized

PROBLEM = problems.Logistic(3, feature_bound=1.0, domain=sets.L2Ball(2.0))
SAMPLES = [(np.array([0.5, -0.25, 1.0], np.float32), 1)] * 400
QUICK = Pace(deadline=0.3, patience=0.6, retry=0.02)


def private(network: Any = None, **options: Any) -> Any:
    given = {"budget": Budget(1.0), "clip": 1.0, "step": 0.1, **options}
    return prepared(algorithms.pd_ogd(PROBLEM, network or topology.ring(3), **given))


def members(folder: Path, algorithm: Any, hub: Hub, among: Any = None, **options: Any) -> list[Member]:
    options = {"pace": QUICK, "exchanges": 30, "samples": SAMPLES, **options}
    samples = options.pop("samples")
    chosen = range(algorithm.learners) if among is None else among
    return [make_member(folder / str(i), algorithm, i, hub.transport(i), samples, **options) for i in chosen]


def start(member: Member) -> threading.Thread:
    thread = threading.Thread(target=_run, args=(member,), daemon=True)
    thread.start()
    return thread


def test_a_dead_node_costs_its_neighbours_one_deadline_and_others_nothing(tmp_path: Path) -> None:
    alive = members(tmp_path, private(topology.ring(6)), Hub(), among=range(1, 6))
    begun = time.monotonic()
    run_all(alive)
    assert time.monotonic() - begun < 30 * QUICK.deadline
    missing = [member.node.board.numbers()["missing"] for member in alive]
    assert missing == [30, 0, 0, 0, 30]


@pytest.mark.parametrize("period", [0.0, 0.02])
def test_a_node_that_was_away_catches_up(tmp_path: Path, period: float) -> None:
    hub, pace = Hub(), Pace(deadline=0.2, patience=5.0, retry=0.02, period=period)
    three = members(tmp_path, private(), hub, pace=pace, exchanges=None)
    threads = [start(member) for member in three]
    until(lambda: len(three[2].played) > 10)
    three[2].node.stop()
    threads[2].join(10)
    three[2].node.ledger.close()
    left = max(three[2].played)
    until(lambda: max(three[0].played) > left + 25)
    again = make_member(
        tmp_path / "2", private(), 2, hub.transport(2), SAMPLES, key=three[2].key, pace=pace, exchanges=None
    )
    threads.append(start(again))
    until(lambda: max(again.played, default=0) > left + 40)
    time.sleep(0.3)
    apart = max(three[0].played) - max(again.played)
    for member in (*three[:2], again):
        member.node.stop()
    assert abs(apart) <= 2
    assert sorted(again.played) == list(range(min(again.played), max(again.played) + 1))
    assert min(again.played) <= left + 1


def test_a_flood_neither_stops_a_node_nor_keeps_it_from_stopping(tmp_path: Path) -> None:
    algorithm, hub, done = private(), Hub(), threading.Event()
    three = members(tmp_path, algorithm, hub, exchanges=None)
    threads = [start(member) for member in three]
    until(lambda: len(three[0].played) > 3)
    frames = frame_format(algorithm, "0" * 32, three[0].node._me.leaves)
    want = frames.encode(Frame("want", 1, 0, 0))

    def flood() -> None:
        while not done.is_set():
            hub.receivers.get(0, lambda *_: None)(1, want)

    flooding = threading.Thread(target=flood, daemon=True)
    flooding.start()
    before = len(three[0].played)
    until(lambda: len(three[0].played) > before + 5)
    three[0].node.stop()
    threads[0].join(3)
    done.set()
    assert not threads[0].is_alive()
    assert three[0].node.board.numbers()["frames_dropped queue"] > 0
    for member in three:
        member.node.stop()


def test_a_question_that_the_message_answers_is_not_answered_again(tmp_path: Path) -> None:
    """A node whose disk is slower than its neighbours' patience finds their questions when it has sent its message."""
    slow, *others = members(tmp_path, private(), Hub(), pace=Pace(deadline=5.0, retry=0.01))
    commit = slow.node.ledger.commit

    def commit_slowly(*facts: Any) -> Any:
        time.sleep(0.04)
        return commit(*facts)

    slow.node.ledger.commit = commit_slowly  # type: ignore[method-assign]
    run_all([slow, *others])
    counts = slow.node.board.numbers()
    assert counts["exchanges"] == 30
    assert sum(member.node.board.numbers()["wanted"] for member in others) >= 60  # at least once an exchange each
    assert counts["resent"] <= 6  # those that cross a message on its way


def test_what_was_lost_is_sent_again_when_it_is_asked_for(tmp_path: Path) -> None:
    lossy = members(
        tmp_path, private(), Hub(Faults(loss=0.1, delay=0.001, seed=5)), pace=Pace(deadline=5.0, retry=0.02)
    )
    run_all(lossy)
    assert all(member.node.board.numbers()["exchanges"] == 30 for member in lossy)
    assert sum(member.node.board.numbers()["missing"] for member in lossy) == 0
    assert sum(member.node.board.numbers()["resent"] for member in lossy) >= 10


def test_large_and_unknown_frames_are_not_even_kept(tmp_path: Path) -> None:
    (one,) = members(tmp_path, private(), Hub(), among=[0])
    inbox = one.node._post._inbox
    inbox.put(1, bytes(one.node._format.limit + 1))
    inbox.put(7, b"hello")
    numbers = one.node.board.numbers()
    assert (numbers["frames_dropped size"], numbers["frames_dropped stranger"]) == (1, 1)
    assert inbox._arrivals.take(0) == []
    one.node.ledger.close()


def test_push_sum_stays_finite_without_a_neighbour(tmp_path: Path) -> None:
    algorithm = prepared(
        algorithms.dp_push_sum_dual_averaging(
            problems.Linear(3), topology.directed_ring(3), budget=Budget(5.0), clip=1.0, step=0.1
        )
    )
    two = members(tmp_path, algorithm, Hub(), among=[1, 2], exchanges=200, samples=[], pace=Pace(0.1, 0, 0.02, 0.2))
    run_all(two)
    masses = []
    for member in two:
        gossip = member.node._gossip
        assert isinstance(gossip, Cumulative)
        masses.append(float(gossip.now[1]))
        assert np.isfinite(member.played[199]).all()
        assert np.abs(member.played[199]).max() < 1e3
    assert min(masses) > 0.1


def test_the_horizon_is_used_up_and_the_last_decision_is_served(tmp_path: Path) -> None:
    hub, algorithm = Hub(), private(horizon=12)
    three = members(tmp_path, algorithm, hub, exchanges=None)
    run_all(three)
    for member in three:
        assert member.ended == "exhausted"
        assert member.node.board.decision()["exchange"] == 12
    shown = three[1].node.board.decision()["decision"]
    (again,) = members(tmp_path, algorithm, Hub(), among=[1], exchanges=None, key=three[1].key)  # alone
    again.node.source.resume = None  # no sample is read any more, so nothing asks whether they are the same
    thread = start(again)
    until(lambda: again.node.board.state == "exhausted")
    assert again.node.board.decision()["decision"] == shown
    before, now = (member.node.board.numbers() for member in (three[1], again))
    assert all(now[name] == before[name] > 0 for name in ("epsilon_spent", "delta_spent"))
    assert again.node.ledger.last.number == three[1].node.ledger.last.number
    again.node.stop()
    thread.join(5)


def test_a_run_can_be_made_longer(tmp_path: Path) -> None:
    hub, algorithm = Hub(), private()
    first = members(tmp_path, algorithm, hub, exchanges=5)
    run_all(first)
    keys = [member.key for member in first]
    more = [
        make_member(tmp_path / str(i), algorithm, i, hub.transport(i), SAMPLES, key=keys[i], pace=QUICK, exchanges=9)
        for i in range(3)
    ]
    run_all(more)
    assert all(max(member.played) == 9 for member in more)


@pytest.mark.parametrize(
    ("budget", "earlier", "allowed"),
    [
        (Budget(1.0, 1e-9), (), 30),
        (Budget(0.5, 1e-9), (), 0),
        (Budget(1.0), (), 0),  # the sampler's error needs a delta
        (Budget(2.0, 1e-9), (Pure(0.9),), 30),
        (Budget(2.0, 1e-9), (Pure(1.1),), 0),
        (Budget(2.0, 1e-9), (None,), 0),  # a run without any privacy
    ],
)
def test_a_budget_covers_earlier_runs(tmp_path: Path, budget: Budget, earlier: Any, allowed: int) -> None:
    costs = [Cost("test", "r", 0, loss, 0.0 if loss else 1.0, 0.0, "") for loss in earlier]
    (one,) = members(tmp_path, private(topology.isolated(1)), Hub(), budget=budget, earlier=costs)
    run_all([one])
    assert max(one.played) == allowed
    assert one.ended == ("finished" if allowed else "exhausted")


def test_why_a_run_ended_is_known_after_a_restart(tmp_path: Path) -> None:
    """A tree's cost grows, so that a budget ends the run before the horizon does."""
    options = {"budget": Budget(1.0), "clip": 1.0, "steps_per_exchange": 1, "horizon": 64, "aggregation": "tree"}
    algorithm = prepared(algorithms.pd_ftgl(PROBLEM, topology.isolated(1), **options))
    (one,) = members(tmp_path, algorithm, Hub(), budget=Budget(0.5, 1e-6), exchanges=None)
    run_all([one])
    assert 0 < max(one.played) < 64
    (again,) = members(tmp_path, algorithm, Hub(), exchanges=None, key=one.key)
    run_all([again])
    for member in (one, again):
        assert any("budget_used_up" in line for line in member.node.board._logs.lines)
        assert not any("horizon_used_up" in line for line in member.node.board._logs.lines)


def test_only_who_hears_a_learner_can_tell_that_its_ledger_is_old(tmp_path: Path) -> None:
    """On a ring in one direction 2 is heard by 0, and never hears it: it has nothing to compare."""
    options = {"budget": Budget(5.0), "clip": 1.0, "step": 0.1}
    made = algorithms.dp_push_sum_dual_averaging(problems.Linear(3), topology.directed_ring(3), **options)
    hub, algorithm = Hub(), prepared(made)
    first = members(tmp_path, algorithm, hub, samples=[], exchanges=4)
    run_all(first)
    shutil.copytree(tmp_path / "0", tmp_path / "old" / "0")
    keys = [member.key for member in first]
    more = [
        make_member(tmp_path / str(i), algorithm, i, hub.transport(i), [], key=keys[i], pace=QUICK, exchanges=8)
        for i in range(3)
    ]
    run_all(more)
    mark = len(hub.sent)
    given = {"samples": [], "exchanges": None}
    (old,) = members(tmp_path / "old", algorithm, hub, among=[0], key=keys[0], **given)
    (deaf,) = members(tmp_path, algorithm, hub, among=[2], key=keys[2], **given)
    threads = [start(old), start(deaf)]
    until(lambda: any("waiting" in line for line in old.node.board._logs.lines))
    form = frame_format(algorithm, "0" * 32, old.node._me.leaves)
    assert {form.decode(data, 0).kind for sender, _, data in hub.sent[mark:] if sender == 0} <= {"want", "seen"}
    (hearer,) = members(tmp_path, algorithm, hub, among=[1], key=keys[1], **given)
    threads.append(start(hearer))
    until(lambda: old.error is not None)
    assert "old copy" in str(old.error)
    for member in (deaf, hearer):
        member.node.stop()
    for thread in threads:
        thread.join(10)


def after_gossip(**options: Any) -> Any:
    given = {"budget": Budget(1.0), "clip": 1.0, "steps_per_exchange": 2, "horizon": 64, **options}
    made = algorithms.pd_ftgl(PROBLEM, topology.complete(3), **given, noise_at="after-gossip", aggregation="tree")
    return prepared(made)


def test_who_leaves_has_spent_what_others_may_still_release(tmp_path: Path) -> None:
    """With noise after gossip the others go on to release what a node told them, and add the noise to it."""
    algorithm, played = after_gossip(), []
    for label in (0, 1):
        hub, folder = Hub(), tmp_path / str(label)
        (leaver,) = members(folder, algorithm, hub, among=[0], samples=[(SAMPLES[0][0], label)] * 2, exchanges=1)
        others = [
            make_member(folder / str(i), algorithm, i, hub.transport(i), SAMPLES, key=bytes(32), run="r", pace=QUICK,
                        exchanges=5)
            for i in (1, 2)
        ]  # fmt: skip
        run_all([leaver, *others])
        played.append(others[0].played)
    assert not np.array_equal(played[0][4], played[1][4])  # four exchanges after it left
    with Ledger.open(tmp_path / "0" / "0" / "ledger.db", read_only=True) as ledger:
        (spent,) = ledger.last.spent
    assert (spent.position, spent.loss) == (1, algorithm.guarantee.losses[0])


@pytest.mark.parametrize(("epsilon", "ended"), [(0.99, "exhausted"), (1.01, "finished")])
def test_a_budget_that_others_may_exceed_is_refused_before_anything_is_sent(
    tmp_path: Path, epsilon: float, ended: str
) -> None:
    hub = Hub()
    three = members(tmp_path, after_gossip(), hub, budget=Budget(epsilon, 1e-6), exchanges=3)
    run_all(three)
    assert [member.ended for member in three] == [ended] * 3
    form = frame_format(after_gossip(), "0" * 32, three[0].node._me.leaves)
    messages = [data for sender, _, data in hub.sent if form.decode(data, sender).kind == "message"]
    assert bool(messages) == (ended == "finished")


def test_a_sample_that_all_see_costs_its_owner_what_all_release() -> None:
    problem = problems.Logistic(3, feature_bound=1.0, domain=sets.L2Ball(2.0))
    options = {"budget": Budget(4.0, 1e-6), "clip": 1.0, "noise": "gaussian", "aggregation": "blt", "horizon": 100}
    algorithm = algorithms.dpsda_c(problem, topology.ring(3), **options, batch=2)
    assert algorithm.others_release
    ((_, first),), ((_, last),) = (algorithm.spent(count, 0).values() for count in (1, 100))
    assert first == last == algorithm.guarantee.losses[0]
    assert not private().others_release


@pytest.mark.parametrize(("make", "word"), [(private, "plain"), (after_gossip, "accelerated")])
def test_no_name_of_the_code_is_written_to_disk(tmp_path: Path, make: Any, word: str) -> None:
    one, *_ = three = members(tmp_path, make(), Hub(), exchanges=2)
    run_all(three)
    with Ledger.open(tmp_path / "0" / "ledger.db", read_only=True) as ledger:
        kept, first, last = unpack(ledger.state() or b""), next(ledger.rows()), ledger.last
    assert list(kept) == ["step", "heard", "mark", "seen", "state", "gossip", "arrays"]
    assert (kept["gossip"], restored(word, kept["arrays"], [()], one.node._me.theta).word) == (word, word)
    assert list(json.loads(first.note)) == ["network", "learner", "config", "source", "key"]
    words = "number time kind exchange step run spent bytes message state note previous hash"
    assert list(json.loads(last.to_json())) == words.split()


@pytest.mark.parametrize(
    ("make", "there", "last", "refused"),
    [
        (private, range(3), Position(2, 0), Position(3, 0)),
        (after_gossip, range(3), Position(2, 0), Position(2, 1)),
        (after_gossip, range(1), Position(0, 0), Position(0, 1)),  # alone it gives up, and cannot commit that
    ],
    ids=["a release", "a gossip step", "word that there is none"],
)
def test_a_commit_that_fails_leaves_the_node_where_it_was(
    tmp_path: Path, make: Any, there: range, last: Position, refused: Position
) -> None:
    """Its position, what it has sent and what it answers to its neighbours are those of the last commit."""
    hub = Hub()
    broken, *others = members(tmp_path, make(), hub, among=there, exchanges=10)
    node, post, form = broken.node, broken.node._post, broken.node._format
    commit = node.ledger.commit

    def fail(kind: Any, exchange: int, step: int, *facts: Any) -> Any:
        if (exchange, step) == refused:
            raise LedgerError("the disk is full")
        return commit(kind, exchange, step, *facts)

    node.ledger.commit = fail  # type: ignore[method-assign]
    threads = [start(member) for member in (broken, *others)]
    threads[0].join(30)
    for member in others:
        member.node.stop()
    for thread in threads:
        thread.join(30)
    assert "the disk is full" in str(broken.error)
    for _ in range(10):
        post.look(0.0)  # what had come by then

    def said() -> list[Frame]:
        return [form.decode(data, 0) for sender, _, data in hub.sent if sender == 0]

    def answered(*question: Any) -> list[tuple[str, Position]]:
        before = len(said())
        post._inbox.put(1, form.encode(Frame(question[0], 1, *question[1])))
        post.look(0.0)
        return [(frame.kind, frame.position) for frame in said()[before:]]

    assert node._position == last == (node.ledger.last.exchange, node.ledger.last.step)
    assert max(frame.position for frame in said() if frame.kind in ("message", "void")) == last
    held = ("seen", post.all_seen().get(1, NEVER))
    assert answered("want", refused) == [held]
    assert answered("want", last) == [held, ("message", last)]
    assert answered("seen", last) == []
    with pytest.raises(LedgerError, match=f"holds a message of exchange {refused.exchange}"):
        answered("seen", refused)
    node.ledger.close()


def test_raw_gradients_are_not_kept_at_rest(tmp_path: Path) -> None:
    algorithm = private()
    me = Participant(algorithm, 0, SecureNoise(bytes(32), "run", "digest"))
    block = Block(np.array([[0.4, 0.3, 0.2]], np.float32), np.array([1], np.int32))
    gossip, state = me.release(me.start(), block, 0)
    kept = dict(zip(state._fields, me.stored(state, gossip.heard()[0]), strict=False))
    assert kept["x"] == 0  # the message
    assert kept["gradient"] is None
    assert kept["heard"] is None


@pytest.mark.parametrize("make", [algorithms.dp_push_sum_dual_averaging, algorithms.dp_subgradient_rescaling])
def test_published_costs_that_count_on_every_message_are_refused(make: Any) -> None:
    network = topology.ring(3, weights="uniform")
    published = make(PROBLEM, network, budget=Budget(1.0), clip=1.0, horizon=9, calibration="published")
    with pytest.raises(PrivacyError, match="messages are lost"):
        prepared(published)


def test_the_digest_tells_models_apart() -> None:
    def linear(params: Any, x: Any) -> Any:
        return x @ params

    def doubled(params: Any, x: Any) -> Any:
        return 2 * x @ params

    def scaled(by: Any) -> Any:
        return lambda params, x: (x * jnp.asarray(by)) @ params

    digests = set()
    models = ((linear, 0.0), (linear, 1.0), (doubled, 0.0), (scaled([1.0, 2.0]), 0.0), (scaled([1.0, 3.0]), 0.0))
    for apply, start_at in models:
        model = problems.Model(apply, jnp.full((2, 2), start_at), features=(2,), classes=2)
        digests.add(algorithms.d_ogd(model, topology.ring(3), step=0.1).digest)
    assert len(digests) == len(models)
