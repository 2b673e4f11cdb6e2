"""pfl-research: a `FederatedAlgorithm` with the NumPy round of `common`, run by its `SimulatedBackend`.

Its own privacy mechanisms noise a user's update once a round; noise on every local step is the user's part, and so are
the buffers of correlated noise.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import Noise, Play, Played, Setting, local_steps, samples, serve
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedAlgorithm
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import AlgorithmHyperParams, ModelHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.base import Model
from pfl.stats import MappedVectorStatistics


class Vector(Model):
    """A model that is one vector."""

    def __init__(self, dim: int) -> None:
        self.values = np.zeros(dim, np.float32)

    def save(self, dir_path: str) -> None:
        """Nothing is kept."""

    def load(self, dir_path: str) -> None:
        """Nothing is kept."""

    def evaluate(self, dataset: Any, name_formatting_fn: Any = str, eval_params: Any = None) -> Metrics:
        """Losses are measured where a user trains."""
        return Metrics()

    def apply_model_update(self, statistics: MappedVectorStatistics) -> tuple[Vector, Metrics]:
        """The mean of what the users changed."""
        self.values += statistics["change"]
        return self, Metrics()


@dataclass(frozen=True)
class Rounds(AlgorithmHyperParams):
    """How many, and how many users take part."""

    rounds: int
    cohort: int


class LocalSteps(FederatedAlgorithm):
    """Every user takes its local steps; the server takes the mean."""

    def __init__(self, setting: Setting, seed: int | None) -> None:
        super().__init__()
        self._setting, self.losses = setting, []
        rngs = [np.random.default_rng([seed or 0, learner]) for learner in range(setting.learners)]
        self._noise = [None if seed is None else Noise(setting, rng) for rng in rngs]

    def get_next_central_contexts(
        self,
        model: Vector,
        iteration: int,
        algorithm_params: Rounds,
        model_train_params: Any,
        model_eval_params: Any = None,
    ) -> tuple[Any, Vector, Metrics]:
        """One round of training with everybody."""
        if iteration == algorithm_params.rounds:
            return None, model, Metrics()
        context = CentralContext(
            current_central_iteration=iteration,
            do_evaluation=False,
            cohort_size=algorithm_params.cohort,
            population=Population.TRAIN,
            model_train_params=model_train_params,
            model_eval_params=None,
            algorithm_params=algorithm_params,
            seed=self._get_seed(),
        )
        return (context,), model, Metrics()

    def simulate_one_user(
        self, model: Vector, user_dataset: Dataset, central_context: CentralContext
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """The local steps of one learner on its samples of this round."""
        place, learner = central_context.current_central_iteration, int(user_dataset.user_id)
        x, y = (values[place] for values in user_dataset.raw_data)
        local, loss = local_steps(model.values, x, y, self._setting, self._noise[learner])
        change = MappedVectorStatistics({"change": local - model.values}, weight=1)
        return change, Metrics([("loss", Weighted(loss, 1))])

    def process_aggregated_statistics(
        self, central_context: Any, aggregate_metrics: Metrics, model: Vector, statistics: MappedVectorStatistics
    ) -> tuple[Vector, Metrics]:
        """FedAvg."""
        self.losses.append(aggregate_metrics["loss"].overall_value)
        statistics.average()
        return model.apply_model_update(statistics)


def prepare(setting: Setting) -> Play:
    """Samples in memory, by user, before the clock starts."""
    x, y = (values.swapaxes(0, 2).swapaxes(1, 2) for values in samples(setting, setting.rounds))
    shares = [Dataset((np.ascontiguousarray(x[i]), np.ascontiguousarray(y[i])), user_id=str(i)) for i in range(len(x))]

    def play(rounds: int, seed: int | None) -> Played:
        np.random.seed(seed or 0)
        users = itertools.cycle(range(setting.learners))
        data = FederatedDataset(lambda user: shares[user], lambda: next(users))
        algorithm, backend = LocalSteps(setting, seed), SimulatedBackend(training_data=data, val_data=data)
        begun = time.perf_counter()
        parameters = Rounds(rounds, setting.learners)
        algorithm.run(parameters, backend, Vector(setting.dim), ModelHyperParams(), send_metrics_to_platform=False)
        return Played(time.perf_counter() - begun, np.array(algorithm.losses))

    return play


serve(prepare, ("pfl", "numpy"))
