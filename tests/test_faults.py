"""Nodes on a network that loses, delays, repeats and reorders frames, or falls apart: they go on, and promise no less.

Over a transport in memory. Nodes ask again for what they lack, so chance alone changes nothing; where a message is
really missing, the guarantee is computed again from what the nodes did, by code that does not calibrate anything.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgpack
import numpy as np
import pytest

from gossamer import Budget, topology
from gossamer.core import Algorithm
from gossamer.net.data.samples import block_of
from gossamer.net.node.agreement import block_at, noise_of, prepared
from gossamer.net.node.correspondence import Pace
from gossamer.net.node.gossip import Accelerated, Averaging, LocalGossip, after_step
from gossamer.net.node.neighbourhood import Neighbourhoods
from gossamer.net.node.participant import Participant
from gossamer.net.store.ledger import Row
from gossamer.net.wire.transport import ALL
from gossamer.topology import Topology
from tests import instances
from tests.networks import Faults, Hub, Member, repeatable, run_all

LEARNERS = 5
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # one or more of each kind of `Algorithm.missing`
    "pd_ogd": ("pd_ogd", {}),
    "pd_ftgl": ("pd_ftgl", {}),
    "ldp_endless": ("ldp_endless", {}),
    "dpsda_ps": ("dpsda_ps", {"budget": Budget(12.0)}),
    "pd_ftgl after gossip": ("pd_ftgl", {"noise_at": "after-gossip", "aggregation": "tree"}),
}
KINDS = ("message", "void", "want", "seen")
FAR = ({0, 1, 2}, {3, 4})  # the two sides of the only link between learners 2 and 3


@cache
def algorithm_of(case: str) -> Algorithm:
    name, options = CASES[case]
    return prepared(instances.algorithm(name, LEARNERS, **options))


def head(data: bytes) -> tuple[str, int, int]:
    """Kind, exchange and step of a frame, read without the code under test."""
    fields = msgpack.unpackb(data)
    return KINDS[fields[3]], fields[5], fields[6]


@dataclass
class Ran:
    """What a run left behind."""

    members: list[Member]
    hub: Hub
    rows: list[list[Row]]
    used: dict[tuple[int, int, int], set[int]] = field(default_factory=dict)  # of (learner, exchange, step): senders
    came: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(LEARNERS)])  # frames a node looked at

    def played(self) -> np.ndarray:
        """Axes: exchange, learner, coordinate."""
        exchanges = range(len(self.members[0].played))
        return np.stack([[member.played[t] for member in self.members] for t in exchanges])

    def count(self, learner: int, name: str) -> int:
        return counted(self.members[learner], name)

    def dropped(self, learner: int) -> dict[str, int]:
        lines = self.members[learner].node.board.prometheus().splitlines()
        found = (re.search(r'frames_dropped_total\{.*reason="(\w+)"\} (\d+)', line) for line in lines)
        return {match[1]: int(match[2]) for match in found if match}

    def total(self, name: str) -> int:
        return sum(self.count(learner, name) for learner in range(len(self.members)))


def counted(member: Member, name: str) -> int:
    return int(member.node.board.numbers()[name])


def run(
    folder: Path,
    algorithm: Algorithm,
    exchanges: int,
    faults: Faults | None = None,
    pace: Pace | None = None,
    prepare: Callable[[Member], None] = lambda member: None,
) -> Ran:
    """A network with keys, run ids and data that are always the same: only faults make a difference."""
    steps = exchanges * block_at(algorithm.schedule, exchanges - 1)
    stream = instances.stream(LEARNERS, steps, name=algorithm.name)
    warm(algorithm)
    hub = Hub(faults)
    transports, pace = map(hub.transport, range(LEARNERS)), pace or Pace(deadline=60.0, retry=0.01)
    members = repeatable(folder, algorithm, transports, stream, steps, pace=pace, exchanges=exchanges)
    ran = Ran(members, hub, [])
    for member in members:
        record(member, ran)
        prepare(member)
    ended = [member.node.ledger for member in members]
    run_all(members)
    for ledger in ended:
        with type(ledger).open(ledger.path, read_only=True) as closed:
            closed.verify()
            ran.rows.append(list(closed.rows()))
    return ran


def warm(algorithm: Algorithm) -> None:
    """Compile first: a node that compiles is late, and its neighbours would go on without it."""
    one = Participant(algorithm, 0, noise_of(algorithm, bytes(32), "warm"))
    rows = block_at(algorithm.schedule, 0) * algorithm.batch
    gossip, state = one.release(one.start(), block_of(algorithm.problem, [], rows), 0)
    one.decide(one.listen(state, gossip), 1)


def record(member: Member, ran: Ran) -> None:
    """Write down which frames a node looks at, and whose messages each step is made of."""
    post, inbox = member.node._post, member.node._post._inbox
    gather, look = post.gather, inbox._look

    def gathered(position: Any, senders: Any) -> Any:
        arrived = gather(position, senders)
        ran.used[member.node.learner, position.exchange, position.step] = set(arrived)
        return arrived

    def looked(sender: int, data: bytes) -> Any:
        ran.came[member.node.learner].append(data)
        return look(sender, data)

    post.gather, inbox._look = gathered, looked  # type: ignore[method-assign]


EXCHANGES = 40
APART, SECONDS = 8, 0.4  # the partition begins with this exchange, and lasts so long


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """The run of a case on a network without faults."""

    @cache
    def ran(case: str) -> Ran:
        return run(tmp_path_factory.mktemp("whole"), algorithm_of(case), EXCHANGES)

    return ran


class Partition:
    """Loses all frames between the two sides, from the first one of an exchange on, for some time."""

    def __init__(self) -> None:
        self._begun = math.inf

    def __call__(self, sender: int, receiver: int, data: bytes) -> bool:
        now = time.monotonic()
        if head(data)[1] >= APART:
            self._begun = min(now, self._begun)
        return (sender in FAR[0]) != (receiver in FAR[0]) and 0 <= now - self._begun < SECONDS


def every(count: int) -> Callable[[int, int, bytes], bool]:
    """Loses one in so many messages, and all requests for it: nothing tells that its sender lives."""

    def lose(sender: int, receiver: int, data: bytes) -> bool:
        kind, exchange, _ = head(data)
        speaker, hearer = (receiver, sender) if kind == "want" else (sender, receiver)
        return kind != "seen" and exchange > 0 and (speaker + 2 * hearer + exchange) % count == 0

    return lose


def sent_by(ran: Ran, learner: int, *kinds: str) -> list[tuple[int, bytes]]:
    return [(to, data) for sender, to, data in ran.hub.sent if sender == learner and head(data)[0] in kinds]


def releases(ran: Ran) -> list[Any]:
    """What the ledgers say that every release cost, and all of them together."""
    each = [[(row.exchange, row.step, row.spent) for row in rows if row.kind == "release"] for rows in ran.rows]
    return [*each, *(rows[-1].spent for rows in ran.rows)]


def hears(algorithm: Algorithm, learner: int) -> set[int]:
    weights = matrix_of(algorithm.topology)[learner]
    return {j for j in range(LEARNERS) if j != learner and weights[j]}


def matrix_of(network: Any) -> np.ndarray:
    assert isinstance(network, Topology)
    return np.asarray(network.matrix(), np.float64)


# Chance


@pytest.mark.parametrize("case", CASES)
def test_loss_delay_and_repetition_change_nothing(case: str, whole: Callable[[str], Ran], tmp_path: Path) -> None:
    """10 % of all frames are lost, 10 % come twice, all are late by chance: every message comes in the end."""
    algorithm = algorithm_of(case)
    ran = run(tmp_path, algorithm, EXCHANGES, Faults(loss=0.1, twice=0.1, delay=0.002))
    clean = whole(case)
    np.testing.assert_array_equal(ran.played(), clean.played())
    assert releases(ran) == releases(clean)
    for i in range(LEARNERS):
        assert set(sent_by(ran, i, "message")) == set(sent_by(clean, i, "message"))  # never two payloads
        due = len(hears(algorithm, i)) * EXCHANGES * algorithm.mixing.steps
        assert (ran.count(i, "missing"), ran.count(i, "void"), ran.count(i, "messages_received")) == (0, 0, due)
        check_counts_of_what_was_sent(ran, i)
        check_counts_of_what_came(ran, i, accepted=due)
    assert ran.total("resent") > 0
    assert sum(ran.dropped(i)["duplicate"] for i in range(LEARNERS)) > 0


def check_counts_of_what_was_sent(ran: Ran, learner: int) -> None:
    frames = sent_by(ran, learner, "message", "void")
    messages = set(sent_by(ran, learner, "message"))
    assert ran.count(learner, "messages_sent") + ran.count(learner, "resent") == len(frames)
    assert len(messages) <= ran.count(learner, "messages_sent") <= len(set(frames))
    assert ran.count(learner, "wanted") == len(sent_by(ran, learner, "want"))
    assert ran.count(learner, "bytes_sent") == sum(len(data) for who, _, data in ran.hub.sent if who == learner)


def check_counts_of_what_came(ran: Ran, learner: int, accepted: int) -> None:
    """Every message that a node looked at was used, or dropped and counted."""
    messages = sum(head(data)[0] == "message" for data in ran.came[learner])
    dropped = ran.dropped(learner)
    assert messages == accepted + sum(dropped.values())
    assert dropped["late"] + dropped["duplicate"] == sum(dropped.values())


# A partition. All frames between its sides are lost, requests and answers too, so deadlines pass.


@pytest.mark.parametrize("case", CASES)
def test_a_partition_is_survived(case: str, whole: Callable[[str], Ran], tmp_path: Path) -> None:
    algorithm, clean = algorithm_of(case), whole(case)
    ran = run(tmp_path, algorithm, EXCHANGES, Faults(lose=Partition()), Pace(deadline=0.2, period=0.05, retry=0.02))
    assert releases(ran) == releases(clean)
    assert [len(member.played) for member in ran.members] == [EXCHANGES + 1] * LEARNERS
    for i in range(LEARNERS):
        lacking = {where: hears(algorithm, i) - senders for where, senders in ran.used.items() if where[0] == i}
        assert {exchange for _, exchange, _ in lacking} == set(range(EXCHANGES))
        assert ran.count(i, "missing") == sum(map(len, lacking.values()))
        given_up = {exchange for (_, exchange, _), senders in lacking.items() if senders}
        assert ran.count(i, "void") == (len(given_up) if algorithm.missing == "nothing" else 0)
        check_counts_of_what_was_sent(ran, i)
    for learner, beyond in ((2, 3), (3, 2)):
        heard = {exchange for (i, exchange, _), senders in ran.used.items() if i == learner and beyond in senders}
        assert APART not in heard
        assert {exchange for exchange in heard if exchange > EXCHANGES - 10}, "it never heard the other side again"
    check_learning_goes_on(ran.played(), clean.played())


def check_learning_goes_on(played: np.ndarray, expected: np.ndarray) -> None:
    """Apart from what it would have been for a while, and then it comes back."""
    size = np.linalg.norm(expected, axis=-1).max(axis=-1)[2:]  # nothing is learnt before
    apart = np.linalg.norm(played - expected, axis=-1).max(axis=-1)[2:] / size
    assert apart.max() > 0.01, "the partition did nothing"
    assert apart[-1] < apart.max() / 2
    assert (np.linalg.norm(played[-1] - played[-10], axis=-1) > 0.01 * size[-1]).all()


# The guarantee, computed again. Where noise comes before gossip, all that is sent is a function of the releases.


def test_gossip_before_noise_sends_nothing_but_what_was_released(tmp_path: Path) -> None:
    """Somebody who sees the first messages of all exchanges, and who heard whom, can compute all others."""
    algorithm = algorithm_of("pd_ftgl")
    ran = run(tmp_path, algorithm, 8, Faults(lose=every(7)), Pace(deadline=0.05, period=0.03, retry=0.01))
    assert ran.total("missing") > 0
    frames = {(sender, *head(data)[1:]): values(data) for sender, _, data in ran.hub.sent if head(data)[0] == "message"}
    matrix, theta = matrix_of(algorithm.topology), ran.members[0].node._me.theta
    now = before = np.zeros((LEARNERS, instances.DIM))
    for exchange in range(8):
        released = np.stack([frames[i, exchange, 0] for i in range(LEARNERS)])
        now, before = released, before + released - now  # coupled: what is new is added to both
        for step in range(algorithm.mixing.steps):
            heard = [ran.used[i, exchange, step] for i in range(LEARNERS)]
            mean = np.stack([mean_of(i, now, matrix[i], heard[i]) for i in range(LEARNERS)])
            complete = np.array([[heard[i] == hears(algorithm, i)] for i in range(LEARNERS)])  # else a plain step
            now, before = np.where(complete, (1 + theta) * mean - theta * before, mean), now
            if step + 1 < algorithm.mixing.steps:
                sent = np.stack([frames[i, exchange, step + 1] for i in range(LEARNERS)])
                np.testing.assert_allclose(sent, now, atol=1e-5 * np.abs(now).max())


def mean_of(learner: int, now: np.ndarray, weights: np.ndarray, used: Iterable[int]) -> np.ndarray:
    """The weights of those who were not heard go to the learner's own message."""
    others = {j: weights[j] for j in used}
    return np.asarray((1 - sum(others.values())) * now[learner] + sum(w * now[j] for j, w in others.items()))


