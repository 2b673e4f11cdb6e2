"""Cells of a paper's study in one file: `python -m bench.cells keep 000 DIR`, `python -m bench.cells take 000 DIR`.

`keep` adds the finished cells of DIR/cells to docs/evidence/cells-000.jsonl.gz; `take` puts what is there into
DIR/cells, where `gossamer reproduce 000 --out DIR` finds them and goes on. A cell that is damaged is refused by both.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from gossamer.experiments import Store

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"


def kept(paper: str) -> dict[str, dict]:
    """The cells of a paper by their keys."""
    file = EVIDENCE / f"cells-{paper}.jsonl.gz"
    if not file.exists():
        return {}
    lines = gzip.decompress(file.read_bytes()).splitlines()
    return {cell["key"]: cell for cell in map(json.loads, lines)}


def keep(paper: str, directory: Path) -> int:
    """Add what is finished in a directory; how many there are now."""
    known, store = kept(paper), Store(directory / "cells")
    for file in sorted((directory / "cells").glob("*.json")):
        store.read(file.stem)  # refuses what is damaged
        known[file.stem] = {"key": file.stem, **json.loads(file.read_bytes())}
    text = "".join(json.dumps(known[key], separators=(",", ":")) + "\n" for key in sorted(known))
    (EVIDENCE / f"cells-{paper}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return len(known)


def take(paper: str, directory: Path) -> int:
    """Put all that is kept into a directory, for a study to find; how many they are."""
    store, found = Store(directory / "cells"), kept(paper)
    for key, cell in found.items():
        if store.key(cell["setting"]) != key:
            raise SystemExit(f"cell {cell['name']!r} of paper {paper} is damaged")
        store.write(key, cell["name"], cell["setting"], cell["values"])
    return len(found)


if __name__ == "__main__":
    what, paper, directory = sys.argv[1:]
    print(f"{ {'keep': keep, 'take': take}[what](paper, Path(directory)) } cells of paper {paper}")
