"""Ways to a false `proven` that a second red team found: objects that lie, programs that come late, absent learners."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from gossamer import Budget, problems, simulate, topology
from gossamer.core import Algorithm, Every, Federation, Learner, Schedule, Segment, Server
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import AboveThreshold, Factorized, Independent, TreeSum
from gossamer.privacy import Guarantee, Pure, Sensitivity, Unit, declared
from gossamer.privacy.marks import Clipped, marked
from gossamer.problems import Block
from tests import instances
from tests.test_flow import CLIP, ONCE, PROBLEM, Passing, Stranger, overriding, strangers, subclass

ONE = CLIP.sensitivity(Unit.SAMPLE, 4)


def messages_of(algorithm: Algorithm, steps: int = 4, **options: Any) -> np.ndarray:
    rng = np.random.default_rng(0)
    stream = instances.Given(rng.normal(size=(steps, 5, 4)).astype(np.float32), np.ones((steps, 5), np.int32))
    run = simulate(algorithm, stream, steps, seeds=(0, 1), record=("messages",), progress=False, **options)
    return run.transcript["messages"]


def releasing(release: Any) -> Learner:
    """A learner that says whatever `release(mechanism, state, now)` gives."""

    def speak(self, state, now):
        said, private = release(self.mechanism, state, now)
        return said, state._replace(private=private)

    return overriding(speak=speak)


# -- objects that are not what they seem -------------------------------------------------------------------------------


def test_a_method_of_another_class_is_no_release():
    class Quiet(Independent):
        def release(self, state, value, noise, grid):
            return value, state

    with pytest.raises(PrivacyError, match="the mechanism's own method"):
        strangers(releasing(lambda _, state, now: Quiet.release(ONCE, state.private, state.gradient, now.noise, {})))


@jax.tree_util.register_pytree_node_class
class Lying:
    """An array inside of a container that behaves otherwise."""

    def __init__(self, *inside):
        self.inside = inside

    def tree_flatten(self):
        return self.inside, None

    @classmethod
    def tree_unflatten(cls, _, inside):
        return cls(*inside)

    def __radd__(self, other):
        return other

    def __iter__(self):
        return iter(jax.tree.map(lambda leaf: 1e6 * leaf, self.inside))

    @property
    def shape(self):
        return self.inside[0].shape


def test_draws_states_and_samples_are_arrays():
    tree = TreeSum((4,), horizon=64, name="gradient")

    def speak(self, state, now):
        noised, private = self.mechanism.release(Lying(*state.private), state.gradient, now.noise, now.grid)
        return noised, state._replace(private=private)

    def learn(self, state, block, now):
        return Stranger.learn(self, state, Block(Lying(block.x), block.y), now)

    def muted(mechanism, state, now):
        return mechanism.release(state.private, state.gradient, {"gradient": Lying(now.noise["gradient"])}, now.grid)

    for make in (releasing(muted), subclass(Stranger(tree), speak=speak), overriding(learn=learn)):
        with pytest.raises(PrivacyError, match="a Lying among"):
            strangers(make)


def test_an_operation_of_a_strangers_is_not_what_its_name_says():
    swap = Primitive("optimization_barrier")
    swap.multiple_results = True
    swap.def_abstract_eval(lambda a, b: (b, a))
    mlir.register_lowering(swap, mlir.lower_fun(lambda a, b: (b, a), multiple_results=True))
    batching.primitive_batchers[swap] = lambda args, dims: (swap.bind(*args), dims[::-1])

    def speak(self, state, now):
        message, after = Stranger.speak(self, state, now)
        return swap.bind(message, state.gradient)[0], after

    with pytest.raises(PrivacyError, match="more than its program shows"):
        strangers(overriding(speak=speak))


def test_buffers_that_python_reads_are_refused():
    buffers = pytest.importorskip("jax.experimental.buffer_callback", reason="not in this JAX: pip install 'jax>=0.8'")
    shape = jax.ShapeDtypeStruct((4,), jnp.float32)

    def speak(self, state, now):
        _, after = Stranger.speak(self, state, now)
        return buffers.buffer_callback(lambda *_: None, shape, vmap_method="sequential")(after.x), after

    with pytest.raises(PrivacyError, match="calls back to Python"):
        strangers(overriding(speak=speak))


def test_a_mark_that_our_own_code_is_made_to_set_is_refused():
    """`Problem.losses` calls a hook of the problem's, and the hook is no Python function: only its caller is seen."""

    @dataclass(frozen=True)
    class Hooked(problems.Logistic):
        _data_losses = functools.partial(marked, "clipped", Clipped(CLIP, None), lambda x, block: 1e6 * x)

    def learn(self, state, block, now):
        return state._replace(gradient=Hooked(4).losses(block.x[0], block))

    with pytest.raises(PrivacyError, match="a mark 'clipped' of other code"):
        strangers(overriding(learn=learn))