def values(data: bytes) -> np.ndarray:
    """The first array of a message."""
    dtype, shape, raw = msgpack.unpackb(data)[8][0]
    return np.frombuffer(raw, dtype).reshape(shape).astype(np.float64)


def test_push_sum_loses_no_mass(tmp_path: Path) -> None:
    """What learners hold and what is on its way is what they began with and what they added, whatever was lost."""
    algorithm = algorithm_of("dpsda_ps")
    faults = Faults(loss=0.05, twice=0.2, delay=0.002, lose=every(5))
    added: list[list[np.ndarray]] = []
    pace = Pace(deadline=0.05, period=0.03, retry=0.01)
    ran = run(tmp_path, algorithm, 30, faults, pace, prepare=lambda one: watch(one, added))
    assert ran.total("missing") > 50
    held = [member.node._gossip for member in ran.members]
    in_flight = 0
    for leaf in range(len(added[0])):
        total = sum(one.now[leaf].sum() for one in held)  # type: ignore[union-attr]
        for one, other in ((i, j) for i in range(LEARNERS) for j in hears(algorithm, i)):
            sent, got = held[other].sent[one], held[one].got.get(other)  # type: ignore[union-attr]
            way = sent[leaf] - (0.0 if got is None else got[leaf])  # on a busy machine all may have come too late
            in_flight += bool(np.abs(way).max() > 1e-6)
            total += way.sum()
        scale = sum(np.abs(each[leaf]).sum() for each in added)
        assert abs(total - sum(each[leaf].sum() for each in added)) <= 1e-9 * scale
    assert in_flight, "nothing was on its way: the test shows nothing"


