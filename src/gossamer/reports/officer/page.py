"""The page: two sheets of paper, readable by people who have never heard of us."""

from __future__ import annotations

import hashlib
import inspect
import platform
import re
import shlex
import sys
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import gossamer
from gossamer.errors import ConfigurationError
from gossamer.files import private_file
from gossamer.net.node.spending import added_up
from gossamer.net.registry import Known
from gossamer.privacy.guarantee import rounded_up
from gossamer.privacy.meaning import best_guess, in_hundred
from gossamer.reports.blocks import caption, heading, html_page, inline, paragraph, table_block
from gossamer.reports.officer import pictures, words
from gossamer.reports.officer.facts import Agreed, Facts
from gossamer.reports.officer.words import day, printable
from gossamer.reports.summary import Table

WHEN = {"public": "everybody may know", "hidden": "nobody outside the site may know"}
_MOST, _LONGEST = 8, 400  # rows of a list that may be long, of members, columns, runs; characters of options

STYLE = """
.facts th { width: 11rem; color: var(--ink); border-bottom-width: 1px; vertical-align: top; }
.facts td, .facts th { white-space: normal; }
.bad { color: var(--bad); font-weight: 600; } .open { color: var(--open); font-weight: 600; }
.good { color: var(--good); font-weight: 600; }
.drawings { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); gap: .6rem 1.6rem; }
.rests table { width: 100%; } .rests td { width: 33%; overflow-wrap: anywhere; } .rests td:first-child { width: 40%; }
.long { overflow-wrap: anywhere; }
@page { size: A4; margin: 11mm 12mm; }
@media print {
  body { font-size: 8.6pt; line-height: 1.34; } h1 { font-size: 15pt; margin-bottom: .3rem; }
  h2 { font-size: 10.5pt; margin: .55rem 0 .2rem; padding-bottom: .1rem; } p { max-width: none; margin: .15rem 0; }
  table { font-size: 8pt; } th, td, .facts th { padding: .1rem .35rem; } .scroll { margin: .15rem 0; }
  .facts th { width: 8.4rem; } .drawings { grid-template-columns: 1fr 1fr 1fr; } .drawn { break-inside: avoid; }
  .drawn svg { max-height: 37mm; } .drawn figcaption { font-size: 7.6pt; } .caption { font-size: 7.4pt; }
  pre { padding: .2rem .5rem; margin: .2rem 0; font-size: 7.4pt; } footer { margin-top: .4rem; font-size: 7.2pt; }
}
"""


def write(facts: Facts, out: Path) -> None:
    """Write the page to a file that is not there yet, for its owner to hand on."""
    if out.exists():
        raise ConfigurationError("--out", str(out), "a file that is not there yet")
    try:
        with private_file(out) as file:
            file.write(html(facts).encode())
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}"
        raise ConfigurationError("--out", str(out), "a file that can be written", hint) from None


def html(facts: Facts) -> str:
    """The page."""
    title = f"Privacy report: {_sources(facts)}"
    blocks = [heading(1, title), caption(_about(facts)), _summary(facts)]
    blocks += [*_meaning(facts), *_spending(facts), *_assumptions(facts), *_checks(facts)]
    blocks += [*_configuration(facts), *_glossary(), _footer()]
    return html_page(title, "\n".join(blocks), STYLE + pictures.STYLE)


def _sources(facts: Facts) -> str:
    """What its data were called; several where they were changed."""
    return ", ".join(map(printable, facts.sources))


def _about(facts: Facts) -> str:
    site, network = printable(facts.site), facts.identity.network[:12]
    return (
        f"About the data that the site “{site}” calls “{_sources(facts)}”, in network {network}. "
        f"The ledger was last written on {day(facts.last.time)}, and this page on {day(int(time.time()))}."
    )


