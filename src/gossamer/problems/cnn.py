"""A small convolutional network, as in section V-B of paper 001."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError
from gossamer.problems.checks import check_class_count
from gossamer.problems.model import Model
from gossamer.spec import kind

Layer = dict[str, jax.Array]


@kind("problem", "small-cnn")
def small_cnn(
    image_shape: tuple[int, int, int],
    classes: int,
    *,
    channels: int = 32,
    hidden: int = 64,
    seed: int,
    l2: float = 0.0,
) -> Model:
    """Two 3x3 convolutions with 2x2 max-pooling, a dense layer and the logits; weights drawn with `seed`.

    `image_shape` is (height, width, colours). Biases start at zero, weights at the scale of He et al. (2015).

    >>> small_cnn((28, 28, 1), classes=10, seed=0).dim
    61482
    """
    check_count("channels", channels)
    check_count("hidden", hidden)
    check_class_count(classes)
    if not isinstance(image_shape, tuple) or len(image_shape) != 3:
        raise ConfigurationError("image_shape", image_shape, "a tuple (height, width, colours)")
    pooled = [_pooled(_pooled(side)) for side in image_shape[:2]]
    if min(pooled) < 1:
        raise ConfigurationError("image_shape", image_shape, "(height, width, colours), at least 10x10")
    draws = np.random.default_rng(seed)
    params = [
        _layer(draws, 9 * image_shape[2], channels),
        _layer(draws, 9 * channels, channels),
        _layer(draws, math.prod(pooled) * channels, hidden),
        _layer(draws, hidden, classes),
    ]
    return Model(_apply, params, features=image_shape, classes=classes, l2=l2)


def _pooled(side: int) -> int:
    return (side - 2) // 2


def _layer(draws: np.random.Generator, inputs: int, outputs: int) -> dict[str, np.ndarray]:
    weights = draws.normal(scale=math.sqrt(2 / inputs), size=(inputs, outputs))
    return {"weights": weights, "bias": np.zeros(outputs)}


def _apply(params: list[Layer], image: jax.Array) -> jax.Array:
    first, second, dense, last = params
    features = _convolve_and_pool(second, _convolve_and_pool(first, image)).reshape(-1)
    return _affine(last, jax.nn.relu(_affine(dense, features)))


def _affine(layer: Layer, x: jax.Array) -> jax.Array:
    bias = layer["bias"].reshape((1,) * (x.ndim - 1) + (-1,))
    return x @ layer["weights"] + bias


def _convolve_and_pool(layer: Layer, image: jax.Array) -> jax.Array:
    """Convolve as one matrix product over 3x3 patches: per-sample gradients of it are products too."""
    height, width = image.shape[0] - 2, image.shape[1] - 2
    shifted = [image[i : i + height, j : j + width] for i in range(3) for j in range(3)]
    convolved = jax.nn.relu(_affine(layer, jnp.concatenate(shifted, axis=2)))
    cropped = convolved[: height // 2 * 2, : width // 2 * 2]
    windows = cropped.reshape(height // 2, 2, width // 2, 2, -1)
    return windows.max(axis=(1, 3))