def test_an_algorithm_that_our_own_code_is_made_to_make_is_a_strangers():
    """`simulate` calls what makes noise with a seed: here that makes an algorithm, whose schedules nobody looked at."""
    algorithm = instances.algorithm("dpsda_c")
    claim = replace(algorithm.guarantee, basis="proven", assumptions=())
    given = {one.name: getattr(algorithm, one.name) for one in fields(Algorithm)} | {"guarantee": claim}
    before = list(given)[: list(given).index("capacity")]
    make = functools.lru_cache(functools.partial(Algorithm, *(given[name] for name in before)))
    samples = np.zeros((8, algorithm.batch, *algorithm.problem.feature_shape), np.float32)
    stream = instances.Given(samples, np.zeros((8, algorithm.batch), np.int32), shared=True)
    with pytest.raises(AttributeError):
        simulate(algorithm, stream, 4, seed=1000, noise=make, progress=False)
    assert make.cache_info().misses == 1
    assert make(1000).guarantee.basis == "heuristic"
    assert make.cache_info().hits == 1


def test_what_is_put_into_an_object_of_ours_changes_nothing():
    changed = problems.Logistic(4, feature_bound=2.0)
    vars(changed)["_clipped_data_gradient_sum"] = lambda decision, block, clip: 1e6 * block.x[0]
    messages = messages_of(strangers(Stranger(problem=changed)))
    assert np.abs(messages[0] - messages[1]).max() > 1  # there is noise, and values are clipped
    assert np.abs(messages).max() < 100


@pytest.mark.parametrize("lie", ["releases", "losses", "sensitivity", "scale"])
def test_numbers_and_tuples_are_taken_as_they_are(lie):
    class Equal(tuple):
        def __eq__(self, other):
            return True

        __hash__ = tuple.__hash__

    class Small(float):
        def __rmul__(self, other):
            return 1e-6

        def __add__(self, other):
            return self

    tiny = ONCE.at_scale(ONE, gradient=1e-6)
    if lie == "releases":
        releases = [ONCE.calibrate(ONE, Budget(1.0))]
        made = strangers(releases=releases)
        releases[0] = tiny
        assert made.scales["gradient"][0].value > 1
    elif lie == "losses":
        with pytest.raises(PrivacyError, match="what its releases cost together"):
            strangers(release=tiny, guarantee=Guarantee("proven", losses=Equal((Pure(0.5),)), deltas=(0.0,)))
    elif lie == "sensitivity":
        assert ONCE.calibrate(Sensitivity(Small(ONE.l1), Small(ONE.l2)), Budget(1.0)).scales["gradient"][0].value > 1
    else:
        scales = {"gradient": (tiny.scales["gradient"][0]._replace(value=Small(1e-6)),)}
        assert replace(tiny, scales=scales).losses[0].value > 1e5