def watch(member: Member, added: list[list[np.ndarray]]) -> None:
    """Write down what every release adds to what gossip holds."""
    release = member.node._me.release

    def released(state: Any, block: Any, exchange: int, carried: LocalGossip | None = None) -> Any:
        gossip, after = release(state, block, exchange, carried)
        if member.node._state is None:  # it only warms up
            return gossip, after
        before = carried.heard()[0] if carried else [np.zeros(())] * len(gossip.heard()[0])
        added.append([now - old for now, old in zip(gossip.heard()[0], before, strict=True)])
        return gossip, after

    member.node._me.release = released  # type: ignore[method-assign]


# The endless algorithm: a sample's trace fades by the weight of what is heard of others, or of what stands for it.


def cost(
    weights: Iterable[float], *, step: float, smooth: float, convex: float, size: int, growth: float, delay: int = 0
) -> float:
    """Eq. (17) to (22) of paper 003 with the weights of all exchanges: sqrt(d) sum_t Phi_t / (t+1)^growth; C = 2."""
    moved, total = 0.0, 0.0
    for t, weight in enumerate(weights):
        if t >= delay:
            rate, kept = step / (t + 1) ** 0.77, 1 - weight / (t + 1) ** 0.65
            moved = max(abs(kept - rate * convex), abs(kept - rate * smooth)) * moved + rate * 2.0 / (t + 1)
        total += moved / (t + 2) ** growth
    return math.sqrt(size) * total


