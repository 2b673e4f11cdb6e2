"""What leaves a learner is checked by the program: mutants of every private algorithm never say `proven`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gossamer import Budget, algorithms, problems, sets, simulate, topology
from gossamer.algorithms import REGISTRY
from gossamer.core import Algorithm, Every, Federation, Learner, Now, Phases, Rate, Segment, Server
from gossamer.core.checked import Guarded
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import Calibrated, ExponentialMechanism, Independent, Mechanism, TreeSum
from gossamer.net.node.participant import Participant
from gossamer.privacy import Assumption, Clip, Guarantee, NoiseSpec, Pure, Scale, Sensitivity, Unit, declared
from gossamer.privacy.marks import marked
from gossamer.problems import Block
from tests import instances

PRIVATE = tuple(name for name in REGISTRY if instances.algorithm(name).guarantee.basis == "proven")
BUDGET, WITH_DELTA = Budget(20.0), Budget(20.0, 1e-3)
GAUSSIAN = {"noise": "gaussian", "budget": WITH_DELTA}
FORMS = {
    "pd_ftgl after gossip": ("pd_ftgl", {"noise_at": "after-gossip"}),
    "pd_ftgl blt": ("pd_ftgl", GAUSSIAN | {"aggregation": "blt"}),
    "pd_ftgl tree": ("pd_ftgl", {"aggregation": "tree"}),
    "online_federated tree": ("online_federated", {"aggregation": "tree"}),
    "online_federated rounds": ("online_federated", {"release": "rounds"}),
    "dp_ftrl tree": ("dp_ftrl", {"aggregation": "tree", "noise": "laplace", "budget": Budget(20.0)}),
    "dpsda_c batch": ("dpsda_c", {"unit": "batch", "aggregation": "independent"}),
    "fed_ope_stoch central": ("fed_ope_stoch", {"trust": "central"}),
    "fed_ope_stoch leaf": ("fed_ope_stoch", {"release": "leaf", "trees": 1}),
    "fed_svt local": ("fed_svt", {"trust": "local"}),
    "pd_ogd horizon": ("pd_ogd", {"horizon": 100}),
}
EVERY = (*PRIVATE, *FORMS)
SEEN_TO_THE_END = {
    *("pd_ogd", "pd_ftgl", "pd_ocg", "online_federated", "dp_push_sum_dual_averaging", "dp_subgradient_rescaling"),
    *("pd_ftgl blt", "pd_ftgl tree", "online_federated tree", "pd_ogd horizon"),
}
"""All others need a declaration, which in a stranger's code nothing enforces."""
every_private = pytest.mark.parametrize("name", EVERY)


@cache
def private(name: str) -> Algorithm:
    registered, options = FORMS.get(name, (name, {}))
    return instances.algorithm(registered, **options)


def claimed(algorithm: Algorithm, **changed: Any) -> Algorithm:
    """The same with something changed, by somebody who still claims that it is proven."""
    kept = tuple(one for one in algorithm.guarantee.assumptions if one.enforced)
    promise = replace(algorithm.guarantee, basis="proven", assumptions=kept, reason="")
    return replace(algorithm, guarantee=promise, **changed)


def outcome(algorithm: Algorithm, **changed: Any) -> str:
    """What became of the claim: refused, or the basis that the guarantee has now."""
    try:
        return claimed(algorithm, **changed).guarantee.basis
    except PrivacyError as error:
        return f"refused: {error}"


@every_private
def test_algorithms_as_they_are_stay_proven(name):
    algorithm = private(name)
    assert algorithm.guarantee.basis == "proven"
    assert algorithm.guarantee.checked
    assert any("only" in one.claim and "core.flow" in one.enforced_by for one in algorithm.guarantee.assumptions)


# -- mutants of how a mechanism is called ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrapped:
    """A mechanism that somebody calls in a wrong way."""

    inner: Mechanism
    how: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def release(self, state, value, noise, grid, **public):
        return self._called(self.inner.release, state, value, noise, grid, **public)

    def increment(self, state, value, noise, grid):
        return self._called(self.inner.increment, state, value, noise, grid)

    def _called(self, call, state, value, noise, grid, **public):  # noqa: PLR0911
        mine = {name: noise[name] for name in self.inner.laws()}
        others = {name: draw for name, draw in noise.items() if name not in mine}
        if self.how == "skip":
            noisy, state = call(state, value, noise, grid, **public)
            return jnp.where(False, noisy, answer(noisy, value)), state
        if self.how == "multiply after the clip":
            return call(state, value * 1e6, noise, grid, **public)
        if self.how == "zero the draw":
            return call(state, value, {name: draw * 0 for name, draw in mine.items()} | others, grid, **public)
        if self.how == "scale the draw":
            return call(state, value, {name: draw * 0.5 for name, draw in mine.items()} | others, grid, **public)
        if self.how == "subtract the draw":
            noisy, state = call(state, value, noise, grid, **public)
            draw = answer(noisy, next(iter(mine.values())))
            return (noisy ^ draw if noisy.dtype == jnp.bool_ else noisy - draw), state
        if self.how == "use the draw twice":
            first, state = call(state, value, noise, grid, **public)
            second, state = call(state, value * 2, noise, grid, **public)
            return (first if first.dtype == jnp.bool_ else 2 * first - second), state
        if self.how == "reuse the state":
            return call(state, value, noise, grid, **public)[0], state
        if self.how == "make the state anew":
            return call(self.inner.init(), value, noise, grid, **public)[0], state
        if self.how == "under a predicate of the data":
            shapes = jax.eval_shape(call, state, value, noise, grid, **public)[0]
            quiet = jnp.zeros(shapes.shape, shapes.dtype)
            return jax.lax.cond(
                jnp.sum(value) > 0, lambda: call(state, value, noise, grid, **public), lambda: (quiet, state)
            )
        assert self.how == "faithful"
        return call(state, value, noise, grid, **public)


