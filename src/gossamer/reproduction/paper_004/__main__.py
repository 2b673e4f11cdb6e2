"""The runs of paper 004 without the report, for machines that have no plotly.

    python -m gossamer.reproduction.paper_004 OUT

`gossamer reproduce 004 --out OUT` on any other machine draws what it finds there. Interrupted, it goes on where it was.
"""

from collections.abc import Sequence

from gossamer.reproduction.errand import errand
from gossamer.reproduction.page import Asked
from gossamer.reproduction.paper_004.plan import FULL, QUICK
from gossamer.reproduction.paper_004.report import FIGURES, reproduce


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, and say what comes out."""
    with errand("004", __doc__, FIGURES, arguments) as (given, store, say):
        for row in reproduce(Asked(store, QUICK if given.quick else FULL, given.figure)).verdicts.rows:
            say(": ".join(row))


if __name__ == "__main__":
    main()