@pytest.mark.parametrize(("weight", "epsilon"), [(0.6, 241.7), (0.3, 713), (0.15, 2469), (0.0, 39_387)])
def test_a_weight_that_is_left_out_costs_what_the_notes_say(weight: float, epsilon: float) -> None:
    found = cost([weight] * 2000, step=1.0, smooth=0.25, convex=0.0, size=112, growth=0.11)
    assert found == pytest.approx(epsilon, rel=1e-3)


@partial(jax.jit, static_argnums=0)
def turned(
    learner: Any, state: Any, now: Any, theta: jax.Array, own: jax.Array, heard: jax.Array, omitted: jax.Array
) -> jax.Array:
    """How the next theta moves with theta. `omitted`: of the own message this weight is taken, and nothing is heard."""

    def moved(point: jax.Array) -> jax.Array:
        listening = learner.listen(state._replace(theta=point), heard + omitted * (point - own))
        after: jax.Array = learner.speak(listening, now)[1].theta
        return after

    return jax.jacobian(moved)(theta)


def realised_weights(algorithm: Algorithm, learner: int, arrived: frozenset[int]) -> tuple[float, float]:
    """By how much the next theta forgets theta, divided by the coupling: as it is, and with the lost term left out."""
    one = Participant(algorithm, learner, noise_of(algorithm, bytes(32), "weights"))
    network = algorithm.topology
    assert isinstance(network, Topology)
    around = Neighbourhoods(network, learner).at(0)
    rng = np.random.default_rng(learner)
    theta, own = (0.1 * rng.normal(size=(2, instances.DIM))).astype(np.float32)
    messages = {j: (rng.normal(size=instances.DIM).astype(np.float32),) for j in sorted(arrived)}
    heard = np.asarray(Averaging((own,)).mixed(around, messages).heard()[0][0], np.float32)
    everything = np.stack([own if j == learner else messages.get(j, (own,))[0] for j in range(LEARNERS)])
    np.testing.assert_allclose(heard, matrix_of(algorithm.topology)[learner] @ everything, atol=1e-5)
    lost = np.float32(sum(weight for j, weight in around.hears.items() if j not in arrived))
    coupling = np.float32(0.125)
    public = {"coupling": coupling, "step": np.float32(0), "time": np.float32(1), "share": np.float32(0)}
    given = {name: jnp.asarray(value) for name, value in public.items()}
    state = one.start()._replace(theta=jnp.asarray(theta), y=jnp.asarray(own))
    now = one._now("speak", 0)._replace(public=given)

    def weight(omitted: np.float32) -> float:
        facts = (jnp.asarray(each) for each in (theta, own, heard, omitted))
        jacobian = np.asarray(turned(algorithm.learner, state, now, *facts), np.float64)
        np.testing.assert_allclose(jacobian, jacobian[0, 0] * np.eye(instances.DIM), atol=1e-6)
        return float((1 - jacobian[0, 0]) / coupling)

    return weight(np.float32(0)), weight(lost)


