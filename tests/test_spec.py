"""What an algorithm is, written down: canonical, versioned, read back, and refused in words where it is not right."""

from __future__ import annotations

import copy
import json
import sys
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer import Budget, Clip, Rate, algorithms, mechanisms, problems, sets, simulate, topology
from gossamer.algorithms import REGISTRY
from gossamer.core import Algorithm, Every, Federation, Phases, Segment
from gossamer.errors import ConfigurationError
from gossamer.mechanisms.independent import Releaked, Views
from gossamer.mechanisms.picks import Picks
from gossamer.problems import Problem
from gossamer.spec import build, canonical, difference, digest, kind, kinds, plain, spec_of
from gossamer.spec.kinds import _families
from tests import instances
from tests.test_flow import FORMS

SHAPES = {**{name: (name, {}) for name in REGISTRY}, **FORMS}
EVERYTHING = {
    "set": [
        sets.Everywhere(),
        sets.L2Ball(2.5),
        sets.L1Ball(1.0),
        sets.Box(-1.0, 2.0),
        sets.Simplex(3),
        sets.TraceNormBall(1.0, (2, 3)),
    ],
    "problem": [
        problems.Logistic(3, l2=0.1, feature_bound=1.0, domain=sets.L2Ball(2.0)),
        problems.Softmax(4, 3),
        problems.LeastSquares(2),
        problems.Hinge(2),
        problems.Linear(2, domain=sets.L1Ball(1.0)),
        problems.Experts(4),
        problems.small_cnn((12, 12, 1), classes=3, seed=1),
    ],
    "topology": [*instances.TOPOLOGIES.values(), topology.ring(3, weights=np.full((3, 3), 1 / 3)), Federation(4, 0.5)],
    "schedule": [Every(4), Phases((Segment(1, 2), Segment(3, 0)))],
    "rate": [Rate(1.0), Rate(0.5, 0.7, 3)],
    "budget": [Budget(1.0), Budget(0.5, 1e-5)],
    "clip": [Clip(l2=1.0), Clip(l1=2.0), Clip(l2=(1.0, 0.5), blocks=(3, 2))],
    "mixing": [topology.Gossip(3), topology.AcceleratedGossip(2)],
    "mechanism": [
        mechanisms.Independent((3,), law="gaussian", horizon=9),
        mechanisms.TreeSum((3,), horizon=8, name="sums"),
        mechanisms.Factorized.blt((2,), 100),
        mechanisms.Factorized.toeplitz((2,), 100),
        mechanisms.Gossiped((3,), horizon=8, inner=mechanisms.TreeSum((3,), horizon=8), learners=4, spread=0.5),
        mechanisms.ExponentialMechanism(4, horizon=3),
        mechanisms.PermuteAndFlip(4, horizon=3),
        mechanisms.NoisyMax(4, horizon=3),
        mechanisms.AboveThreshold(count=2, horizon=5),
        mechanisms.Keeping((1,), horizon=4, restless=0.25),
        mechanisms.SharedFlip(4, horizon=3, leaves=2),
        mechanisms.Spread(4, horizon=3, leaves=2),
        Picks((3,), name="picks"),
        Releaked((3,), horizon=4, reach=2.0),
        Views((3,), horizon=4),
    ],
}