def answer(released: jax.Array, value: jax.Array) -> jax.Array:
    """Something raw, with the shape and type of what a mechanism releases."""
    return (
        value
        if released.shape == value.shape and released.dtype == value.dtype
        else jnp.sum(value).astype(released.dtype)
    )


def holding(algorithm: Algorithm, how: str) -> dict[str, Any]:
    """Learner and server with every mechanism wrapped."""
    changed: dict[str, Any] = {}
    for side in ("learner", "server"):
        owner = getattr(algorithm, side)
        held = [one.name for one in fields(owner) if isinstance(getattr(owner, one.name), Mechanism)] if owner else []
        if held:
            wrapped = {name: Wrapped(getattr(owner, name), how) for name in held}
            changed[side] = replace(owner, **wrapped)
    return changed


CALLS = (
    "skip",
    "multiply after the clip",
    "zero the draw",
    "scale the draw",
    "subtract the draw",
    "use the draw twice",
    "under a predicate of the data",
)
ONLY_THE_BOUND_IS_LOST = ("multiply after the clip",)


@every_private
def test_a_mechanism_that_is_called_as_it_should_be_cleans(name):
    """The mutants below fail for what they do. Where a declaration is needed, a stranger's code makes it heuristic."""
    found = outcome(private(name), **holding(private(name), "faithful"))
    assert found == ("proven" if name in SEEN_TO_THE_END else "heuristic")


@every_private
@pytest.mark.parametrize("how", CALLS)
def test_a_mechanism_that_is_called_wrongly_is_not_proven(name, how):
    found = outcome(private(name), **holding(private(name), how))
    assert found.startswith("refused") or (found == "heuristic" and how in ONLY_THE_BOUND_IS_LOST)


def has_state(algorithm: Algorithm) -> bool:
    return all(jax.tree.leaves(release.mechanism.init()) for release in algorithm.releases)


@pytest.mark.parametrize("name", [name for name in EVERY if has_state(private(name))])
@pytest.mark.parametrize("how", ["reuse the state", "make the state anew"])
def test_a_state_that_is_not_threaded_is_refused(name, how):
    assert outcome(private(name), **holding(private(name), how)).startswith("refused")


# -- mutants of learners and servers -----------------------------------------------------------------------------------


def subclass(owner: Any, **methods: Any) -> Any:
    """The same learner or server, of a class of a stranger's, with some functions changed."""
    made = dataclass(frozen=True)(type("Mutant", (type(owner),), methods))
    return made(**{one.name: getattr(owner, one.name) for one in fields(owner) if one.init})


class Remembering(NamedTuple):
    inner: Any
    raw: jax.Array


@dataclass(frozen=True)
class Leaky(Learner):
    """Remembers a raw number besides, and lets it out."""

    inner: Learner
    how: str

    @property
    def noise(self):
        return self.inner.noise

    def init(self, identity):
        return Remembering(self.inner.init(identity), jnp.zeros(()))

    def decide(self, state, now):
        decision = self.inner.decide(state.inner, now)
        return decision + 1e-6 * state.raw if self.how == "decision" else decision

    def learn(self, state, block, now):
        seen = jnp.sum(block.x) + (state.raw if self.how == "accumulator" else 0.0)
        given = block._replace(x=block.x + state.raw) if self.how == "accumulator" else block
        return Remembering(self.inner.learn(state.inner, given, now), seen)

    def speak(self, state, now):
        message, inner = self.inner.speak(state.inner, now)
        if self.how == "message":
            message = jax.tree.map(lambda leaf: leaf + 1e-6 * state.raw, message)
        return message, Remembering(inner, state.raw)

    def listen(self, state, heard):
        return Remembering(self.inner.listen(state.inner, heard), state.raw)


def sees_messages(algorithm: Algorithm) -> bool:
    return algorithm.guarantee.observer in ("peers", "outsiders", "wiretap")


@every_private
def test_a_raw_number_that_is_kept_to_oneself_does_no_harm(name):
    assert not outcome(private(name), learner=Leaky(private(name).learner, "nowhere")).startswith("refused")