def test_lost_messages_cost_the_endless_algorithm_nothing(tmp_path: Path) -> None:
    """The weights that learners really gave, by who was heard when, in the paper's recursion: the ledger's epsilon."""
    algorithm = algorithm_of("ldp_endless")
    ran = run(tmp_path, algorithm, EXCHANGES, Faults(lose=every(3)), Pace(deadline=0.05, period=0.03, retry=0.01))
    weights_of = cache(lambda *facts: realised_weights(algorithm, *facts))
    for i in range(LEARNERS):
        used = [frozenset(ran.used[i, exchange, 0]) for exchange in range(EXCHANGES)]
        kept, left_out = zip(*(weights_of(i, senders) for senders in used), strict=True)
        assert len(set(used)) > 1
        ledger = ran.rows[i][-1].spent[0].loss.epsilon(0.0)
        assert epsilon_of(algorithm, i, kept) == pytest.approx(ledger, rel=2e-3)
        assert epsilon_of(algorithm, i, left_out) > 1.02 * ledger


def epsilon_of(algorithm: Algorithm, learner: int, weights: Iterable[float]) -> float:
    """With what tests.instances says: features of norm 2, l2 0.01, steps 2 / t^0.77 from the fifth exchange on."""
    found = cost(weights, step=2.0, smooth=2.0**2 / 4 + 0.01, convex=0.01, size=instances.DIM, growth=0.1, delay=4)
    return found / algorithm.scales_of("parameters")[learner].value


