"""The runs of paper 001 without the report, for machines that have an accelerator and no plotly.

    python -m gossamer.reproduction.paper_001 OUT --figure 4 --data DIRECTORY [--tuning-only]

`gossamer reproduce 001 --out OUT` on any other machine draws what it finds there. Interrupted, it goes on where it was.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gossamer.reproduction.errand import errand
from gossamer.reproduction.paper_001.cases import Digits
from gossamer.reproduction.paper_001.experiments import MODELS, ImageLab, LogisticLab, MethodLab, remembers_all
from gossamer.reproduction.paper_001.plan import FULL, QUICK


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, and say what comes out."""
    flags = {"tuning_only": "search the step sizes, and no more"}
    with errand("001", __doc__, (3, 4), arguments, **flags) as (given, store, say):
        plan = QUICK if given.quick else FULL
        labs: dict[int, MethodLab[Any]] = {
            3: LogisticLab(store, plan.logistic),
            4: ImageLab(store, plan.images, Digits(given.data, given.stand_in)),
        }
        for lab in [labs[given.figure]] if given.figure else labs.values():
            cases = sorted(lab.cases(), key=remembers_all)  # what takes most memory, and time, comes last
            for case in cases:
                steps = {publish: lab.tuned(case, publish) for publish in MODELS}
                say(f"{case}: best steps {steps}, shared step {lab.shared(case):g}")
            for case in [] if given.tuning_only else cases:
                for step in lab.steps(case):
                    found = lab.final(case, step)
                    means = {publish: float(np.mean(found["accuracy"][publish], axis=0)[-1]) for publish in MODELS}
                    say(f"{case}, step {step:g}: accuracy at the end {means}, {found['seconds']:.0f} s")


if __name__ == "__main__":
    main()
