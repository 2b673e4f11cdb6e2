"""`gossamer audit`: every built-in attack on an algorithm or a mechanism, claim against measured bound."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from gossamer.algorithms import REGISTRY, Entry
from gossamer.auditing import ATTACKS, MECHANISMS, ONE_RUN, Attack, Audit, ManyRuns, Method
from gossamer.cli.kinds import setting
from gossamer.cli.out import report_directory
from gossamer.cli.show import say, show
from gossamer.core.spec import LISTED
from gossamer.privacy import Guarantee
from gossamer.reports import Report, Table
from gossamer.spec import Section


class Finding(NamedTuple):
    """An attack that was carried out: the noise it was against, the exact loss of its pair, and what was measured."""

    attack: Attack
    noise: str
    supremum: float | None
    audit: Audit


def audit_command(
    algorithm: Annotated[str, typer.Argument(help="An algorithm (see `gossamer algorithms`) or a mechanism.")],
    seed: Annotated[int, typer.Option(help="Seed of the noise.")],
    runs: Annotated[int | None, typer.Option(help="Runs on each of two inputs; by default each attack's own.")] = None,
    method: Annotated[Method, typer.Option(help="Many runs on two inputs, or one with many canaries.")] = "many-runs",
    confidence: Annotated[float, typer.Option(help="Confidence of the measured bounds.")] = 0.95,
    out: Annotated[Path | None, typer.Option(help="Write the table into an HTML report in this directory too.")] = None,
) -> None:
    """Attack the guarantee of an algorithm.

    Exit status 1: a proven guarantee is contradicted, at 99.9 % confidence.
    """
    Section("audit", {"algorithm": algorithm}).pick("algorithm", {**REGISTRY, **MECHANISMS}, elsewhere=LISTED)
    built_in = {**ATTACKS, **MECHANISMS} if method == "many-runs" else ONE_RUN
    console, attacks = Console(), built_in.get(algorithm, ())
    if algorithm in REGISTRY:
        say(console, f"{algorithm}: {REGISTRY[algorithm].summary}")
        promise = guarantee_of(REGISTRY[algorithm])
        if promise.basis == "none":
            say(console, f"{promise.sentence()} There is nothing to audit.")
            return
    else:
        say(console, f"{algorithm}: a mechanism alone, all of whose releases are seen")
    if not attacks:
        say(
            console, f"No attack on it by {method.replace('-', ' ')} is built in: docs/audits.md says how to write one."
        )
        return
    if out is not None:
        report_directory(out)
    findings = [carry_out(attack, runs, seed, confidence) for attack in attacks]
    show(console, table(findings), words=True)
    say(console, explanation(findings))
    if out is not None:
        command = f"gossamer audit {algorithm} --seed {seed} --method {method}"
        say(console, f"Report: {report(algorithm, findings, command).write(out / 'report.html')}")
    if any(finding.audit.refutes for finding in findings):
        raise typer.Exit(1)


def guarantee_of(entry: Entry) -> Guarantee:
    """The guarantee of a small instance."""
    return entry.make(*setting(entry, dim=2, learners=4), **entry.example).guarantee


def carry_out(attack: Attack, runs: int | None, seed: int, confidence: float) -> Finding:
    """Run one attack, and say so where somebody waits at a terminal."""
    with Console(stderr=True).status(f"{attack.name} ..."):
        case = attack.make()
        found = case.audit(runs=attack.runs if runs is None else runs, seed=seed, confidence=confidence)
    return Finding(attack, case.noise, case.supremum, found)


def table(findings: list[Finding]) -> Table:
    """One line per attack."""
    columns = ("attack", "observer", "noise", "claim", "exact", "bound", "verdict")
    return Table(columns, tuple(map(_row, findings)))


def _row(finding: Finding) -> tuple[str, ...]:
    found = finding.audit
    claim = f"{found.claimed:.4g}" + (f", {found.delta:g}" if found.delta else "")
    exact = "-" if finding.supremum is None else f"{finding.supremum:.3f}"
    return (
        finding.attack.name,
        found.observer or "all",
        finding.noise,
        claim,
        exact,
        f"{found.epsilon:.3f}",
        verdict(found),
    )


VERDICTS = {
    "below claim": "A bound below the claim proves nothing: another attack may do better.",
    "unclear": "unclear: above the claim, but not with 99.9% confidence.",
    "caught": "caught: with 99.9% confidence above a claim that is not proven, or not made against this observer.",
    "CONTRADICTED": "CONTRADICTED: with 99.9% confidence a proven guarantee does not hold. Proof or code is wrong.",
}


def verdict(found: Audit) -> str:
    """What the bound says about the claim, in one or two words."""
    if found.contradicts:
        return "CONTRADICTED" if found.refutes else "caught"
    return "unclear" if found.epsilon > found.claimed else "below claim"


def report(algorithm: str, findings: list[Finding], command: str) -> Report:
    """The same as a page; built-in attacks run on samples that they make, so it is public."""
    title, story = f"Attacks on {algorithm}", "Each line is an attack on two inputs that differ in one unit."
    notes = (explanation(findings),)
    return Report(title, (story,), table=table(findings), notes=notes, command=command, public=True)


def explanation(findings: list[Finding]) -> str:
    """How to read the table."""
    sure = f"{100 * findings[0].audit.confidence:g}% confidence"
    head = (
        "claim: epsilon, and delta where there is one. exact: the epsilon of the two inputs that are compared. "
        f"bound: what {_span([finding.audit for finding in findings])}, with {sure}."
    )
    given = {verdict(finding.audit) for finding in findings}
    return " ".join([head, *(meaning for word, meaning in VERDICTS.items() if word in given)])


def _span(found: list[Audit]) -> str:
    runs = sorted({each.runs for each in found if isinstance(each, ManyRuns)})
    if not runs:
        return "one run proves"
    return (f"{runs[0]:,}" if len(runs) == 1 else f"{runs[0]:,} to {runs[-1]:,}") + " runs on each prove"