def _facts(rows: list[tuple[str, str]]) -> str:
    """Pairs of a question and an answer, which is HTML already."""
    cells = "".join(f'<tr><th scope="row">{inline(ask)}</th><td>{answer}</td></tr>\n' for ask, answer in rows)
    return f'<div class="scroll" tabindex="0"><table class="facts"><tbody>{cells}</tbody></table></div>'


def _summary(facts: Facts) -> str:
    promise = facts.promise
    basis = words.BASES[promise.basis]
    rows = [("Who is protected", inline(words.whom(promise))), ("From whom", inline(words.against(promise)))]
    if facts.times > 1:
        said = f"Its data were changed: a record may have been used {facts.times} times. All amounts here count that."
        rows.append(("Used again", inline(said)))
    if promise.losses:
        rows.append(("How much at most", inline(f"{words.cost(*added_up([facts.promised]))}, explained below.")))
        rows.append(("Spent so far", inline(f"{words.cost(*added_up([facts.spent]))}. {words.growth_in_words(facts)}")))
        if facts.others:
            rows.append(("With other networks", inline(_together(facts))))
    rows.append(
        ("Why to believe it", f'<span class="{_tone(facts)}">{inline(basis)}</span> {inline(_confirmed(facts))}')
    )
    rows.append(("In the program's words", inline(printable(promise.sentence()))))
    return _facts(rows)


def _tone(facts: Facts) -> str:
    """Green only where this report has made sure of it itself."""
    if facts.promise.basis != "proven":
        return "bad"
    return "good" if facts.agreed and facts.agreed.confirmed and facts.promise.checked else "open"


def _confirmed(facts: Facts) -> str:
    if facts.agreed is None:
        return "So says the ledger; without the node's directory nothing was computed again."
    if facts.agreed.confirmed:
        return "For this report the guarantee was computed again from the signed agreement: it is the same."
    return "It could not be confirmed from the agreement with this version of the program."


def _meaning(facts: Facts) -> list[str]:
    blocks = [heading(2, "What the numbers mean")]
    if not facts.promise.losses:
        return [
            *blocks,
            paragraph("Nothing is bounded: whoever sees the messages may learn everything about a record."),
        ]
    epsilon, delta = added_up([facts.promised])
    said = (words.epsilon_in_words(epsilon), words.delta_in_words(delta), words.guess_in_words(epsilon, delta))
    drawn = [pictures.belief(epsilon, delta), pictures.trade_off(epsilon, delta)]
    if facts.growth:
        drawn.append(pictures.growth(facts.growth, facts.last.exchange, epsilon))
    several = "; ".join(f"{count} records {cost}" for count, cost in words.several_records(facts))
    more = f"A person may have several records. All of them together: {several}." if several else ""
    first = "In the first picture the attack finds at least 1 in 100 of the records that were there."
    return [
        *blocks,
        *map(paragraph, said),
        f'<div class="drawings">{"".join(drawn)}</div>',
        paragraph(f"{first} {more}"),
    ]


def _spending(facts: Facts) -> list[str]:
    blocks = [heading(2, "All runs over these data")]
    if facts.registry is None:
        text = (
            "No registry on this machine knows this run: other networks that read the same data are not counted here."
        )
        return [*blocks, f'<p class="bad">{text}</p>']
    if not facts.others:
        return [*blocks, paragraph("The registry of this machine knows no other run over these data.")]
    own = (_sources(facts), facts.identity.network[:12], "this report")
    rows: list[tuple[str, ...]] = [(*own, *_amount([facts.spent]))]
    rows += [_other(one) for one in facts.others[:_MOST]]
    if len(facts.others) > _MOST:
        rows.append((f"and {len(facts.others) - _MOST} more, counted below", "", "", "", ""))
    blocks.append(table_block(Table(("source", "network", "where", "epsilon", "delta"), tuple(rows))))
    if not facts.comparable:
        return [*blocks, f'<p class="bad">{_together(facts)}</p>']
    how = (
        "Amounts are added as differential privacy allows for runs that go on at the same time and react to each other "
        "(concurrent composition): plain sums, or less where the kind of noise allows it. It grows with every further "
        "network over these data. Others' amounts are those of the registry, which is never below what was spent."
    )
    return [*blocks, f"<p><b>{inline(_together(facts))}</b> {inline(how)}</p>"]