@pytest.mark.parametrize("change", ["subclass", "basis"])
def test_the_guarantee_is_one_of_ours(change):
    class Own(Guarantee):
        basis = property(lambda self: "proven") if change == "basis" else "proven"

        def sentence(self):
            return "Proven: trust me."

    release = ONCE.calibrate(ONE, Budget(1.0))
    claim = object.__new__(Own)
    for name, value in vars(Guarantee("proven", losses=release.losses, deltas=release.deltas)).items():
        if name != "basis":
            object.__setattr__(claim, name, value)
    with pytest.raises(ConfigurationError, match="a Guarantee, and no class made of it"):
        strangers(release=release, guarantee=claim)


def test_a_guarantee_that_was_read_says_so():
    text = strangers().guarantee.to_json().replace('"value": 0.99', '"value": 0.00')
    assert Guarantee.from_json(text).sentence().startswith("Recorded as proven: ")


# -- what is checked is what runs --------------------------------------------------------------------------------------


def test_a_learner_that_changes_after_it_was_checked_runs_as_it_was():
    @dataclass(unsafe_hash=True)
    class Box:
        leaks: bool = False

    @dataclass(frozen=True)
    class Changing(Stranger):
        box: Box = field(default_factory=Box)

        def speak(self, state, now):
            message, after = Stranger.speak(self, state, now)
            return (state.gradient if self.box.leaks else message), after

    made = strangers(Changing())
    made.learner.box.leaks = True
    messages = messages_of(made)
    assert np.abs(messages[0] - messages[1]).min() > 0


def test_learners_that_call_themselves_equal_are_checked_each():
    @dataclass(frozen=True, eq=False)
    class Same(Stranger):
        leaks: bool = False

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 0

        def speak(self, state, now):
            message, after = Stranger.speak(self, state, now)
            return (state.gradient if self.leaks else message), after

    assert strangers(Same()).guarantee.basis == "proven"
    with pytest.raises(PrivacyError, match="message depends on"):
        strangers(Same(leaks=True))


