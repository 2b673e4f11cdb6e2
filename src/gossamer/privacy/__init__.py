"""What a run promises, and where its randomness comes from."""

from gossamer.privacy.guarantee import Guarantee, no_guarantee
from gossamer.privacy.noise import FastNoise, NoiseSource, NoiseSpec

__all__ = ["FastNoise", "Guarantee", "NoiseSource", "NoiseSpec", "no_guarantee"]
