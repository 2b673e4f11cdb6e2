"""The runs of paper 003 without the report, for machines that have an accelerator and no plotly.

    python -m gossamer.reproduction.paper_003 OUT --figure 2 --data DIRECTORY

`gossamer reproduce 003 --out OUT` on any other machine draws what it finds there. Interrupted, it goes on where it was.
"""

from collections.abc import Callable, Sequence

from gossamer.reproduction.errand import errand
from gossamer.reproduction.paper_003 import findings
from gossamer.reproduction.paper_003.cases import IMAGES, MODELS, RIVALS, USABLE, Mushrooms, Pictures
from gossamer.reproduction.paper_003.experiments import TrackingLab, UsableLab, at_end
from gossamer.reproduction.paper_003.networks import NetworkLab
from gossamer.reproduction.paper_003.plan import FULL, QUICK

Say = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, and say what comes out."""
    with errand("003", __doc__, (1, 2, 3), arguments) as (given, store, say):
        plan, mushrooms = QUICK if given.quick else FULL, Mushrooms(given.data, given.stand_in)
        if given.figure in (1, None):
            _mushrooms(TrackingLab(store, plan.mushrooms, mushrooms), UsableLab(store, plan.usable, mushrooms), say)
        for number, which in IMAGES.items():
            if given.figure in (number, None):
                pictures = Pictures(which, given.data, given.stand_in, plan.network.tested)
                _network(NetworkLab(store, plan.network, pictures), say)


def _mushrooms(lab: TrackingLab, usable: UsableLab, say: Say) -> None:
    for l2 in lab.plan.l2:
        ends = {model: at_end(lab.endless(l2), model) for model in MODELS}
        say(f"l2 {l2:g}: tracking errors at the end {ends}, steps { {name: lab.chosen(name, l2) for name in RIVALS} }")
    for kind in USABLE:
        say(f"{kind}: accuracy {findings.own(usable.found(kind), 'averaged', 'accuracy')}")
    for l2 in lab.plan.table_l2:
        for level in lab.plan.levels:
            say(f"Table I, l2 {l2:g}, x{level:g}: {lab.iterations(l2, level)}")


def _network(lab: NetworkLab, say: Say) -> None:
    found = {f"Algorithm 1, {model}": lab.endless(model) for model in MODELS}
    found |= {title: lab.rival(name) for name, title in RIVALS.items()}
    if lab.pictures.which == "mnist":
        for level in lab.plan.levels:
            found |= {f"x{level:g}, {model}": lab.table(level, model) for model in MODELS}
        for level in (0.0, *lab.plan.levels):
            attacked = lab.attack(level)
            say(f"DLG, x{level:g}: {attacked and attacked['error']}")
    for title, each in found.items():
        if each is not None:
            say(f"{lab.pictures.name}, {title}: test accuracy {findings.tested(each)}, {each['seconds']:.0f} s")


if __name__ == "__main__":
    main()