@dataclass(frozen=True)
class Sneaky(Schedule):
    """Other lengths of blocks than those that it says where it is asked for all."""

    def segments(self, steps):
        yield Segment(steps // 2, 2) if steps >= 2**60 else Segment(steps // 3, 3)


@dataclass(frozen=True)
class Louder(Stranger):
    def learn(self, state, block, now):
        gradient = self.problem.clipped_data_gradient_sum(state.x, block, CLIP)
        return state._replace(gradient=gradient * (1024.0 if block.x.shape[0] == 3 else 1.0))


def test_programs_that_come_late_move_no_more_than_those_that_were_checked():
    """Nor does an algorithm with more noise, in which they would be fine, let them in for one with less."""
    three = CLIP.sensitivity(Unit.SAMPLE, 4, rows=3)
    many = Sensitivity(1024 * three.l1, 1024 * three.l2)
    for scaled_for in (three, many, three):
        made = strangers(Louder(), ONCE.calibrate(scaled_for, Budget(1.0)), schedule=Sneaky())
        with pytest.raises(PrivacyError, match="arguments of other shapes"):
            messages_of(made, steps=9)


def test_programs_for_a_lattice_are_checked_when_noise_is_secured():
    def louder(mechanism, state, now):
        value = state.gradient * 1e6 + 0.0 * now.public["step"] if now.grid else state.gradient
        return mechanism.release(state.private, value, now.noise, now.grid)

    made = strangers(releasing(louder))
    assert made.guarantee.basis == "proven"
    assert made.secured().guarantee.basis == "heuristic"


def test_functions_as_written_are_another_program():
    """`debug=True` runs them, to be stepped through: what a run then says is not proven."""
    made = strangers()
    stream = instances.Given(np.ones((4, 5, 4), np.float32), np.ones((4, 5), np.int32))
    assert simulate(made, stream, 4, seed=0, progress=False).guarantee.basis == "proven"
    assert simulate(made, stream, 4, seed=0, progress=False, debug=True).guarantee.basis == "heuristic"


# -- what a unit moves -------------------------------------------------------------------------------------------------


def test_declarations_in_a_loop_are_not_forgotten():
    def learn(self, state, block, now):
        total = state.gradient + self.problem.clipped_data_gradient_sum(state.x, block, CLIP)
        _, same = jax.lax.while_loop(
            lambda c: c[0] < 1, lambda c: (c[0] + 1, declared(total, "trust me")), (0, jnp.zeros(4))
        )
        return state._replace(gradient=problems.clipped(same, CLIP))

    made = strangers(overriding(learn=learn))
    assert made.guarantee.basis == "heuristic"
    assert "trust me" in made.guarantee.explain()


class Two(NamedTuple):
    x: jax.Array
    hidden: jax.Array
    raw: jax.Array
    private: Any


@dataclass(frozen=True)
class Waiting(Learner):
    """Shows what it learnt only if it did not speak since."""

    released = frozenset({"x"})
    noise = property(lambda self: ONCE.noise(used_in="speak"))

    def init(self, identity):
        zero = jnp.zeros(4)
        return Two(zero, zero, zero, ())

    def decide(self, state, now):
        return state.x

    def learn(self, state, block, now):
        return state._replace(raw=PROBLEM.clipped_data_gradient_sum(state.x, block, CLIP))

    def speak(self, state, now):
        noised, _ = ONCE.release((), state.raw, now.noise, now.grid)
        return noised, state._replace(hidden=jnp.zeros(4))

    def listen(self, state, heard):
        return state._replace(x=state.hidden, hidden=state.raw)


def test_learners_that_miss_a_round_are_followed_too():
    release = ONCE.calibrate(ONE, Budget(1.0))
    promise = Guarantee("proven", losses=release.losses, deltas=release.deltas)
    with pytest.raises(PrivacyError, match="depends on data of earlier exchanges"):
        Algorithm(
            "absent",
            PROBLEM,
            Federation(5, participation=0.5),
            Waiting(),
            promise,
            server=Passing(),
            releases=(release,),
        )


def test_a_batch_that_is_released_row_by_row_is_released_many_times():
    rows = 8

    @dataclass(frozen=True)
    class Stepping(Stranger):
        noise = property(lambda self: self.mechanism.noise(used_in="learn", times=rows))

        def learn(self, state, block, now):
            def step(total, row):
                one, noise = row
                single = Block(one.x[None], one.y[None])
                gradient = self.problem.clipped_data_gradient_sum(state.x, single, CLIP)
                return total + self.mechanism.release((), gradient, noise, now.grid)[0], None

            return state._replace(gradient=jax.lax.scan(step, jnp.zeros(4), (block, now.noise))[0])

        def speak(self, state, now):
            return state.gradient, state

    release = ONCE.calibrate(ONE, Budget(1.0))
    promise = Guarantee("proven", losses=release.losses, deltas=release.deltas, unit=Unit.BATCH)
    with pytest.raises(PrivacyError, match="data of another iteration"):
        replace(
            strangers(Stranger()),
            **{"learner": Stepping(), "topology": topology.complete(1), "batch": rows, "guarantee": promise},
        )


class Sent(NamedTuple):
    x: jax.Array
    block: Block


@dataclass(frozen=True)
class Raw(Learner):
    """Sends its samples to a trusted server."""

    released = frozenset({"x"})

    def init(self, identity):
        return Sent(jnp.zeros(4), Block(jnp.zeros((1, 4)), jnp.zeros(1, jnp.int32)))

    def decide(self, state, now):
        return state.x

    def learn(self, state, block, now):
        return state._replace(block=block)

    def speak(self, state, now):
        return state.block, state

    def listen(self, state, heard):
        return state._replace(x=heard)


@dataclass(frozen=True)
class Clipping(Server):
    """Clips all rows that it is sent, and releases their sum."""

    noise = property(lambda self: ONCE.noise(used_in="aggregate"))

    def init(self):
        return ()

    def aggregate(self, state, messages, now):
        rows = Block(messages.x.reshape(-1, 4), messages.y.reshape(-1))
        gradient = PROBLEM.clipped_data_gradient_sum(jnp.zeros(4), rows, CLIP)
        return ONCE.release(state, gradient, now.noise, now.grid)


@pytest.mark.parametrize(("unit", "basis"), [(Unit.SAMPLE, "proven"), (Unit.BATCH_SAMPLE, "heuristic")])
def test_a_sample_that_all_learners_send_is_many_rows(unit, basis):
    release = ONCE.calibrate(CLIP.sensitivity(Unit.SAMPLE, 4, rows=5), Budget(1.0))
    promise = Guarantee("proven", losses=release.losses, deltas=release.deltas, observer="broadcasts", unit=unit)
    made = Algorithm("rows", PROBLEM, Federation(5), Raw(), promise, server=Clipping(), releases=(release,))
    assert made.guarantee.basis == basis


def test_a_server_has_one_scale_whoever_declares_its_draw():
    @dataclass(frozen=True)
    class Declaring(Raw):
        noise = property(lambda self: ONCE.noise(used_in="aggregate"))

    release = ONCE.at_scale(CLIP.sensitivity(Unit.SAMPLE, 4, rows=5), gradient=(1e-3, 4.0, 4.0, 4.0, 4.0))
    promise = Guarantee("proven", losses=release.losses, deltas=release.deltas, observer="broadcasts")
    silent = subclass(Clipping(), noise=property(lambda self: {}))
    with pytest.raises(ConfigurationError, match="one for the server"):
        Algorithm("scales", PROBLEM, Federation(5), Declaring(), promise, server=silent, releases=(release,))


def test_draws_of_server_and_learners_have_names_of_their_own():
    """A server's draw `n` is made as `server/n`: a learner's of that name would be the same numbers."""
    taken = Independent((4,), name="server/gradient")
    with pytest.raises(ConfigurationError, match="names without a slash"):
        strangers(Stranger(taken))


def test_a_draw_that_was_sent_is_no_draw_any_more():
    """Of an absent learner it is zeros, and of any other it has that learner's scale."""

    @dataclass(frozen=True)
    class Sending(Raw):
        noise = property(lambda self: ONCE.noise(used_in="speak"))

        def speak(self, state, now):
            return (state.block.x[0], now.noise["gradient"]), state

    @dataclass(frozen=True)
    class Using(Server):
        def init(self):
            return ()

        def aggregate(self, state, messages, now):
            values, draws = messages
            return ONCE.release((), problems.clipped(values[0], CLIP), {"gradient": draws[0]}, now.grid)

    release = ONCE.calibrate(ONE, Budget(1.0))
    promise = Guarantee("proven", losses=release.losses, deltas=release.deltas, observer="broadcasts")
    with pytest.raises(PrivacyError, match="something else than its draw"):
        Algorithm("sent", PROBLEM, Federation(5), Sending(), promise, server=Using(), releases=(release,))


@pytest.mark.parametrize("shapes", ["places", "y", "decision"])
def test_arrays_that_would_be_broadcast_are_refused(shapes):
    decision, block = jnp.zeros(4), Block(jnp.ones((4, 4)), jnp.ones(4, jnp.int32))
    places = jnp.zeros((4, 2), jnp.int32) if shapes == "places" else None
    if shapes == "y":
        block = block._replace(y=block.y[:, None])
    if shapes == "decision":
        decision = jnp.zeros((4, 4))
    with pytest.raises(ConfigurationError, match=f"{shapes}: got 'shape"):
        PROBLEM.clipped_data_gradient_sum(decision, block, CLIP, places)


def test_features_of_one_sample_are_no_rows_of_a_clip():
    number = problems.Model(lambda p, x: p["w"] * x, {"w": np.zeros(())}, "squared", features=())

    def learn(self, state, block, now):
        total = number.clipped_data_gradient_sum(jnp.zeros(1), Block(block.x.reshape(4), jnp.zeros(4)), CLIP)
        return state._replace(gradient=jnp.broadcast_to(total, (4,)))

    single = Independent((1,), name="gradient")

    def speak(self, state, now):
        noised, _ = self.mechanism.release((), state.gradient[:1], now.noise, now.grid)
        return jnp.broadcast_to(noised, (4,)), state

    learner = subclass(Stranger(single), learn=learn, speak=speak)
    release = single.calibrate(CLIP.sensitivity(Unit.SAMPLE, 1, rows=4), Budget(1.0))
    assert strangers(learner, release).guarantee.basis == "heuristic"


@pytest.mark.parametrize("how", ["lax", "rbg", "threefry"])
def test_bits_that_all_rows_share_are_refused(how):
    """`vmap` gives all rows the bits of the first one's key, except where the generator is threefry."""

    def apply(params, x):
        key = jax.lax.bitcast_convert_type(x, jnp.uint32)
        if how == "lax":
            bits = jax.lax.rng_bit_generator(key, (), jnp.uint32)[1]
        else:
            name = {"rbg": "rbg", "threefry": "threefry2x32"}[how]
            words = key if how == "rbg" else key[:2]
            bits = jax.random.bits(jax.random.wrap_key_data(words, impl=name), (), jnp.uint32)
        return params["w"].sum() * jnp.where(bits % 2 == 0, 1.0, -1.0)

    def make():
        return problems.Model(apply, {"w": np.zeros(1)}, "squared", features=(4,))

    if how == "threefry":
        assert make().dim == 1
        return
    with pytest.raises(PrivacyError, match="more than its program shows"):
        make()


@pytest.mark.parametrize(("values", "basis"), [("any", "heuristic"), ("zeros", "proven")])
@pytest.mark.parametrize("law", ["tree", "blt"])
def test_prefix_sums_round_all_values_as_the_largest(law, values, basis):
    """A public value of 2^100 makes the sum so coarse that one sample, or none, moves it by 128."""
    if law == "tree":
        mechanism: Any = TreeSum((4,), horizon=8, name="gradient", law="gaussian")
    else:
        mechanism = Factorized.blt((4,), 8, name="gradient")

    def speak(self, state, now):
        public = {"any": now.public["step"] * jnp.ones(4), "zeros": jnp.zeros(4)}[values]
        value = jnp.where(now.public["step"] > 1, public, state.gradient)
        noised, private = self.mechanism.release(state.private, value, now.noise, now.grid)
        return noised, state._replace(private=private)

    release = mechanism.calibrate(ONE, Budget(1.0, 1e-6))
    assert strangers(subclass(Stranger(mechanism), speak=speak), release).guarantee.basis == basis


def test_queries_that_add_up_are_of_a_known_size():
    """Increments of 2^100, taken back later, would wash the noise out of the threshold."""
    watch = AboveThreshold(count=None, shift="constant", name="watch", horizon=100)

    def speak(self, state, now):
        value = jnp.where(now.public["step"] > 1, now.public["step"], state.gradient[0])
        above, private = self.mechanism.release(state.private, value, now.noise, now.grid)
        return jnp.full(4, above, jnp.float32), state._replace(private=private)

    def init(self, identity):
        return Stranger.init(Stranger(ONCE), identity)._replace(private=watch.init(0.0))

    learner = subclass(Stranger(watch), speak=speak, init=init)
    made = strangers(learner, watch.calibrate(ONE, Budget(1.0)))
    assert made.guarantee.basis == "heuristic"


def test_occurrences_that_a_server_releases_together_do_not_compose():
    release = ONCE.calibrate(CLIP.sensitivity(Unit.SAMPLE, 4, rows=5), Budget(1.0))
    options = {"losses": release.losses, "deltas": release.deltas, "observer": "broadcasts", "repeats": "compose"}
    with pytest.raises(PrivacyError, match="repeats: got 'compose'"):
        Algorithm(
            "rows",
            PROBLEM,
            Federation(5),
            Raw(),
            Guarantee("proven", **options),
            server=Clipping(),
            releases=(release,),
        )


def test_a_backward_rule_that_mixes_samples_is_refused():
    def with_rule(rule):
        made = jax.custom_batching.custom_vmap(lambda x: x)
        made.def_vmap(lambda size, batched, x: (rule(x), True))
        return made

    mixed = with_rule(lambda x: jnp.broadcast_to(jnp.sign(x.sum(0)), x.shape))
    hidden = with_rule(mixed)

    @jax.custom_vjp
    def product(w, x):
        return (w * x).sum()

    product.defvjp(lambda w, x: ((w * x).sum(), x), lambda x, slope: (hidden(x), x))
    model = problems.Model(lambda p, x: product(p["w"], x), {"w": np.zeros(4)}, "squared", features=(4,))
    with pytest.raises(PrivacyError, match="custom_vmap_call"):
        model.clipped_data_gradient_sum(jnp.zeros(4), Block(jnp.ones((3, 4)), jnp.ones(3)), CLIP)


def test_a_product_that_rounds_has_no_bound():
    """It rounds by a share of the whole sum, of which one sample is a small part; a power of two does not round."""
    for factor, basis in ((0.5, "proven"), (0.3, "heuristic")):

        def learn(self, state, block, now, factor=factor):
            gradient = self.problem.clipped_data_gradient_sum(state.x, block, CLIP)
            return state._replace(gradient=gradient * factor)

        made = strangers(overriding(learn=learn))
        assert made.guarantee.basis == basis
    assert "no bound is seen through mul in learn (test_flow_attacks.py:" in made.guarantee.sentence()


def test_a_problem_of_a_strangers_may_say_what_it_likes_about_samples():
    @dataclass(frozen=True)
    class Shapeless(problems.Logistic):
        feature_shape = (4,)

    assert replace(strangers(), problem=Shapeless(4), guarantee=claim()).guarantee.basis == "heuristic"


def claim() -> Guarantee:
    release = ONCE.calibrate(ONE, Budget(1.0))
    return Guarantee("proven", losses=release.losses, deltas=release.deltas)


# -- what honest authors write -----------------------------------------------------------------------------------------


def test_blocks_of_two_lengths_move_as_far_as_the_longer():
    three = CLIP.sensitivity(Unit.SAMPLE, 4, rows=30)

    @dataclass(frozen=True)
    class Growing(Schedule):
        def segments(self, steps):
            yield Segment(2, 1)
            yield Segment(max(0, steps - 2) // 30, 30)

    assert strangers(release=ONCE.calibrate(three, Budget(1.0)), schedule=Growing()).guarantee.basis == "proven"


def test_rows_that_are_left_out_by_a_public_mask_are_still_samples():
    def learn(self, state, block, now):
        kept = jnp.arange(2)[:, None] < 1
        return Stranger.learn(self, state, Block(jnp.where(kept, block.x, 0), block.y), now)

    two = CLIP.sensitivity(Unit.SAMPLE, 4, rows=2)
    made = strangers(overriding(learn=learn), ONCE.calibrate(two, Budget(1.0)), schedule=Every(2))
    assert made.guarantee.basis == "proven"


def test_a_derivative_of_a_clip_is_refused_in_words():
    def learn(self, state, block, now):
        def total(x):
            return jnp.sum(self.problem.clipped_data_gradient_sum(x, block, CLIP))

        return state._replace(gradient=jax.grad(total)(state.x))

    with pytest.raises(PrivacyError, match="a derivative of clipped values"):
        strangers(overriding(learn=learn))
