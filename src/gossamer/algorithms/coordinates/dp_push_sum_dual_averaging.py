"""DPPS: private push-sum dual averaging of learners with samples of their own (Han et al. 2021).

tight        v_i(t) = clip( grad f_{t,i}(y_i(t)) ) + noise_i(t)                             released once
             h_i(t+1) = v_i(t) + sum_j A_ij(t) h_j(t),   w_i(t+1) = sum_j A_ij(t) w_j(t)    sent
             y_i(t+1) = Pi( h_i(t+1) / w_i(t+1), alpha(t) )                                 played

published    z_i(t+1) = clip( grad f_{t,i}(y_i(t)) ) + sum_j A_ij(t) h_j(t)
             h_i(t+1) = z_i(t+1) + Lap( 2 G sqrt(d) T / epsilon )                           sent
             y_i(t+1) = Pi( z_i(t+1) / w_i(t+1), alpha(t) )                                 played, not noised

A baseline of paper 002 for objectives that are a sum of the learners' own. One sample moves the dual of one learner.
"""

from collections.abc import Sequence
from typing import Any

from gossamer.algorithms.authoring import Calibration, Lagged, noised_once
from gossamer.algorithms.coordinates.dual_averaging import NAME, DualAveraging, PublishedDual, TightDual
from gossamer.algorithms.coordinates.networks import require_connected, require_push_sum, smallest_mass
from gossamer.algorithms.coordinates.printed_noise import printed_noise
from gossamer.checks import check_choice, check_count
from gossamer.core import Algorithm, Rate
from gossamer.mechanisms import AdditiveLaw, Calibrated, Independent
from gossamer.privacy import Budget, Clip, Unit, budgets_of
from gossamer.problems import Problem
from gossamer.spec import kind
from gossamer.topology import Topology


@kind("algorithm", "dp_push_sum_dual_averaging")
def dp_push_sum_dual_averaging(
    problem: Problem,
    topology: Topology,
    *,
    budget: Budget | Sequence[Budget],
    clip: float | Clip,
    horizon: int | None = None,
    noise: AdditiveLaw = "laplace",
    step: float | Rate | None = None,
    calibration: Calibration = "tight",
) -> Algorithm:
    """Private dual averaging by push-sum: every learner owns a whole decision, and samples of its own.

    Args:
        problem: loss and decision set.
        topology: who hears whom, which may change; column-stochastic weights (weights="push-sum").
        budget: for the whole horizon, or one for each learner.
        clip: what each sample's gradient is clipped to; a number bounds its Euclidean norm.
        horizon: the steps that are played at most; None: no end (tight only).
        noise: "laplace" and "l2-laplace" are pure, "gaussian" needs a delta.
        step: alpha(t), by default 1 / sqrt(t); the decision of step t is made with alpha(t-1).
        calibration: "tight": the gradient is noised once. "published": every message gets noise for a share of the
            budget, and decisions are not protected.

    >>> from gossamer import problems, topology
    >>> options = {"budget": Budget(1.0), "clip": 1.0}
    >>> print(dp_push_sum_dual_averaging(problems.Logistic(4), topology.directed_ring(5), **options).describe())
    dp_push_sum_dual_averaging on directed_ring(5)
      step: 1 / max(t-1, 1)^0.5 at exchange t
      clip: Clip(l2=1.0)
      noise: laplace, tight
      noise on dual: scale 4
      guarantee: Proven: over an endless horizon, all other participants together, who see every message and every
      decision, learn about one sample of one learner at most epsilon 1.
    """
    require_push_sum(topology)
    require_connected(topology)
    check_choice("noise", noise, AdditiveLaw)
    check_choice("calibration", calibration, Calibration)
    if horizon is not None:
        check_count("horizon", horizon)
    clip, budgets = Clip.of(clip), budgets_of(budget, topology.learners)
    alpha = Lagged(Rate(1.0) if step is None else Rate.of("step", step))
    proof = "docs/algorithms/dp_push_sum_dual_averaging.md"
    release: Calibrated[Any]
    if calibration == "tight":
        mechanism = Independent((problem.dim,), horizon=horizon, law=noise, name=NAME)
        release = mechanism.calibrate(clip.sensitivity(Unit.SAMPLE, problem.dim), budgets)
        learner: DualAveraging = TightDual(problem, clip, mechanism, push=True)
        promise = noised_once(release, clip, proof=proof)
    else:
        release, promise = printed_noise(
            problem, topology, clip, budgets, horizon, noise, alpha, smallest_mass, name=NAME, proof=proof
        )
        learner = PublishedDual(problem, clip, release.mechanism, push=True)
    return Algorithm(
        name="dp_push_sum_dual_averaging",
        problem=problem,
        topology=topology,
        learner=learner,
        guarantee=promise,
        public={"step": alpha},
        releases=(release,),
        parameters={"step": str(alpha), "clip": clip, "noise": f"{noise}, {calibration}"},
        # Published, the cost counts on the mass that every learner has where no message is lost.
        missing="later" if calibration == "tight" else None,
    )