# Noise after gossip covers the exact matrix of gossip, and parts of it.


def released_map(network: Topology, steps: int, lost: Callable[[int, int, int], bool], missing: Any) -> np.ndarray:
    """Row i: what learner i releases of every d_j, where gossip of unit vectors loses (step, sender, receiver)."""
    n, theta = network.learners, 0.5
    arounds = [Neighbourhoods(network, i).at(0) for i in range(n)]
    each: list[LocalGossip] = [Accelerated((one,), (one,), theta) for one in np.eye(n)]
    for step in range(steps):
        sent = [gossip.outgoing(around)[0] for gossip, around in zip(each, arounds, strict=True)]
        each = [
            after_step(
                each[i], around, {j: sent[j][ALL] for j in around.hears if sent[j] and not lost(step, j, i)}, missing
            )
            for i, around in enumerate(arounds)
        ]
    return np.stack([gossip.heard()[0][0] for gossip in each])


def exact_map(network: Topology, steps: int) -> np.ndarray:
    """p_L(P), by its recursion."""
    matrix = matrix_of(network)
    now = before = np.eye(network.learners)
    for _ in range(steps):
        now, before = 1.5 * matrix @ now - 0.5 * before, now
    return now


def k1(matrix: np.ndarray) -> float:
    """What one learner's data move in all releases together, in the l1 norm."""
    return float(np.abs(matrix).sum(axis=0).max())


def test_after_gossip_nothing_but_exact_results_are_released() -> None:
    network, steps = topology.ring(9, weights="lazy"), 6
    exact = exact_map(network, steps)
    np.testing.assert_allclose(released_map(network, steps, lambda *_: False, "nothing"), exact, atol=1e-6)
    rng, released, own = np.random.default_rng(5), 0, []
    for _ in range(30):
        lost = rng.random((steps, 9, 9)) < 0.01
        found = released_map(network, steps, lambda *where, lost=lost: bool(lost[where]), "nothing")
        kept = np.abs(found).sum(axis=1) > 0
        np.testing.assert_allclose(found[kept], exact[kept], atol=1e-6)
        assert k1(found) <= k1(exact) + 1e-6
        released += int(kept.sum())
        own.append(k1(released_map(network, steps, lambda *where, lost=lost: bool(lost[where]), "own")))
    assert 0 < released < 30 * 9
    assert max(own) > 1.1 * k1(exact)  # the weight on the own message instead


def test_one_lost_message_silences_those_it_would_have_reached() -> None:
    """And nobody else: the word that there is none goes one link further at every step."""
    network = topology.ring(9, weights="lazy")
    for step in range(6):
        found = released_map(network, 6, lambda *where, step=step: where == (step, 0, 1), "nothing")
        silent = np.flatnonzero(np.abs(found).sum(axis=1) == 0)
        reach = 6 - 1 - step
        assert set(silent) == {(1 + k) % 9 for k in range(-reach, reach + 1)}
