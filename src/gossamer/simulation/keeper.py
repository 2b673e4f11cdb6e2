"""Who keeps a run's checkpoint up to date."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.errors import ConfigurationError
from gossamer.problems import Block
from gossamer.simulation import checkpoint as checkpoints
from gossamer.simulation.checkpoint import Progress, Seen
from gossamer.simulation.engine import World
from gossamer.simulation.inputs import Fed
from gossamer.simulation.mesh import due
from gossamer.simulation.plan import Chunk
from gossamer.simulation.spread import ALONE, Spread
from gossamer.simulation.tally import Tally
from gossamer.streams import Stream

_SECONDS = 10.0  # between two checkpoints


@dataclass
class Keeper:
    """Resumes from the checkpoint and keeps it up to date, at most every few seconds."""

    path: Path | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    written: float = 0.0
    spread: Spread = ALONE

    def resume(self, fresh: World, every: int | None, usual: int, exchanges: int, stream: Stream) -> Progress:
        """What the file holds, or a fresh start with rows of `every` exchanges, or of the usual number."""
        stored = self.path and checkpoints.read(self.path, self.identity, fresh, every, stream)
        if not stored:
            return Progress(0, fresh, Tally(every or usual), Seen())
        if stored.exchanges > exchanges:
            raise ConfigurationError(
                "steps", f"{exchanges} exchanges", f"at least the {stored.exchanges} in {self.path}"
            )
        return stored

    def saw(self, seen: Seen, stream: Stream, block: Block | Fed, chunk: Chunk) -> Seen:
        """With the samples of a chunk, where a checkpoint must know them since nothing else tells what they are."""
        if not self.path or self.identity["records"]:
            return seen
        if isinstance(block, Fed):
            return seen.plus(stream.read(chunk.step, chunk.step + (chunk.stop - chunk.first) * chunk.block))
        rows = (self.spread.fetch(leaf)[chunk.first : chunk.stop] for leaf in block)
        return seen.plus(Block(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in rows)))

    def keep(self, progress: Progress, *, now: bool = False) -> None:
        """Write the checkpoint, if it is time or `now`."""
        if self.path and (now or due(self.spread, time.monotonic() - self.written > _SECONDS)):
            checkpoints.write(self.path, self.identity, progress, self.spread)
            self.written = time.monotonic()