def _together(facts: Facts) -> str:
    """What all runs over the data have cost, in a sentence."""
    if not facts.comparable:
        return "The runs over these data do not protect the same, or not from the same. So nothing can be added up."
    epsilon, delta = added_up(facts.together)
    spent = f"{len(facts.others) + 1} runs over these data have spent {words.cost(epsilon, delta)} together"
    return f"{spent}: with all of it a guess is right in at most {in_hundred(best_guess(epsilon, delta))} of 100."


def _other(known: Known) -> tuple[str, ...]:
    where = (known.directory if known.there else f"{known.directory} (gone)") if known.directory else "an export"
    return (printable(known.source), known.network[:12], printable(where), *_amount([known.cost]))


def _amount(costs: list[Any]) -> tuple[str, str]:
    epsilon, delta = added_up(costs)
    return rounded_up(epsilon), rounded_up(delta)


def _assumptions(facts: Facts) -> list[str]:
    promise = facts.promise
    rows = []
    for one in promise.assumptions:
        keeper = printable(one.enforced_by) or "NOTHING ENFORCES THIS"
        rows.append((printable(one.claim), keeper, code_of(one.enforced_by)))
    if promise.sampler_error:
        claim = f"noise is within {rounded_up(promise.sampler_error)} of its law (counted in delta)"
        rows.append((claim, "gossamer.privacy.lattice_sampler", code_of("gossamer.privacy.lattice_sampler")))
    if not rows:
        return []
    table = Table(("assumption", "enforced by", "file, SHA-256"), tuple(rows))
    note = f"The proof: {printable(promise.proof)} of this version. The last column is the file, and a digest of it."
    return [
        heading(2, "What the promise rests on, and which code enforces it"),
        f'<div class="rests">{table_block(table, {"NOTHING ENFORCES THIS": "bad"})}</div>',
        caption(note),
    ]


def code_of(name: str) -> str:
    """The file behind a name of this package, and a digest of it; nothing is imported: names may be anybody's words.

    >>> code_of("gossamer.errors.GossamerError: the root").split()[0]
    'gossamer/errors.py'
    >>> code_of("os.system"), code_of("gossamer")
    ('', '')
    """
    found = re.match(r"gossamer(\.\w+)+", name)
    parts = found.group().split(".") if found else []
    root = Path(gossamer.__file__).parent
    for length in range(len(parts), 1, -1):
        stem = root.joinpath(*parts[1:length])
        module = next((file for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.is_file()), None)
        if module is not None:
            file = _source(sys.modules.get(".".join(parts[:length])), parts[length:]) or module
            digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
            return f"{file.relative_to(root.parent).as_posix()} {digest}"
    return ""


def _source(module: Any, inside: list[str]) -> Path | None:
    """Where what a module has under these names is written, if that is a class or a function of this package."""
    thing = module
    for name in inside:
        thing = vars(thing).get(name) if hasattr(thing, "__dict__") else None
        if inspect.isclass(thing) or inspect.isfunction(thing):
            file = inspect.getsourcefile(thing)
            root = Path(gossamer.__file__).parent
            return Path(file) if file and Path(file).is_relative_to(root) else None
    return None