@every_private
def test_a_raw_number_in_a_message_or_a_decision_is_refused(name):
    algorithm = private(name)
    where = "message" if sees_messages(algorithm) else "decision"
    found = outcome(algorithm, learner=Leaky(algorithm.learner, where))
    assert found.startswith("refused")
    assert f"{where} depends on" in found.replace(".now", "").replace(".value", "").replace(".x ", " ")
    assert "block.x" in found


@every_private
def test_a_raw_accumulator_is_not_proven(name):
    """Released at every exchange, it costs as much again each time."""
    algorithm = private(name)
    found = outcome(algorithm, learner=Leaky(algorithm.learner, "accumulator"))
    assert found.startswith("refused") or found == "heuristic"


@every_private
def test_raw_state_in_a_released_field_is_refused(name):
    learner = private(name).learner
    field = sorted(learner.released)[0]

    def listen(self, state, heard):
        after = type(learner).listen(self, state, heard)
        hidden = [getattr(state, name) for name in state._fields if name not in learner.released]
        raw = sum(jnp.sum(leaf.real.astype(jnp.float32)) for leaf in jax.tree.leaves(hidden))
        here = getattr(after, field)
        return after._replace(**{field: here + (1e-6 * raw).astype(here.dtype)})

    found = outcome(private(name), learner=subclass(learner, listen=listen))
    assert found.startswith("refused")


class Unclamped(problems.Experts):
    """Losses as large as they come."""

    def loss_sums(self, block, bits):
        return jnp.sum(block.x, axis=0)

    def row_gradients(self, decision, block):
        return 10 * block.x


def unbounded(owner: Any) -> Any:
    """The same without the clip."""
    changed: dict[str, Any] = {}
    for one in fields(owner):
        value = getattr(owner, one.name)
        if isinstance(value, Clip):
            changed[one.name] = None
        elif isinstance(value, problems.Experts):
            changed[one.name] = Unclamped(value.dim)
        elif hasattr(value, "clip"):  # a history
            changed[one.name] = replace(value, clip=None)
    return replace(owner, **changed)


@every_private
def test_a_release_before_the_clip_is_not_proven(name):
    found = outcome(private(name), learner=unbounded(private(name).learner))
    assert found.startswith("refused") or found == "heuristic"


@pytest.mark.parametrize("name", [name for name in EVERY if private(name).guarantee.observer == "broadcasts"])
def test_a_server_that_broadcasts_raw_messages_is_refused(name):
    server = private(name).server

    def aggregate(self, state, messages, now):
        answer, state = type(server).aggregate(self, state, messages, now)
        return answer + jnp.argmin(jnp.sum(messages, axis=0)).astype(answer.dtype), state

    found = outcome(private(name), server=subclass(server, aggregate=aggregate))
    assert found.startswith("refused")
    assert "broadcast depends on" in found


# -- what strangers write ----------------------------------------------------------------------------------------------

PROBLEM = problems.Logistic(4, feature_bound=2.0, domain=sets.L2Ball(3.0))
RING = topology.ring(5)
ONCE = Independent((4,), name="gradient")
CLIP = Clip(l2=1.0)


class Simple(NamedTuple):
    x: jax.Array
    heard: jax.Array
    gradient: jax.Array
    private: Any


@dataclass(frozen=True)
class Stranger(Learner):
    """Private gradient descent as somebody outside of Gossamer writes it."""

    mechanism: Any = ONCE
    problem: Any = PROBLEM

    released = frozenset({"x"})

    @property
    def noise(self):
        return self.mechanism.noise(used_in="speak")

    def init(self, identity):
        x = jnp.asarray(self.problem.initial_decision())
        return Simple(x, x, jnp.zeros_like(x), self.mechanism.init())

    def decide(self, state, now):
        return state.x

    def learn(self, state, block, now):
        return state._replace(gradient=self.problem.clipped_data_gradient_sum(state.x, block, CLIP))

    def speak(self, state, now):
        noised, private = self.mechanism.release(state.private, state.gradient, now.noise, now.grid)
        x = self.problem.domain.project(state.heard - now.public["step"] * noised)
        return x, state._replace(x=x, private=private)

    def listen(self, state, heard):
        return state._replace(heard=heard)


def strangers(learner: Learner | None = None, release: Any = None, **changed: Any) -> Algorithm:
    learner = learner or Stranger()
    release = release or learner.mechanism.calibrate(CLIP.sensitivity(Unit.SAMPLE, 4), Budget(1.0))
    options: dict[str, Any] = {
        "guarantee": Guarantee("proven", losses=release.losses, deltas=release.deltas),
        "releases": (release,),
        "public": {"step": lambda t: np.full(len(t), 0.1)},
    }
    return Algorithm("strangers", PROBLEM, RING, learner, **options | changed)


def overriding(**methods: Any) -> Learner:
    return subclass(Stranger(), **methods)


def test_a_strangers_algorithm_is_proven_where_the_program_shows_it():
    guarantee = strangers().guarantee
    assert guarantee.basis == "proven"
    assert guarantee.sentence().startswith("Proven: over an endless horizon")


def test_nobody_says_proven_without_a_check():
    claim = Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,))
    assert claim.sentence().startswith("Claimed, not checked:")


