"""Trajectories as they were before the house was rebuilt, bit for bit; goes when the rebuilding ends.

`python -m tests.test_recorded` writes tests/recorded.json: done once, before the first move.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from gossamer import simulate
from gossamer.algorithms import REGISTRY
from gossamer.privacy import FastNoise, SecureNoise
from tests import instances
from tests.networks import Hub, repeatable, run_all
from tests.test_flow import FORMS
from tests.test_network import BUDGETS, CHANGING, GOSSIPING, prepared

FILE = Path(__file__).parent / "recorded.json"
NEW = {"dp_ftrl"}  # made after the set was recorded
EVERY = {**{name: (name, {}) for name in REGISTRY}, **FORMS}
SHAPES = {case: shape for case, shape in EVERY.items() if shape[0] not in NEW}
NOISE_OF = "gossamer.net.node.node.noise_of"


def digest(*arrays):
    hashed = hashlib.sha256()
    for array in arrays:
        known = np.ascontiguousarray(array)
        hashed.update(f"{known.dtype} {known.shape}".encode() + known.tobytes())
    return hashed.hexdigest()[:16]


def simulated(case, **options):
    name, changed = SHAPES[case]
    algorithm = instances.algorithm(name, **changed)
    stream = instances.stream(5, name=name)
    arguments = {"seed": 11, "every": 1, "record": ("decisions", "messages"), "progress": False}
    run = simulate(algorithm, stream, 64, **(arguments | options))
    import jax

    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(dict(run.transcript))]
    return (
        digest(*leaves, np.asarray(run.losses))
        + " "
        + digest(*[np.asarray([scale.value for scale in scales]) for _, scales in sorted(algorithm.scales.items())])
    )


def fixed_noise(algorithm, key, run):
    if algorithm.guarantee.basis == "none":
        return FastNoise(key[0])
    return SecureNoise(key, run, "recorded")


def on_nodes(case):
    if case in CHANGING:
        name, network, changed = CHANGING[case]
        algorithm = REGISTRY[name].make(instances.problem(name), network, **{**REGISTRY[name].example, **changed})
    else:
        name = case
        algorithm = instances.algorithm(name, **BUDGETS.get(name, {}))
    algorithm = prepared(algorithm, allow_no_guarantee=True)
    hub, exchanges = Hub(), 20
    *_, last = algorithm.schedule.segments(10**9)
    steps = exchanges * last.block
    stream = instances.stream(5, steps, name=name)
    with tempfile.TemporaryDirectory() as folder, patch(NOISE_OF, fixed_noise):
        transports = [hub.transport(i) for i in range(5)]
        members = repeatable(Path(folder), algorithm, transports, stream, steps, exchanges=exchanges)
        run_all(members)
    return digest(*[np.stack([member.played[t] for t in sorted(member.played)]) for member in members])


CASES = {
    **{f"simulate {case}": lambda case=case: simulated(case) for case in SHAPES},
    **{f"debug {case}": lambda case=case: simulated(case, debug=True) for case in SHAPES},
    **{f"node {case}": lambda case=case: on_nodes(case) for case in (*GOSSIPING, *CHANGING)},
}


@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_before(case):
    assert CASES[case]() == json.loads(FILE.read_text())[case]


if __name__ == "__main__":
    kept = {}
    for case, make in CASES.items():
        kept[case] = make()
        print(case, kept[case], file=sys.stderr, flush=True)
    FILE.write_text(json.dumps(kept, indent=1) + "\n")
