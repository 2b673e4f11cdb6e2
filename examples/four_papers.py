"""The algorithms of four papers on one data set that none of them used, at equal budgets.

    gossamer study examples/four_papers.py --quick

Eight learners meet the records of the breast cancer data, each once, and learn to tell two kinds of tumours apart. Each
algorithm has its step chosen on another order of the data and other noise. Those whose guarantees are against the same
observer are compared. Paper 004 is about experts whose losses are told: it does not apply.
"""

from functools import cache, partial
from itertools import combinations

from gossamer import Budget, Rate, algorithms, data, problems, sets, streams, topology
from gossamer.experiments import Asked, Cell, Metric, Section, Study, Tuned, below, measures, single, tuning_seeds

LEARNERS, STEPS = 8, 55
DELTA = 1e-5
STEP_SIZES = (0.03, 0.1, 0.3, 1.0, 3.0)
ORDER, OTHER_ORDER = 1, 2  # seeds of the data
PROBLEM = problems.Logistic(30, feature_bound=5.5, domain=sets.L2Ball(3.0))
RING = topology.ring(LEARNERS, weights="lazy")

ALGORITHMS = {
    "pd_ftgl (paper 000)": lambda budget, step: algorithms.pd_ftgl(
        PROBLEM,
        RING,
        horizon=STEPS,
        budget=budget,
        clip=1.0,
        noise="gaussian",
        steps_per_exchange=5,
        regularization=1 / step,
    ),
    "online_federated (paper 001)": lambda budget, step: algorithms.online_federated(
        PROBLEM, LEARNERS, horizon=STEPS, budget=budget, clip=1.0, steps_per_exchange=5, step=step
    ),
    "dpsda_c (paper 002)": lambda budget, step: algorithms.dpsda_c(
        PROBLEM, RING, horizon=STEPS, budget=budget, clip=1.0, noise="gaussian", batch=LEARNERS, step=Rate(step)
    ),
    "ldp_endless (paper 003)": lambda budget, step: algorithms.ldp_endless(
        PROBLEM, RING, budget=budget, noise="gaussian", history="polynomial", step=Rate(step, 0.7)
    ),
}


@cache
def dealt(seed: int) -> streams.Stream:
    """Every learner has records of its own."""
    found = data.breast_cancer()
    return streams.from_arrays(found.x_train, found.y_train, LEARNERS, seed=seed)


@cache
def shared(seed: int) -> streams.Stream:
    """All see the same batches, as paper 002 has it: as many records in all."""
    found = data.breast_cancer()
    return streams.common(found.x_train, found.y_train, batch=LEARNERS, seed=seed, shuffle=True)


def cell(name: str, budget: Budget, seeds: range, order: int, step: float) -> Cell:
    """One algorithm, judged by the records held out."""
    found, together = data.breast_cancer(), name.startswith("dpsda")
    return Cell(
        f"{name}, step {step:g}",
        partial(ALGORITHMS[name], budget, step),
        shared if together else dealt,
        STEPS,
        [LOSS, ACCURACY],
        seeds=seeds,
        data=(order,),
        measure="joint" if together else "global",
        test=problems.Block(found.x_test, found.y_test),
    )


LOSS = Metric("test loss at the end", lambda played: measures.held_out("loss").of(played)[:, -1].mean(axis=-1))
ACCURACY = Metric(
    "test accuracy at the end", lambda played: measures.held_out("accuracy").of(played)[:, -1].mean(axis=-1)
)


def study(asked: Asked) -> Study:
    """Two budgets, or one."""
    seeds = range(5 if asked.quick else 20)

    def cells(epsilon: float) -> dict[str, Tuned]:
        budget = Budget(epsilon, DELTA)
        return {
            name: Tuned(
                name,
                {"step": STEP_SIZES},
                partial(cell, name, budget, tuning_seeds(len(seeds)), OTHER_ORDER),
                partial(cell, name, budget, seeds, ORDER),
                by=LOSS.word,
            )
            for name in ALGORITHMS
        }

    def claims(epsilon: float, found: dict) -> list:
        """Of those that promise something about the same observer."""
        loss = {name: each.estimate(LOSS.word) for name, each in found.items() if each.guarantee.observer == "peers"}
        return [
            single(f"epsilon {epsilon:g}: {one} has less loss than {other}", "ours", below(loss[one], loss[other]))
            for one, other in combinations(sorted(loss, key=lambda name: loss[name].mean), 2)
        ]

    def section(epsilon: float) -> Section:
        title = f"Epsilon {epsilon:g}, delta {DELTA:g}"
        return Section(f"epsilon-{epsilon:g}", title, partial(cells, epsilon), claims=partial(claims, epsilon))

    return Study(
        "Four papers on one data set", [section(epsilon) for epsilon in ((8.0,) if asked.quick else (2.0, 8.0))]
    )