def test_a_raw_gradient_is_refused_with_the_field_and_the_operation():
    def speak(self, state, now):
        _, after = Stranger.speak(self, state, now)
        return after.x - 0.0 * after.x + state.gradient, after

    with pytest.raises(
        PrivacyError, match=r"message depends on data of this block \(block\..\) through add in speak \(test_flow"
    ):
        strangers(overriding(speak=speak))


def test_a_mechanism_that_is_never_called_is_refused():
    def speak(self, state, now):
        return state.x, state

    with pytest.raises(PrivacyError, match="releases: got 'gradient'; allowed: mechanisms that release something"):
        strangers(overriding(speak=speak))


@pytest.mark.parametrize("callback", ["print", "pure_callback"])
def test_callbacks_are_refused(callback):
    def learn(self, state, block, now):
        if callback == "print":
            jax.debug.print("{}", block.x)
            return Stranger.learn(self, state, block, now)
        x = jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(block.x.shape, block.x.dtype), block.x)
        return Stranger.learn(self, state, Block(x, block.y), now)

    with pytest.raises(PrivacyError, match="flow: learn"):
        strangers(overriding(learn=learn))


def test_a_callback_inside_of_a_model_is_refused():
    def spying(params, x):
        jax.debug.callback(lambda x: None, x)
        return params["w"] @ x

    with pytest.raises(PrivacyError, match="flow: apply does more than its program shows"):
        problems.Model(spying, {"w": np.zeros((3, 4))}, features=(4,), classes=3)


def test_a_model_that_mixes_samples_is_refused():
    """A rule of its own for many samples at once: the gradient of one would depend on all others."""

    @jax.custom_batching.custom_vmap
    def same(x):
        return x

    @same.def_vmap
    def mixed(size, batched, x):
        return jnp.broadcast_to(x.sum(axis=0), x.shape), True

    with pytest.raises(PrivacyError, match="custom_vmap_call"):
        problems.Model(lambda p, x: p["w"] @ same(x), {"w": np.zeros((3, 4))}, features=(4,), classes=3)


@pytest.mark.parametrize(
    ("learn", "found"),
    [
        (lambda rows: Block(jnp.tile(rows.x, (3, 1)), jnp.tile(rows.y, 3)), "heuristic"),  # one sample in three rows
        (lambda rows: Block(jnp.concatenate([rows.x, rows.x]), jnp.concatenate([rows.y, rows.y])), "heuristic"),
        (lambda rows: Block(rows.x[:1], rows.y[1:]), "heuristic"),  # the label of another one
        (lambda rows: rows, "proven"),
    ],
)
def test_rows_that_are_no_samples_of_their_own_have_no_bound(learn, found):
    two = CLIP.sensitivity(Unit.SAMPLE, 4, rows=2)

    def digest(self, state, block, now):
        return Stranger.learn(self, state, learn(block), now)

    made = strangers(overriding(learn=digest), ONCE.calibrate(two, Budget(1.0)), schedule=Every(2))
    assert made.guarantee.basis == found


def test_a_block_of_more_samples_than_the_noise_counts_is_refused():
    with pytest.raises(PrivacyError, match="one unit moves what gradient releases by up to"):
        strangers(schedule=Every(1000))


def test_a_sensitivity_below_the_clip_is_refused():
    small = ONCE.calibrate(Sensitivity(0.1, 0.1), Budget(1.0))
    with pytest.raises(PrivacyError, match=r"its noise is scaled for 0\.1"):
        strangers(release=small)


def test_a_guarantee_of_less_than_its_releases_cost_is_refused():
    with pytest.raises(PrivacyError, match="what its releases cost together"):
        strangers(guarantee=Guarantee("proven", losses=(Pure(0.5),), deltas=(0.0,)))


def test_a_proven_guarantee_needs_a_release():
    with pytest.raises(PrivacyError, match="mechanisms with a sensitivity"):
        replace(
            algorithms.d_ogd(PROBLEM, RING, step=0.1), guarantee=Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,))
        )


def test_occurrences_that_share_noise_do_not_compose():
    tree = TreeSum((4,), horizon=10, name="gradient")
    release = tree.calibrate(CLIP.sensitivity(Unit.SAMPLE, 4), Budget(1.0))
    promise = Guarantee("proven", losses=release.losses, deltas=release.deltas, repeats="compose")
    with pytest.raises(PrivacyError, match="repeats: got 'compose'"):
        strangers(Stranger(tree), release, guarantee=promise)


def test_draws_of_another_law_are_refused():
    def noise(self):
        return {"gradient": NoiseSpec("uniform", (4,), "speak")}

    with pytest.raises(PrivacyError, match="the law that gradient is calibrated for"):
        strangers(overriding(noise=property(noise)))


@dataclass(frozen=True)
class Quiet(Independent):
    """A stranger's mechanism, which adds nothing."""

    def release(self, state, value, noise, grid):
        return value, state


