"""Any differentiable JAX model as a problem, by per-sample gradients."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError
from gossamer.privacy import Clip
from gossamer.privacy.marks import refuse_effects
from gossamer.problems.base import Block, Problem
from gossamer.problems.checks import check_class_count, check_classes, check_targets
from gossamer.problems.numerics import arrived, best_class, clipped_sum, cross_entropy
from gossamer.sets import DecisionSet, Everywhere
from gossamer.spec import kind

Apply = Callable[[Any, jax.Array], jax.Array]
ModelLoss = Literal["cross-entropy", "squared"]


def _facts(model: Model) -> dict[str, Any]:
    """All that tells models apart: the operations and constants of the function, and the start.

    A function has no name that others could know it by. Another release of JAX may write the same operations in
    another way: models that outlive one are made by a function that says its word with `gossamer.spec.kind`.
    """
    program = jax.make_jaxpr(lambda w, x: model.apply(model.params(w), x))(*map(jnp.zeros, (model.dim, model.features)))
    text = re.sub(r" at 0x[0-9a-f]+", "", str(program))
    inside = [np.asarray(constant) for constant in program.consts]
    known = [f"{each.dtype} {each.shape}".encode() + each.tobytes() for each in inside]
    hashed = hashlib.sha256(b"".join([text.encode(), model.initial, *known])).hexdigest()
    options = {name: getattr(model, name) for name in ("features", "classes", "l2", "feature_bound", "domain")}
    return {"program": hashed, "loss": model.objective, **options}


@kind("problem", "model", facts=_facts, readable=False)
@dataclass(frozen=True, init=False)
class Model(Problem):
    """A model `apply(params, x)` of one sample: logits (classes,), or one number for the squared loss.

    `params` is the start of play; decisions are its leaves, flattened one after the other. Two models are
    equal, and share compiled programs, when they have the same function `apply` and equal params: define
    `apply` once, at the top of a module. A sample at which the model or its gradient is not finite adds nothing to
    gradients; a model that is finite nowhere at its start is refused.

    >>> def affine(params, x):
    ...     return params["w"] @ x + params["b"]
    >>> start = {"w": np.zeros((3, 4)), "b": np.zeros(3)}
    >>> model = Model(affine, start, features=(4,), classes=3)
    >>> model.dim
    15
    >>> float(model.loss(model.initial_decision(), jnp.ones(4), jnp.array(2)))
    1.0986...
    """

    apply: Apply
    objective: ModelLoss
    features: tuple[int, ...]
    classes: int | None
    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    initial: bytes = field(repr=False)

    def __init__(
        self,
        apply: Apply,
        params: Any,
        loss: ModelLoss = "cross-entropy",
        *,
        features: tuple[int, ...],
        classes: int | None = None,
        l2: float = 0.0,
        feature_bound: float | None = None,
        domain: DecisionSet | None = None,
    ) -> None:
        leaves, structure = jax.tree.flatten(params)
        flat = [_as_weights(leaf) for leaf in leaves]
        fields = {
            "apply": apply,
            "objective": loss,
            "features": features,
            "classes": classes,
            "structure": structure,
            "shapes": tuple(leaf.shape for leaf in flat),
            "initial": b"".join(leaf.tobytes() for leaf in flat),
            "dim": sum(leaf.size for leaf in flat),
            "l2": l2,
            "feature_bound": feature_bound,
            "domain": Everywhere() if domain is None else domain,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in ("cross-entropy", "squared"):
            raise ConfigurationError("loss", self.objective, '"cross-entropy" or "squared"')
        if self.classifies:
            check_class_count(self.classes)
        if not isinstance(self.features, tuple):
            raise ConfigurationError("features", self.features, "a tuple, the shape of one sample's features")
        for size in self.features:
            check_count("features", size)
        self._check_output()
        self._check_start()

    @property
    def classifies(self) -> bool:
        """Whether the loss is cross-entropy."""
        return self.objective == "cross-entropy"

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """As given."""
        return self.features

    @property
    def strong_convexity(self) -> None:
        """None: a model need not be convex."""
        return None

    def initial_decision(self) -> np.ndarray:
        """The params given, flattened, and projected on the decision set."""
        with jax.ensure_compile_time_eval():
            return np.asarray(self.domain.project(jnp.asarray(np.frombuffer(self.initial, np.float32))))

    def params(self, decision: jax.Array) -> Any:
        """The tree of params that a flat decision stands for."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        leaves = jnp.split(decision, ends)
        shaped = [leaf.reshape(shape) for leaf, shape in zip(leaves, self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, shaped)

    def predict(self, decision: jax.Array, x: jax.Array) -> jax.Array:
        """The class of the largest logit, or the model's number, for the rows of `x`."""
        outputs = self._outputs(decision, x)
        return best_class(outputs.T) if self.classifies else outputs

    def probabilities(self, decision: jax.Array, x: jax.Array) -> jax.Array | None:
        """The softmax of the logits; None for the squared loss."""
        return jax.nn.softmax(self._outputs(decision, x), axis=1) if self.classifies else None

    def _outputs(self, decision: jax.Array, x: jax.Array) -> jax.Array:
        params = self.params(decision)
        outputs = jax.vmap(lambda one: self.apply(params, one))(self._arrived(x))
        return outputs if self.classifies else outputs.reshape(-1)

    def _data_losses(self, decision: jax.Array, block: Block) -> jax.Array:
        outputs = self._outputs(decision, block.x)
        return cross_entropy(outputs.T, block.y) if self.classifies else jnp.square(outputs - block.y)

    def _row_gradients(self, decision: jax.Array, block: Block, places: jax.Array) -> jax.Array:
        return jnp.take(self._all_row_gradients(decision, block), places, axis=1, mode="fill", fill_value=0)

    def _all_row_gradients(self, decision: jax.Array, block: Block) -> jax.Array:
        """The program of one row's gradient, which is checked, for every row: so no row sees another.

        `vmap` of the function itself would run rules of a stranger's for many rows at once.
        """
        one_row = [(rows.shape[1:], rows.dtype) for rows in block]
        given = [jnp.empty(*each) for each in ((decision.shape, decision.dtype), *one_row)]
        program = jax.make_jaxpr(jax.grad(self._row_loss))(*given)
        refuse_effects(program.jaxpr, "apply")
        gradients: jax.Array = jax.vmap(lambda x, y: jaxpr_as_fun(program)(decision, x, y)[0])(*block)
        return gradients

    def _row_loss(self, decision: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        """The loss of one sample; NaN, with its gradient, where a feature is NaN: that stands for no sample."""
        output = self.apply(self.params(decision), self._arrived(x[None])[0])
        here = jnp.where(jnp.isnan(x).any(), jnp.nan, 1.0)
        if self.classifies:
            return here * cross_entropy(output[:, None], y[None])[0]
        return here * jnp.square(output.reshape(()) - y)

    def _clipped_data_gradient_sum(self, decision: jax.Array, block: Block, clip: Clip | None) -> jax.Array:
        return clipped_sum(self._all_row_gradients(decision, block), clip)

    def _check_labels(self, y: np.ndarray, start: int) -> None:
        if self.classes is not None:
            check_classes(y, self.classes, start)
        else:
            check_targets(y, start)

    def _check_output(self) -> None:
        """Trace the model once, without computing, to see that it returns what the loss needs."""
        decision, x = np.zeros(self.dim, np.float32), np.zeros(self.features, np.float32)
        program, output = jax.make_jaxpr(lambda w, one: self.apply(self.params(w), one), return_shape=True)(decision, x)
        refuse_effects(program.jaxpr, "apply")  # what a model tells others, or does to several samples, is not clipped
        allowed = [(self.classes,)] if self.classifies else [(), (1,)]
        if getattr(output, "shape", None) not in allowed:
            raise ConfigurationError("apply", output, f"a function that returns an array of shape {allowed[0]}")

    def _check_start(self) -> None:
        """Refuse a model without a finite output at its start: all its gradients would count as zero."""
        count = np.arange(math.prod(self.features), dtype=np.float32)
        samples = np.stack([0 * count, 0 * count + 1, np.cos(count), 1 + count]).reshape(-1, *self.features)
        with jax.ensure_compile_time_eval():
            params = self.params(jnp.asarray(self.initial_decision()))
            if not _has_finite_output(self.apply, self.feature_bound, params, samples):
                given = "no finite output for samples of 0, of 1, of cosines and of 1, 2, 3 and so on"
                hint = "look for logarithms, roots and divisions of zero, and for params that are too large"
                raise ConfigurationError("apply", given, "a model that is finite at its params", hint)


@partial(jax.jit, static_argnums=(0, 1))
def _has_finite_output(apply: Apply, bound: float | None, params: Any, samples: jax.Array) -> jax.Array:
    """Whether the model is finite for one of the samples at least."""
    outputs = jax.vmap(lambda one: apply(params, one))(arrived(samples, bound))
    return jnp.isfinite(outputs).reshape(samples.shape[0], -1).all(axis=1).any()


def _as_weights(leaf: Any) -> np.ndarray:
    weights = np.asarray(leaf)
    if weights.dtype.kind != "f" or not np.isfinite(weights).all():
        raise ConfigurationError("params", f"a leaf of {weights.dtype}", "arrays of finite real numbers")
    return weights.astype(np.float32)
