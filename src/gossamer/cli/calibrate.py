"""`gossamer calibrate`: what noise an algorithm needs for a budget, tight against published side by side."""

import inspect
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer
from rich.console import Console

from gossamer.algorithms import REGISTRY, Entry
from gossamer.cli import doubts
from gossamer.cli.kinds import setting
from gossamer.cli.show import say, show, warn
from gossamer.core import Algorithm
from gossamer.core.spec import LISTED, SETTLED
from gossamer.errors import ConfigurationError, GossamerError
from gossamer.privacy import OBSERVERS, Budget
from gossamer.privacy.guarantee import rounded_up
from gossamer.reports import Table
from gossamer.spec import Nothing, Section, keys_of

SOME = {"horizon": 1000}
"""To find out whether a horizon is all that is missing."""


def calibrate(
    algorithm: Annotated[str, typer.Argument(help="An algorithm with a budget: see `gossamer algorithms`.")],
    epsilon: Annotated[float, typer.Option(help="Epsilon for the whole horizon.")],
    delta: Annotated[float, typer.Option(help="Delta for the whole horizon.")] = 0.0,
    clip: Annotated[float, typer.Option(help="The Euclidean norm that gradients are clipped to.")] = 1.0,
    dim: Annotated[int, typer.Option(help="The length of a decision.")] = 10,
    learners: Annotated[int, typer.Option(help="How many learners, on a ring or around a server.")] = 10,
    horizon: Annotated[
        int | None, typer.Option(help="Steps per learner; where it is left out, endless. Some algorithms need it.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="Any other option, as KEY=VALUE; may be repeated.")] = None,
) -> None:
    """Show the noise that an algorithm needs for a budget.

    Its tightest noise and the published one stand side by side, each with the guarantee that it gives.
    """
    entry = Section("calibrate", {"algorithm": algorithm}).pick("algorithm", REGISTRY, elsewhere=LISTED)
    kinds = calibrations(entry)
    budget = Budget(epsilon, delta)
    settings: dict[str, Any] = {"budget": budget, "clip": clip, "horizon": horizon}
    _require_all(entry, settings, option or ())
    build = partial(_build, entry, dim, learners, option or ())
    built = {kind: build(settings, kind) for kind in kinds}
    made = {kind: result for kind, result in built.items() if isinstance(result, Algorithm)}
    if not made:
        if horizon is None and isinstance(build(settings | SOME, kinds[0]), Algorithm):
            hint = f"give --horizon: {algorithm} does not run endlessly with these options"
            raise ConfigurationError("--horizon", Nothing(), "a whole number of steps", hint)
        raise next(error for error in built.values() if isinstance(error, GossamerError))
    console = Console()
    first = next(iter(made.values()))
    warn(*doubts.about_privacy(first.guarantee))
    say(console, f"{algorithm} on {first.topology.name}, {dim} dimensions, {budget}")
    show(console, comparison(made), words=True)
    for kind, result in built.items():
        say(console, f"{kind}: " + (result.guarantee.explain() if isinstance(result, Algorithm) else str(result)))


def calibrations(entry: Entry) -> Sequence[str]:
    """The calibrations that an algorithm knows; refused where it takes no budget.

    >>> calibrations(REGISTRY["pd_ogd"])
    ('tight', 'published')
    """
    if not _takes_budget(entry):
        private = [name for name, each in REGISTRY.items() if _takes_budget(each)]
        raise ConfigurationError("calibrate algorithm", entry.make.__name__, f"one with a budget: {', '.join(private)}")
    return get_args(get_type_hints(entry.make).get("calibration", Literal["tight"]))


def _takes_budget(entry: Entry) -> bool:
    return "budget" in inspect.signature(entry.make).parameters


def _require_all(entry: Entry, settings: Mapping[str, Any], options: Sequence[str]) -> None:
    """Refuse where one of the other options has no default and was left out, and say how it is given here."""
    given = {*settings, *SETTLED, *dict(map(_parse, options))}
    for name, key in keys_of(entry.make).items():
        if key.required and name not in given:
            hint = f"give --option {name}=VALUE"
            raise ConfigurationError(f"--option {name}", Nothing(), key.reader.allowed, hint)


def comparison(algorithms: dict[str, Algorithm]) -> Table:
    """One column per calibration: scales, settings, and what they guarantee.

    >>> from gossamer import algorithms, problems, topology
    >>> options = {"budget": Budget(1.0), "clip": 1.0, "step": 0.1, "horizon": 100}
    >>> makes = {k: algorithms.pd_ogd(problems.Linear(4), topology.ring(3), calibration=k, **options)
    ...          for k in ("tight", "published")}
    >>> comparison(makes).rows[0]
    ('noise on gradient (laplace)', '4', '400')
    """
    promises = [algorithm.guarantee for algorithm in algorithms.values()]
    rows = [
        ("epsilon", *(rounded_up(promise.epsilon) for promise in promises)),
        ("delta", *(rounded_up(promise.delta) for promise in promises)),
        ("basis", *(promise.basis for promise in promises)),
        ("unit", *(str(promise.unit) for promise in promises)),
        ("observer", *(f"{promise.observer}: {OBSERVERS[promise.observer]}" for promise in promises)),
        ("horizon", *("endless" if p.horizon is None else f"{p.horizon:,} steps" for p in promises)),
    ]
    return Table(("", *algorithms), (*_scales(algorithms), *_settings(algorithms), *rows))


def _scales(algorithms: dict[str, Algorithm]) -> list[tuple[str, ...]]:
    """A row for every draw that all of them make."""
    each = [algorithm.scales for algorithm in algorithms.values()]
    first = next(iter(algorithms.values()))
    specs = {**first.learner.noise, **(first.server.noise if first.server else {})}
    common = [name for name in each[0] if all(name in scales for scales in each)]
    return [
        (f"noise on {name} ({specs[name].law})", *(f"{scales[name][0].value:.4g}" for scales in each))
        for name in common
    ]


def _settings(algorithms: dict[str, Algorithm]) -> list[tuple[str, ...]]:
    """A row for every parameter that all of them have."""
    each = [algorithm.parameters for algorithm in algorithms.values()]
    return [(name, *(str(one[name]) for one in each)) for name in each[0] if all(name in one for one in each)]


def _build(
    entry: Entry, dim: int, learners: int, options: Sequence[str], settings: Mapping[str, Any], kind: str
) -> Algorithm | GossamerError:
    """The algorithm, or the reason why this calibration is refused."""
    problem, network = setting(entry, dim, learners)
    section = Section("calibrate --option", dict(map(_parse, options)))
    ours = {"problem": problem, "topology": network, "learners": network}
    supplied = {**settings, **ours, "calibration": kind}
    section.expect([entry.make], supplied=list(supplied), by="another option")
    try:
        built: Algorithm = section.call(entry.make, supplied)
        return built
    except GossamerError as refused:
        return refused


def _parse(option: str) -> tuple[str, Any]:
    """KEY=VALUE; a value that is not TOML is text.

    >>> _parse("noise=gaussian"), _parse("step=0.1")
    (('noise', 'gaussian'), ('step', 0.1))
    """
    key, equals, value = option.partition("=")
    if not equals or not key:
        raise ConfigurationError("--option", option, "KEY=VALUE", "try --option noise=gaussian")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