def test_a_strangers_mechanism_is_an_assumption():
    made = strangers(Stranger(Quiet((4,), name="gradient")))
    assert made.guarantee.basis == "heuristic"
    assert "Quiet (gradient) is as private as it says" in made.guarantee.sentence()


def test_a_strangers_declaration_is_an_assumption():
    def learn(self, state, block, now):
        gradient = self.problem.clipped_data_gradient_sum(state.x, block, CLIP)
        return state._replace(gradient=declared(state.gradient + gradient, "trust me"))

    made = strangers(overriding(learn=learn))
    assert made.guarantee.basis == "heuristic"
    assert Assumption("trust me") in made.guarantee.assumptions
    assert "nothing makes it true that trust me" in made.guarantee.sentence()


def test_a_class_that_calls_itself_ours_is_not():
    forged = type("Independent", (Quiet,), {"__module__": "gossamer.mechanisms.independent"})
    made = strangers(Stranger(dataclass(frozen=True)(forged)((4,), name="gradient")))
    assert made.guarantee.basis == "heuristic"


def test_a_problem_of_a_strangers_has_no_bound_that_the_program_sees():
    @dataclass(frozen=True)
    class Loud(problems.Logistic):
        def _clipped_data_gradient_sum(self, decision, block, clip):
            return 100 * jnp.sum(block.x, axis=0)

    loud = Loud(4, feature_bound=2.0, domain=sets.L2Ball(3.0))
    assert strangers(Stranger(problem=loud)).guarantee.basis == "heuristic"
    assert algorithms.pd_ogd(loud, RING, budget=BUDGET, clip=1.0).guarantee.basis == "heuristic"


def test_a_monotone_promise_is_an_assumption_of_strangers():
    class Choosing(NamedTuple):
        choice: jax.Array
        scores: jax.Array

    @dataclass(frozen=True)
    class Voter(Learner):
        selection: Any
        released = frozenset({"choice"})
        noise = property(lambda self: self.selection.noise("speak"))

        def init(self, identity):
            return Choosing(jnp.int32(0), jnp.zeros(4))

        def decide(self, state, now):
            return jax.nn.one_hot(state.choice, 4)

        def learn(self, state, block, now):
            return state._replace(scores=PROBLEM.clipped_data_gradient_sum(jnp.zeros(4), block, CLIP))

        def speak(self, state, now):
            choice, _ = self.selection.release((), state.scores, now.noise, now.grid)
            return choice.astype(jnp.float32), state._replace(choice=choice)

        def listen(self, state, heard):
            return state

    def voting(monotone: bool) -> Algorithm:
        selection = ExponentialMechanism(4, monotone=monotone, touches=1, name="choice")
        return strangers(
            Voter(selection), selection.calibrate(CLIP.sensitivity(Unit.SAMPLE, 4), Budget(1.0)), public={}
        )

    assert voting(monotone=False).guarantee.basis == "proven"
    assert voting(monotone=True).guarantee.basis == "heuristic"
    assert "moves all scores of a selection the same way" in voting(monotone=True).guarantee.sentence()


@pytest.mark.parametrize("name", [name for name in EVERY if name not in SEEN_TO_THE_END])
def test_what_is_declared_holds_as_gossamer_puts_it_together(name):
    """Schedules and networks are part of such a proof: whoever changes them has another algorithm."""
    algorithm = private(name)
    assert claimed(algorithm).guarantee.basis == "heuristic"


@pytest.mark.parametrize("name", ["pd_ogd", "dpsda_ps", "fed_svt", "fed_ope_stoch", "pd_ftgl after gossip"])
def test_secure_noise_keeps_the_basis(name):
    secured = private(name).secured()
    assert secured.guarantee.basis == "proven"
    assert all(scale.grid for scales in secured.scales.values() for scale in scales)


def test_common_data_are_counted_at_all_learners():
    promise = replace(strangers().guarantee, basis="proven", unit=Unit.BATCH_SAMPLE, assumptions=())
    with pytest.raises(PrivacyError, match="together: got 1; allowed: 5"):
        strangers(guarantee=promise)


# -- loops -------------------------------------------------------------------------------------------------------------

STEPS = 3


def local_steps(body: Any, **options: Any) -> Algorithm:
    """A learner that releases in a scan over the rows of its block."""

    class Stepping(Stranger):
        noise = property(lambda self: self.mechanism.noise(used_in="learn", times=STEPS))

        def learn(self, state, block, now):
            return body(self, state, block, now)

        def speak(self, state, now):
            return state.gradient, state._replace(x=state.gradient)

    mechanism = options.pop("mechanism", Independent((4,), law="gaussian", name="gradient"))
    release = mechanism.calibrate(CLIP.sensitivity(Unit.SAMPLE, 4), Budget(1.0, 1e-5))
    return strangers(dataclass(frozen=True)(Stepping)(mechanism), release, schedule=Every(STEPS), **options)