def through_a_file(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("name", SHAPES)
def test_every_algorithm_is_what_its_specification_says(name):
    registered, changed = SHAPES[name]
    made = instances.algorithm(registered, **changed)
    again = Algorithm.from_spec(through_a_file(made.spec()))
    assert again.spec() == made.spec()
    assert again.digest == made.digest
    assert again.guarantee == made.guarantee
    assert again.scales == made.scales
    assert again.describe() == made.describe()


def test_algorithms_for_secure_noise_are_read_back_as_such():
    made = instances.algorithm("pd_ogd").secured()
    again = Algorithm.from_spec(through_a_file(made.spec()))
    assert again.scales == made.scales
    assert again.digest == made.digest != instances.algorithm("pd_ogd").digest


@pytest.mark.parametrize(
    ("family", "number"), [(family, number) for family, each in EVERYTHING.items() for number in range(len(each))]
)
def test_every_kind_is_read_back(family, number):
    value = EVERYTHING[family][number]
    table = through_a_file(spec_of(value))
    again = build(family, table, family)
    assert spec_of(again) == table
    assert repr(again) == repr(value)


def test_every_kind_is_tried():
    """No kind is forgotten: those of tests and strangers are told by their modules."""
    for family, each in EVERYTHING.items():
        tried = {spec_of(value).get("kind", "") for value in each}
        ours = {name for name, one in kinds(family).items() if one.make.__module__.startswith("gossamer.")}
        told = {name for name in ours if kinds(family)[name].readable}
        assert told - tried == set(), family


def test_options_at_their_defaults_are_not_written():
    spec = algorithms.pd_ogd(
        problems.Logistic(3, l2=0.0), topology.ring(4, weights="metropolis"), budget=Budget(1.0, 0.0), clip=1, step=0.1
    ).spec()
    assert spec["problem"] == {"kind": "logistic", "dim": 3}
    assert spec["topology"] == {"kind": "ring", "learners": 4}
    assert spec["algorithm"] == {"name": "pd_ogd", "budget": {"epsilon": 1}, "clip": 1, "step": 0.1}


def test_what_is_equal_has_the_same_digest_and_what_is_not_has_another():
    def made(**changed):
        options = {"budget": Budget(1.0), "clip": 1.0, "step": 0.1, "horizon": 50} | changed
        return algorithms.pd_ogd(problems.Logistic(3), topology.ring(4), **options)

    assert made().digest == made(clip=1).digest == made(calibration="tight").digest
    others = [made(clip=2.0), made(step=Rate(0.1)), made(horizon=51), made(budget=Budget(1.0, 1e-6)), made()]
    others += [algorithms.pd_ogd(problems.Logistic(3), topology.path(4), budget=Budget(1.0), clip=1.0, step=0.1)]
    assert len({one.digest for one in others}) == len(others)


def test_a_renamed_class_with_renamed_fields_is_written_as_before():
    @kind("problem-of-tests", "affine")
    @dataclass(frozen=True)
    class Affine:
        slope: float
        shift: float = 0.0

    before = canonical(spec_of(Affine(2.0, shift=0.5)))
    del _families["problem-of-tests"]

    @kind("problem-of-tests", "affine", words={"a": "slope", "b": "shift"})
    @dataclass(frozen=True)
    class Line:
        a: float
        b: float = 0.0
        later: int = 3  # an option that came later, with a default

    assert canonical(spec_of(Line(2.0, b=0.5))) == before == '{"kind":"affine","shift":0.5,"slope":2}'
    assert build("here", json.loads(before), "problem-of-tests") == Line(2.0, 0.5)
    with pytest.raises(ConfigurationError, match="here shfit: got 1; allowed: the keys kind, slope, shift, later"):
        build("here", {"kind": "affine", "slope": 1, "shfit": 1}, "problem-of-tests")


def test_a_renamed_function_of_an_algorithm_is_read_as_before():
    spec = algorithms.d_ogd(problems.Linear(2), topology.ring(3), step=0.5).spec()
    known = _families["algorithm"].pop("d_ogd")
    try:

        @kind("algorithm", "d_ogd", words={"speed": "step"})
        def descend(problem: Problem, topology: topology.Topology, *, speed: float | Rate | None = None) -> Algorithm:
            return replace(known.make(problem, topology, step=speed))

        again = Algorithm.from_spec(spec)
        assert again.spec() == spec
        assert again.digest == algorithms.d_ogd(problems.Linear(2), topology.ring(3), step=0.5).digest
    finally:
        _families["algorithm"]["d_ogd"] = known


def test_other_results_under_the_same_word_are_another_revision():
    @kind("problem-of-tests", "line", revision=2)
    @dataclass(frozen=True)
    class Line:
        slope: float

    assert spec_of(Line(1.0)) == {"kind": "line", "revision": 2, "slope": 1}
    assert build("here", spec_of(Line(1.0)), "problem-of-tests") == Line(1.0)
    with pytest.raises(ConfigurationError, match=r"here revision: got 1; allowed: 2 of line. Its results have changed"):
        build("here", {"kind": "line", "slope": 1}, "problem-of-tests")


def test_kinds_of_other_modules_are_found_by_name_and_nothing_else_is(monkeypatch):
    source = """
from dataclasses import dataclass
from gossamer import problems
from gossamer.spec import kind

@dataclass(frozen=True)
class Mine(problems.Linear):
    '''Of a stranger.'''

def unmarked(dim: int) -> problems.Linear:
    raise AssertionError("called")

@kind("problem", "strangers:made")
def made(dim: int) -> problems.Linear:
    return problems.Linear(dim)
"""
    module = types.ModuleType("strangers")
    monkeypatch.setitem(sys.modules, "strangers", module)
    exec(source, module.__dict__)
    try:
        for table in ({"kind": "strangers:Mine", "dim": 3}, {"kind": "strangers:made", "dim": 3}):
            assert spec_of(build("[problem]", table, "problem")) == table
        for name in (
            "strangers:unmarked",
            "strangers:nothing",
            "os:system",
            "no.such.module:x",
            "strangers:kind",
            ":x",
            ".x:y",
            "a b:c",
        ):
            with pytest.raises(ConfigurationError, match=r"\[problem\] kind: got"):
                build("[problem]", {"kind": name, "dim": 3}, "problem")
    finally:
        del _families["problem"]["strangers:made"]


def test_two_packages_with_the_same_word_are_refused():
    with pytest.raises(ConfigurationError, match="words that no other package uses"):
        kind("set", "l2-ball")(type("Ball", (), {"__module__": "elsewhere"}))


def test_a_model_by_hand_is_known_by_its_program_and_not_read_back():
    def line(params, x):
        return params["w"] @ x

    def other(params, x):
        return 2 * (params["w"] @ x)

    def made(apply, **changed):
        start = {"w": np.zeros(3, np.float32)} | changed
        model = problems.Model(apply, start, "squared", features=(3,))
        return algorithms.d_ogd(model, topology.ring(3), step=0.1)

    assert made(line).digest == made(line).digest
    assert len({made(line).digest, made(other).digest, made(line, w=np.ones(3, np.float32)).digest}) == 3
    with pytest.raises(ConfigurationError, match=r"\[problem\] kind: got 'model'; allowed: what can be made"):
        Algorithm.from_spec(made(line).spec())


def test_an_algorithm_that_somebody_changed_has_no_specification():
    made = instances.algorithm("d_ogd")
    changed = replace(made, name="mine")
    with pytest.raises(ConfigurationError, match="algorithm: got 'mine'; allowed: one that a function with a name has"):
        changed.spec()


def test_graphs_are_known_by_their_links_and_not_by_their_names():
    named = topology.from_networkx(nx.Graph([("ann", "bob"), ("bob", "cyd")]))
    numbered = topology.from_networkx(nx.Graph([(1, 2), (0, 1)]))
    assert spec_of(named) == spec_of(numbered)
    assert build("[topology]", spec_of(named), "topology").hears(1) == named.hears(1)
    with pytest.raises(ConfigurationError, match="graph edges: got 3; allowed: a whole number from 0 to 2"):
        build("[topology]", {"kind": "graph", "graph": {"learners": 3, "edges": [[0, 3]]}}, "topology")


SPEC = algorithms.pd_ogd(
    problems.Logistic(3), topology.ring(4), budget=Budget(1.0), clip=1.0, step=0.1, horizon=50
).spec()


def altered(*path, to=None, remove=False):
    spec = copy.deepcopy(SPEC)
    *before, last = path
    table = spec
    for key in before:
        table = table[key]
    if remove:
        del table[last]
    else:
        table[last] = to
    return spec


REFUSED = {
    "no version": (altered("spec", remove=True), "spec: got nothing; allowed: 1: the version of a specification. Go"),
    "later version": (altered("spec", to=2), "spec: got 2; allowed: 1. A later release wrote it"),
    "not a table": ([1], "spec: got nothing"),
    "unknown table": (altered("algoritm", to={}), "The nearest is 'algorithm'."),
    "missing table": (altered("problem", remove=True), "[problem]: got nothing; allowed: the sections"),
    "unknown algorithm": (altered("algorithm", "name", to="pd_ogg"), "The nearest is 'pd_ogd'."),
    "unknown problem": (altered("problem", "kind", to="logistik"), "The nearest is 'logistic'."),
    "missing option": (
        altered("algorithm", "budget", remove=True),
        "budget: got nothing; allowed: a table",
    ),
    "misspelt option": (altered("algorithm", "stepp", to=1), "[algorithm] stepp: got 1; allowed: the keys name,"),
    "option of another kind": (
        altered("algorithm", "clip", to="one"),
        "clip: got 'one'; allowed: a number",
    ),
    "option that is settled": (altered("algorithm", "topology", to=1), "[topology] settles topology."),
    "later revision": (altered("algorithm", "revision", to=7), "[algorithm] revision: got 7; allowed: 1 of pd_ogd."),
    "another clip": (altered("algorithm", "clip", to=2), "resolved releases sensitivities: got"),
    "less noise": (
        altered("resolved", "releases", 0, "scales", "gradient", 0, 0, to=0.1),
        "resolved releases scales gradient: got 0.1; allowed:",
    ),
    "a better promise": (
        altered("resolved", "guarantee", "costs", to=[[0.1, 0]]),
        "resolved guarantee costs: got 0.1; allowed: 1, which follows from the options. It was altered,",
    ),
    "more in it": (altered("resolved", "more", to=1), "resolved more: got 1; allowed: nothing, which follows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_specifications_that_are_not_right_are_refused(case):
    spec, words = REFUSED[case]
    with pytest.raises(ConfigurationError) as refused:
        Algorithm.from_spec(spec)
    assert words in str(refused.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_the_canonical_text_survives_files(value):
    text = canonical(plain(value))
    assert canonical(plain(json.loads(text))) == text
    assert digest(json.loads(text)) == digest(plain(value))
    assert difference(plain(value), json.loads(text)) is None


def test_a_checkpoint_names_the_option_that_differs(tmp_path: Path):
    stream, file = instances.stream(4, 40), tmp_path / "run.npz"
    simulate(instances.algorithm("d_ogd", 4), stream, 20, seed=0, checkpoint=file, progress=False)
    other = instances.algorithm("d_ogd", 4, step=0.2)
    with pytest.raises(ConfigurationError, match=r"\(algorithm algorithm step\): got 0.2; allowed: 0.1, as in"):
        simulate(other, stream, 40, seed=0, checkpoint=file, progress=False)