def _checks(facts: Facts) -> list[str]:
    last, own = facts.last, facts.identity
    good = "good" if facts.newest else "open"  # an old copy is intact too
    intact = f'<span class="{good}">intact</span>: {last.number:,} rows, each tied to the one before; '
    head = f'<code class="long">{escape(last.hash)}</code> Write it down, and keep it yourself: '
    head += "it shows later that nobody has put another ledger in the place of this one."
    rows = [
        ("Ledger", intact + inline(printable(facts.checks))),
        *([("Newer", inline(words.newer(facts)))] if facts.booked > last.exchange + 1 else []),
        ("Head", head),
        ("From, until", inline(f"{day(facts.first.time)} to {day(last.time)}, {last.exchange + 1:,} exchanges")),
        ("Noise key", inline(f"fingerprint {printable(own.key)}, configuration {printable(own.config)[:16]}")),
    ]
    told = "Check it yourself, at the site or with an exported copy. It prints the head, or what is wrong:"
    command = f"<pre>gossamer ledger verify {escape(shlex.quote(printable(facts.name)))}</pre>"
    return [heading(2, "What was checked"), _facts(rows), paragraph(told), command]


def _configuration(facts: Facts) -> list[str]:
    agreed, title = facts.agreed, heading(2, "What was agreed, and who signed it")
    if agreed is None:
        text = "Only the ledger was given. Who takes part, and what was signed, stands in the directory of the node."
        return [title, paragraph(text)]
    agreement = agreed.agreement
    pace, budget = agreement.pace, agreed.settings.budget
    limit = ", ".join(f"{name} {value:g}" for name, value in budget.items()) if budget else "none in node.toml"
    waits = f"an exchange every {pace.period:g} s at least, {pace.deadline:g} s of waiting for a site that is away"
    said = {
        "Algorithm": _computed(agreement.spec),
        "Pace": waits,
        "Records": _schema(agreed),
        "When records come": WHEN[agreement.arrivals],
        "Limit of the owner": limit,
        "Members": _members(agreed),
        "Signed by": _signed(agreed),
    }
    return [title, _facts([(ask, inline(answer)) for ask, answer in said.items()])]


def _computed(spec: Mapping[str, Any]) -> str:
    """Algorithm, model and network with their options, in a line."""
    parts = (dict(spec[part]) for part in ("algorithm", "problem", "topology") if isinstance(spec.get(part), Mapping))
    told = []
    for one in parts:
        name = one.pop("name", None) or one.pop("kind", "")
        told.append(f"{printable(str(name))} {_short(one)}" if one else printable(str(name)))
    text = "; ".join(told)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... (all of it in agreement.json)"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{printable(str(key))} {_short(one)}" for key, one in value.items()) + ")"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_short, value[:4])) + (", ..." if len(value) > 4 else "") + "]"
    return printable(str(value))[:60]


def _schema(agreed: Agreed) -> str:
    schema = agreed.agreement.schema
    if schema is None:
        return "numbers without names of columns"
    names = [one.name for one in schema.features]
    shown = ", ".join(map(printable, names[:_MOST])) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")
    return f"columns {shown}; predicted: {printable(schema.label.name)}"


def _members(agreed: Agreed) -> str:
    prints = agreed.members.fingerprints if agreed.members else {}
    names = [f"{printable(one.name)} ({prints.get(one.name, 'no keys so far')})" for one in agreed.agreement.members]
    return "; ".join(names[:_MOST]) + (f"; and {len(names) - _MOST} more" if len(names) > _MOST else "")


def _signed(agreed: Agreed) -> str:
    key = agreed.agreement.coordinator[:16]
    text = f"The agreement: the coordinator (key {key}). "
    if agreed.members is None:
        return text + "The members' keys: nobody so far."
    pinned = "and this site has accepted them" if agreed.accepted else "and this site has NOT accepted them"
    return (
        f"{text}Each member's keys: that member. The list of all keys: the coordinator, {pinned}; fingerprint of the "
        f"network {agreed.members.fingerprint}. All signatures were checked for this report."
    )


def _glossary() -> list[str]:
    said = "; ".join(f"<b>{inline(word)}</b>: {inline(meaning)}" for word, meaning in words.GLOSSARY)
    return [heading(2, "Words"), f'<p class="caption">{said}.</p>']


def _footer() -> str:
    return (
        f"<footer>Made by Gossamer {escape(gossamer.__version__)}, Python {escape(platform.python_version())}. "
        "This page holds no data, and loads nothing.</footer>"
    )