def in_scan(rows: Any, value: Any, draws: Any) -> Any:
    """The body of a scan over `rows`, which releases `value` with `draws`."""

    def learn(self, state, block, now):
        whole = self.problem.clipped_data_gradient_sum(state.x, block, CLIP)

        def step(total, row):
            one, noise = row
            gradient = self.problem.clipped_data_gradient_sum(state.x, Block(one.x[None], one.y[None]), CLIP)
            noisy, _ = self.mechanism.release((), value(gradient, whole, total), draws(noise, now), now.grid)
            return total + noisy, gradient

        total, _ = jax.lax.scan(step, jnp.zeros(4), (rows(block), now.noise))
        return state._replace(gradient=total)

    return learn


def own(gradient: Any, whole: Any, total: Any) -> Any:
    return gradient


def test_each_row_is_released_once_in_a_scan():
    assert local_steps(in_scan(lambda b: b, own, lambda noise, now: noise)).guarantee.basis == "proven"


@pytest.mark.parametrize(
    ("rows", "value", "draws", "reason"),
    [
        (lambda b: b, lambda g, whole, t: whole, lambda noise, now: noise, "data of another iteration"),
        (lambda b: b, own, lambda noise, now: {"gradient": now.noise["gradient"][0]}, "something else than its draw"),
        (
            lambda b: Block(jnp.tile(b.x[:1], (STEPS, 1)), b.y),
            own,
            lambda noise, now: noise,
            "data of another iteration",
        ),
    ],
)
def test_rows_and_draws_of_a_scan_are_those_of_its_iteration(rows, value, draws, reason):
    with pytest.raises(PrivacyError, match=reason):
        local_steps(in_scan(rows, value, draws))


def test_raw_data_carried_from_iteration_to_iteration_are_refused():
    def learn(self, state, block, now):
        def step(carried, row):
            (one, noise), (raw, total) = row, carried
            raw = raw + self.problem.clipped_data_gradient_sum(state.x, Block(one.x[None], one.y[None]), CLIP)
            noisy, _ = self.mechanism.release((), raw, noise, now.grid)
            return (raw, total + noisy), None

        (_, total), _ = jax.lax.scan(step, (jnp.zeros(4), jnp.zeros(4)), (block, now.noise))
        return state._replace(gradient=total)

    with pytest.raises(PrivacyError, match="data of another iteration"):
        local_steps(learn)


def test_nothing_is_released_in_a_loop_without_a_fixed_end():
    def speak(self, state, now):
        def step(carried):
            count, _ = carried
            return count + 1, self.mechanism.release(state.private, state.gradient, now.noise, now.grid)[0]

        _, noised = jax.lax.while_loop(lambda carried: carried[0] < now.public["step"], step, (0.0, jnp.zeros(4)))
        return noised, state._replace(x=noised)

    with pytest.raises(PrivacyError, match="in a loop without a fixed number of iterations"):
        strangers(overriding(speak=speak))


def test_a_split_vector_of_l2_laplace_noise_has_another_law():
    split = Independent((4,), law="l2-laplace", name="gradient")
    with pytest.raises(PrivacyError, match="something else than its draw"):
        local_steps(in_scan(lambda b: b, own, lambda noise, now: noise), mechanism=split)


# -- what is checked is what runs --------------------------------------------------------------------------------------


def test_engines_run_the_program_that_was_checked():
    """A function that leaks when it is traced again leaks nowhere: the program of the check is what runs."""
    traces = []

    def speak(self, state, now):
        traces.append(len(traces))
        message, after = Stranger.speak(self, state, now)
        return message + (1000 * state.gradient if traces[-1] else 0.0), after

    algorithm = strangers(overriding(speak=speak))
    assert isinstance(algorithm.running[0], Guarded)
    stream = instances.Given(np.ones((6, 5, 4), np.float32), np.ones((6, 5), np.int32))
    run = simulate(algorithm, stream, 6, seed=0, record=("messages",), progress=False)
    assert np.abs(run.transcript["messages"]).max() <= 3.01  # all in the decision set, of radius 3
    one = Participant(algorithm, 0)
    assert np.abs(one.start().x).max() == 0
    assert traces == [0]


def test_other_shapes_are_checked_when_they_come():
    """A function that leaks only for blocks of another length is refused before it runs."""

    def learn(self, state, block, now):
        after = Stranger.learn(self, state, block, now)
        return after if block.x.shape[0] == 2 else after._replace(heard=after.gradient)

    release = ONCE.calibrate(CLIP.sensitivity(Unit.SAMPLE, 4, rows=2), Budget(1.0))
    learner = strangers(overriding(learn=learn), release, schedule=Every(2)).running[0]
    state, now = learner.init(jnp.int32(0)), Now({"step": jnp.float32(0.1)}, {}, {})
    learner.learn(state, Block(jnp.ones((2, 4)), jnp.ones(2, jnp.int32)), now)
    with pytest.raises(PrivacyError, match="depends on data"):
        learner.learn(state, Block(jnp.ones((1, 4)), jnp.ones(1, jnp.int32)), now)


# -- ways to a false `proven` that a red team found --------------------------------------------------------------------


