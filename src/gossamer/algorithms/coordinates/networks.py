"""What directed networks must be like, and how little mass or weight they leave to a node."""

import numpy as np

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError
from gossamer.topology import FixedTopology, Topology
from gossamer.topology.weights import describe_cut, is_row_stochastic

_LEAST_WEIGHT = 2.0**-60  # float32 still divides by this


def smallest_mass(topology: Topology, exchanges: int) -> float:
    """gamma: the smallest mass that push-sum gives any node within so many exchanges; 1 for doubly stochastic weights.

    >>> from gossamer import topology
    >>> smallest_mass(topology.ring(5), 100), round(smallest_mass(topology.star(5, weights="push-sum"), 100), 3)
    (1.0, 0.7)
    """
    if topology.is_doubly_stochastic():
        return 1.0
    mass, least = np.ones(topology.learners), 1.0
    for exchange in range(check_count("exchanges", exchanges)):
        mass = topology.sparse(exchange) @ mass
        least = min(least, float(mass.min()))
    return least


def require_push_sum(topology: Topology) -> None:
    """Refuse weights with which push-sum loses mass.

    >>> from gossamer import topology
    >>> require_push_sum(topology.star(5, weights="uniform"))
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: topology: got 'star(5, uniform)'; allowed: column-stochastic weights. Use ...
    """
    if not isinstance(topology, Topology):
        raise ConfigurationError("topology", topology, "a topology", "try gossamer.topology.directed_ring(7)")
    if not topology.is_column_stochastic():
        raise ConfigurationError("topology", topology.name, "column-stochastic weights", "use weights='push-sum'")


def require_connected(topology: Topology) -> None:
    """Refuse a fixed network in which news does not reach everybody; those that change are checked when made.

    >>> from gossamer import topology
    >>> require_connected(topology.isolated(2))
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: topology: got 'learner 0 cannot hear the others'; allowed: a network ...
    """
    if topology.fixed and not topology.is_strongly_connected():
        allowed = "a network in which news from every node reaches every other"
        raise ConfigurationError("topology", describe_cut(topology.sparse()), allowed)


def require_rescaling(topology: Topology) -> None:
    """Refuse networks that change, weights whose rows do not sum to one, and learners that do not hear themselves.

    >>> from gossamer import topology
    >>> require_rescaling(topology.star(5, weights="push-sum"))
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: topology: got 'star(5, push-sum)'; allowed: fixed, with row-stochastic weights
    and a positive weight of one's own. Use weights='uniform'.
    """
    fixed = isinstance(topology, FixedTopology)
    weights = topology.sparse() if fixed else None
    if weights is None or not is_row_stochastic(weights) or not (weights.diagonal() > 0).all():
        allowed = "fixed, with row-stochastic weights and a positive weight of one's own"
        raise ConfigurationError("topology", getattr(topology, "name", topology), allowed, "use weights='uniform'")
    if smallest_weight(topology, 2 * topology.learners) < _LEAST_WEIGHT:
        hint = "gradients are divided by [R^t]_ii, which falls to nothing before news comes back: add links"
        raise ConfigurationError("topology", topology.name, "a network with shorter ways round", hint)


def smallest_weight(topology: Topology, exchanges: int) -> float:
    """The smallest [v_i(t)]_i = [R^t]_ii of any learner within so many exchanges.

    >>> from gossamer import topology
    >>> smallest_weight(topology.directed_ring(4, weights="uniform"), 100)
    0.125
    """
    matrix = topology.sparse()
    power, least = matrix.toarray(), 1.0
    for _ in range(exchanges):
        least = min(least, float(power.diagonal().min()))
        before, power = power, matrix @ power
        if least < _LEAST_WEIGHT or np.abs(power - before).max() < 1e-12 * least:
            break
    return least
