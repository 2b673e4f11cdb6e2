"""What every problem can do: losses, clipped gradient sums, predictions, constants and checks of data."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.checks import check_count, check_positive
from gossamer.errors import ConfigurationError, DataError
from gossamer.privacy import Clip
from gossamer.privacy.clip import check_bound
from gossamer.privacy.marks import Clipped, marked, ours
from gossamer.problems.checks import check_clip, check_finite
from gossamer.problems.numerics import arrived, clipped_sum
from gossamer.sets import DecisionSet, Everywhere
from gossamer.spec import family


class Block(NamedTuple):
    """Samples: for one learner `x` is (rows, features...) and `y` is (rows,); NumPy or JAX arrays.

    >>> Block(np.zeros((2, 3)), np.zeros(2)).x.shape
    (2, 3)
    """

    x: Any
    y: Any


@family("problem")
@dataclass(frozen=True)
class Problem(ABC):
    """A loss over flat decisions of length `dim`, with its clipped gradients and its constants.

    Problems are frozen and hashable: compiled programs take them as static arguments. `feature_bound` clips
    the norm of every sample's features on arrival, in losses, gradients and predictions alike, which is what
    makes the constants enforceable. `l2` adds l2/2 |decision|^2 to every sample's loss. `start` is where play starts, a
    member of the decision set that is public: what an earlier run has released, say.
    """

    dim: int
    _: KW_ONLY
    l2: float = 0.0
    feature_bound: float | None = None
    domain: DecisionSet = field(default_factory=Everywhere)
    start: tuple[float, ...] | None = field(default=None, repr=False)

    scalar_link: ClassVar[bool] = False
    """Whether the loss sees the decision through one inner product: clipping then keeps convexity."""
    zero_rows_are_silent: ClassVar[bool] = False
    """Whether a sample without features has no gradient: a row of zeros then stands for no sample."""

    def __post_init__(self) -> None:
        check_count("dim", self.dim)
        check_positive("l2", self.l2, zero=True)
        if self.feature_bound is not None:
            check_bound("feature_bound", self.feature_bound, "use None for features without a bound")
        if not isinstance(self.domain, DecisionSet) or self.domain.dimension not in (None, self.dim):
            raise ConfigurationError("domain", self.domain, f"a set of vectors of length {self.dim}")
        object.__setattr__(self, "domain", self.domain.of_dimension(self.dim))
        if self.start is not None:
            self._check_given_start(np.asarray(self.start, np.float32))

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """The shape of one sample's features."""
        return (self.dim,)

    @property
    def classifies(self) -> bool:
        """Whether predictions are class labels, so that there is an accuracy."""
        return False

    @property
    def lipschitz(self) -> float | None:
        """The largest gradient norm of one sample's data term, without l2; None where there is no bound."""
        return None

    @property
    def smoothness(self) -> float | None:
        """The Lipschitz constant of one sample's gradient; None where there is no bound."""
        return None

    @property
    def strong_convexity(self) -> float | None:
        """The strong convexity of every sample's loss; None where the loss is not convex."""
        return self.l2

    def initial_decision(self) -> np.ndarray:
        """The start of play, (dim,): as given, or the member of the decision set nearest to zero."""
        if self.start is not None:
            return np.asarray(self.start, np.float32)
        with jax.ensure_compile_time_eval():  # also when a compiled program asks
            return np.asarray(self.domain.origin(self.dim))

    def _check_given_start(self, start: np.ndarray) -> None:
        """Refuse a start that no learner could play."""
        if start.shape != (self.dim,) or not np.isfinite(start).all():
            raise ConfigurationError("start", f"shape {start.shape}", f"{self.dim} finite numbers")
        with jax.ensure_compile_time_eval():
            inside = np.asarray(self.domain.project(jnp.asarray(start)))
        if not np.allclose(inside, start, rtol=1e-5, atol=1e-6):
            raise ConfigurationError("start", "a point outside", "a member of the decision set", "project it first")

    def loss(self, decision: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        """One sample's loss: data term and regularisation."""
        one = Block(jnp.asarray(x)[None], jnp.asarray(y)[None])
        return self.losses(decision, one)[0]

    def losses(self, decision: jax.Array, block: Block) -> jax.Array:
        """The loss of every row, (rows,)."""
        data = self._data_losses(decision, block)
        # Without l2 the term is left out, not multiplied by zero: it would cost as much as the data term.
        return data + self.l2 / 2 * jnp.vdot(decision, decision) if self.l2 else data

    def clipped_gradient_sum(self, decision: jax.Array, block: Block, clip: float | Clip | None) -> jax.Array:
        """The sum over rows of the data term's gradients, each clipped; l2 is added after."""
        return self.add_l2(self.clipped_data_gradient_sum(decision, block, clip), decision, block.x.shape[0])

    def add_l2(self, gradient: jax.Array, decision: jax.Array, rows: int = 1) -> jax.Array:
        """A sum of gradients of so many samples with the regularisation's added, which knows no data."""
        return gradient + rows * self.l2 * decision if self.l2 else gradient

    def clipped_data_gradient_sum(
        self,
        decision: jax.Array,
        block: Block,
        clip: float | Clip | None,
        places: jax.Array | None = None,
        *,
        consecutive: bool = False,
    ) -> jax.Array:
        """The sum over rows of the data term's gradients, each clipped, without l2: what a mechanism releases.

        A row whose gradient or norm is not finite adds exactly zero, so that one row never moves the sum by more than
        twice the clip, whatever numbers it holds. `Clip.sensitivity` says so in numbers, and `clipped_sum` does it.

        With `places`, an array of coordinates, only these parts of the gradients are taken, clipped and summed; a place
        outside the decision stands for nothing, and holds 0. Places that follow one another, none of them outside, are
        `consecutive`: these may be cut out of the features in one piece.
        """
        clip = check_clip(clip)
        self._require_shapes(decision, block, places)
        if clip is not None and places is None:
            clip.check_dim(self.dim)

        def summed(decision: jax.Array, x: jax.Array, y: jax.Array, *places: jax.Array) -> jax.Array:
            block, kind = Block(x, y), type(self)  # what the class does, whatever was put into this object
            if places:
                return kind._clipped_part_sum(self, decision, block, clip, *places, consecutive=consecutive)
            return kind._clipped_data_gradient_sum(self, decision, block, clip)

        given = (decision, *block, *(() if places is None else (places,)))
        if clip is None or not ours(type(self)):  # nobody knows how another class clips
            return summed(*given)
        total: jax.Array = marked("clipped", Clipped(clip, block.x.shape[0]), summed, *given)
        return total

    def _require_shapes(self, decision: jax.Array, block: Block, places: jax.Array | None) -> None:
        """Refuse arrays that would be broadcast against each other: one sample would be in the gradients of others."""
        rows = jnp.shape(block.x)[:1]
        shapes = {
            "decision": (jnp.shape(decision), (self.dim,)),
            "x": (jnp.shape(block.x), (*rows, *self.feature_shape)),
            "y": (jnp.shape(block.y), rows),
        }
        if places is not None:
            shapes["places"] = jnp.shape(places), jnp.shape(places)[:1]
        for name, (given, allowed) in shapes.items():
            if given != allowed:
                raise ConfigurationError(name, f"shape {given}", f"shape {allowed}")

    def row_gradients(self, decision: jax.Array, block: Block) -> jax.Array:
        """The gradient of every row's data term, (rows, dim), without l2 and without any clipping.

        Zero for a row whose gradient is not finite.
        """
        gradients = self._row_gradients(decision, block, jnp.arange(self.dim))
        return jnp.where(jnp.isfinite(gradients).all(axis=1)[:, None], gradients, 0)

    @abstractmethod
    def predict(self, decision: jax.Array, x: jax.Array) -> jax.Array:
        """Class labels (int32) or real predictions for the rows of `x`."""

    def probabilities(self, decision: jax.Array, x: jax.Array) -> jax.Array | None:
        """How likely each class is for the rows of `x`, (rows, classes); None where the loss is of no probabilities."""
        return None

    def correct(self, decision: jax.Array, block: Block) -> jax.Array | None:
        """1 for every row classified correctly, else 0; None for problems without classes."""
        if not self.classifies:
            return None
        hits: jax.Array = self.predict(decision, block.x) == block.y
        return hits.astype(decision.dtype)

    def check(self, block: Block, *, start: int = 0) -> None:
        """Refuse samples of the wrong shape, with features that are not finite, or with impossible labels.

        Errors count the first axis from `start`, and name position and kind, never a value.
        """
        x, y = np.asarray(block.x), np.asarray(block.y)
        leading = x.ndim - len(self.feature_shape)
        if leading < 1 or x.shape[leading:] != self.feature_shape:
            raise DataError(f"features have shape {x.shape}; every sample needs shape {self.feature_shape}")
        if y.shape != x.shape[:leading]:
            raise DataError(f"labels have shape {y.shape}; the features need one for each of {x.shape[:leading]}")
        check_finite(x, start)
        self._check_labels(y, start)

    def _arrived(self, x: jax.Array) -> jax.Array:
        """Features as losses, gradients and predictions see them."""
        return arrived(x, self.feature_bound)

    @abstractmethod
    def _data_losses(self, decision: jax.Array, block: Block) -> jax.Array: ...

    @abstractmethod
    def _clipped_data_gradient_sum(self, decision: jax.Array, block: Block, clip: Clip | None) -> jax.Array: ...

    def _clipped_part_sum(
        self, decision: jax.Array, block: Block, clip: Clip | None, places: jax.Array, *, consecutive: bool
    ) -> jax.Array:
        """The sum over rows of these coordinates of the gradients, each clipped, (places,)."""
        return clipped_sum(self._row_gradients(decision, block, places), clip)

    @abstractmethod
    def _row_gradients(self, decision: jax.Array, block: Block, places: jax.Array) -> jax.Array:
        """These coordinates of every row's gradient, (rows, places); 0 for places outside."""

    @abstractmethod
    def _check_labels(self, y: np.ndarray, start: int) -> None: ...


def clipped(vector: jax.Array, clip: float | Clip) -> jax.Array:
    """A vector, made shorter where it is longer than the clip; zero where it is not finite.

    One unit moves it by twice the clip at most, whatever it was made of.

    >>> clipped(jnp.array([3.0, 4.0]), 1.0).round(3).tolist()
    [0.6..., 0.8...]
    """
    bounded = Clip.of(clip)

    def short(one: jax.Array) -> jax.Array:
        return clipped_sum(one.reshape(1, -1), bounded).reshape(one.shape)

    result: jax.Array = marked("clipped", Clipped(bounded, None), short, vector)
    return result