def speaking(value: Any = None, noise: Any = None, grid: Any = None) -> Any:
    """`speak` that releases another value, with other noise, or on another lattice."""

    def speak(self, state, now):
        given = state.gradient if value is None else value(state)
        draws, lattice = now.noise if noise is None else noise(now), now.grid if grid is None else grid
        noised, private = self.mechanism.release(state.private, given, draws, lattice)
        return jnp.ravel(noised)[:4], state._replace(x=jnp.ravel(noised)[:4], private=private)

    return speak


@pytest.mark.parametrize(
    "value",
    [
        lambda s: s.gradient[:1],
        lambda s: jnp.stack([s.gradient, -s.gradient]),
        lambda s: jax.lax.complex(s.gradient, s.gradient),
    ],
)
def test_values_of_another_shape_or_type_are_refused(value):
    with pytest.raises(PrivacyError, match=r"a float32 array of shape \(4,\)"):
        strangers(overriding(speak=speaking(value)))


def test_a_lattice_of_ones_own_is_refused():
    with pytest.raises(PrivacyError, match="another lattice than that of its draws"):
        strangers(overriding(speak=speaking(grid={"gradient": jnp.float32(512.0)})))


def test_a_lattice_that_is_left_out_is_refused_where_there_is_one():
    learner = strangers(overriding(speak=speaking(grid={}))).running[0]
    noise, grid = {"gradient": jnp.zeros(4)}, {"gradient": jnp.float32(0.5)}
    with pytest.raises(PrivacyError, match="another lattice than that of its draws"):
        learner.speak(learner.init(jnp.int32(0)), Now({"step": jnp.float32(0.1)}, noise, grid))


def test_a_state_that_changes_its_fields_is_refused():
    class Less(NamedTuple):
        x: jax.Array
        heard: jax.Array

    def speak(self, state, now):
        _, after = Stranger.speak(self, state, now)
        return state.gradient, Less(after.x, after.heard)

    def listen(self, state, heard):
        return Simple(state.x, heard, jnp.zeros(4), ())

    with pytest.raises(ConfigurationError, match="a state as `init` makes it"):
        strangers(overriding(speak=speak, listen=listen))


def test_blocks_of_all_lengths_are_followed_together():
    """An empty block that leaves everything as it is would release the last gradient again."""

    def learn(self, state, block, now):
        return Stranger.learn(self, state, block, now) if block.x.shape[0] else state

    with pytest.raises(PrivacyError, match="data of earlier exchanges"):
        strangers(overriding(learn=learn), schedule=Phases((Segment(2, 1), Segment(3, 0))))


@dataclass(frozen=True)
class Passing(Server):
    """Broadcasts the mean of raw messages."""

    def init(self):
        return ()

    def aggregate(self, state, messages, now):
        return jnp.mean(messages, axis=0), state


def test_raw_broadcasts_are_followed_into_decisions():
    def speak(self, state, now):
        _, after = Stranger.speak(self, state, now)
        return state.gradient, after

    def listen(self, state, heard):
        return state._replace(x=heard)

    release = ONCE.calibrate(CLIP.sensitivity(Unit.SAMPLE, 4), Budget(1.0))
    promise = Guarantee("proven", losses=release.losses, deltas=release.deltas, observer="decisions")
    with pytest.raises(PrivacyError, match="depends on data"):
        Algorithm(
            "raw",
            PROBLEM,
            Federation(5),
            overriding(speak=speak, listen=listen),
            promise,
            server=Passing(),
            releases=(release,),
            public={"step": lambda t: np.full(len(t), 0.1)},
        )


def test_declarations_are_not_forgotten():
    def learn(self, state, block, now):
        total = state.gradient + self.problem.clipped_data_gradient_sum(state.x, block, CLIP)
        return state._replace(gradient=problems.clipped(declared(total, "trust me"), CLIP))

    assert strangers(overriding(learn=learn)).guarantee.basis == "heuristic"


def test_the_features_of_one_sample_are_no_samples():
    single = Independent((1,), name="gradient")

    def learn(self, state, block, now):
        def step(total, row):
            one, noise = row
            noisy, _ = self.mechanism.release((), problems.clipped(one[None], 1.0), noise, now.grid)
            return total + noisy, noisy

        _, each = jax.lax.scan(step, jnp.zeros(1), (block.x.reshape(-1), now.noise))
        return state._replace(gradient=each.ravel())

    def noise(self):
        return single.noise(used_in="learn", times=4)

    def speak(self, state, now):
        return state.gradient, state._replace(x=state.gradient)

    learner = subclass(Stranger(single), learn=learn, speak=speak, noise=property(noise))
    with pytest.raises(PrivacyError, match="data of another iteration"):
        strangers(learner, single.calibrate(Sensitivity(2.1, 2.1), Budget(1.0)))


def test_a_tree_releases_or_increments():
    tree = TreeSum((4,), horizon=10, name="gradient")

    def noise(self):
        return tree.noise("learn") | {}

    def learn(self, state, block, now):
        gradient = self.problem.clipped_data_gradient_sum(state.x, block, CLIP)
        first, private = jax.lax.cond(
            now.public["step"] > 0,
            lambda: tree.release(state.private, gradient, now.noise, now.grid),
            lambda: tree.increment(state.private, gradient, now.noise, now.grid),
        )
        return state._replace(gradient=first, private=private)

    def speak(self, state, now):
        return state.gradient, state._replace(x=state.gradient)

    learner = subclass(Stranger(tree), learn=learn, speak=speak, noise=property(noise))
    with pytest.raises(PrivacyError, match="by release and by increment"):
        strangers(learner, tree.calibrate(CLIP.sensitivity(Unit.SAMPLE, 4), Budget(1.0)))


def test_a_rate_of_a_strangers_is_another_proof():
    class Warmup(Rate):
        def __call__(self, t):
            return self.scale * np.minimum(1.0, (t / 100) ** 2)

    options = {"budget": WITH_DELTA, "clip": 1.0, "horizon": 1000, "steps_per_exchange": 4, "release": "rounds"}
    made = {kind: algorithms.online_federated(PROBLEM, 5, step=kind(0.1), **options) for kind in (Rate, Warmup)}
    assert [one.guarantee.basis for one in made.values()] == ["proven", "heuristic"]


def test_scales_and_schedules_stay_as_they_were_counted():
    made = strangers()
    with pytest.raises(TypeError):
        made.releases[0].scales["gradient"] = ()
    with pytest.raises(TypeError):
        made.public["step"] = None


@pytest.mark.parametrize("scale", [Scale(1e-3, -0.9), Scale(-1.0), Scale(np.inf), Scale(1.0, 0.3)])
def test_scales_that_are_none_are_refused(scale):
    with pytest.raises(PrivacyError, match="scale of gradient"):
        Calibrated(ONCE, (CLIP.sensitivity(Unit.SAMPLE, 4),), {"gradient": (scale,)})


def test_products_that_leave_float32_have_no_bound():
    def learn(self, state, block, now):
        gradient = self.problem.clipped_data_gradient_sum(state.x, block, CLIP)
        return state._replace(gradient=gradient * 1e25 * 1e25 * 1e-25 * 1e-25)

    assert strangers(overriding(learn=learn)).guarantee.basis == "heuristic"


@pytest.mark.parametrize("forged", ["clip", "sensitivity", "loss"])
def test_numbers_of_a_strangers_classes_prove_nothing(forged):
    class Small(Sensitivity):
        def of(self, order):
            return 0.01

    class Loose(Clip):
        def sensitivity(self, unit, dim, *, rows=1, batch=1):
            return Sensitivity(0.01, 0.01)

    class Free(Pure):
        def epsilon(self, delta):
            return 0.0

    def learn(self, state, block, now):
        return state._replace(gradient=self.problem.clipped_data_gradient_sum(state.x, block, Loose(l2=1.0)))

    exact = CLIP.sensitivity(Unit.SAMPLE, 4)
    if forged == "clip":
        made = strangers(overriding(learn=learn), ONCE.calibrate(Sensitivity(0.02, 0.02), Budget(1.0)))
        assert made.guarantee.basis == "heuristic"
        return
    release = ONCE.calibrate(Small(exact.l1, exact.l2) if forged == "sensitivity" else exact, Budget(1.0))
    losses = (Free(1.0),) if forged == "loss" else release.losses
    with pytest.raises(PrivacyError, match="Gossamer's own"):
        strangers(release=release, guarantee=Guarantee("proven", losses=losses, deltas=(0.0,)))


def test_a_guarantee_is_for_one_occurrence_and_the_stream_says_how_many():
    release = ONCE.calibrate(CLIP.sensitivity(Unit.SAMPLE, 4), Budget(1.0))
    promise = Guarantee("proven", losses=release.losses, deltas=(0.0,), per="record", occurrences=1000)
    with pytest.raises(PrivacyError, match="one per occurrence"):
        strangers(guarantee=promise)


def test_the_unit_is_one_of_ours_however_it_is_written():
    assert Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,), unit=str(Unit.BATCH)).unit is Unit.BATCH


def test_draws_keep_the_law_that_was_checked():
    law = ["laplace"]

    def noise(self):
        return {"gradient": NoiseSpec(law[0], (4,), "speak")}

    made = strangers(overriding(noise=property(noise)))
    law[0] = "uniform"
    assert made.running[0].noise["gradient"].law == "laplace"


def test_only_gossamer_makes_marks():
    def speak(self, state, now):
        _, after = Stranger.speak(self, state, now)
        return marked("public", ONCE, lambda private, raw: raw, after.private, state.gradient), after

    with pytest.raises(PrivacyError, match="a mark 'public' of other code"):
        strangers(overriding(speak=speak))


def test_an_algorithm_cannot_be_one_that_does_not_check():
    with pytest.raises(TypeError, match="no subclasses"):
        type("Mine", (Algorithm,), {})


def test_a_server_has_one_scale():
    server = private("fed_svt")
    scales = {name: each * 5 for name, each in server.releases[0].scales.items()}
    with pytest.raises(ConfigurationError, match="one for the server"):
        replace(server, releases=(replace(server.releases[0], scales=scales), server.releases[1]))
