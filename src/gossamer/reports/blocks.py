"""The blocks of all pages: texts, tables that scroll, figures side by side or one below the other, legends."""

import re
from collections.abc import Mapping, Sequence
from html import escape

from gossamer.reports.figures import Picture, Scale
from gossamer.reports.style import SCRIPT, STYLE
from gossamer.reports.summary import Table
from gossamer.simulation.plot import Stroke

NUMBER = re.compile(r"[-+]?[\d.,]*\d(e[-+]?\d+)?%?(\s±\s[\d.,e+-]+%?|\s\(one run\))?|[-+]?inf|-|")
WIDTHS = {140: "text", 34: "words", 16: "phrase"}  # classes of cells with more characters than that, which wrap
DASHES = {"solid": "solid", "dash": "dashed", "dot": "dotted"}  # of plotly, and of a page


def html_page(title: str, body: str, style: str = "") -> str:
    """A whole page in the style of all reports, and more style; with what draws, where there is something to draw.

    >>> html_page("A title", "<p>text</p>").startswith("<!doctype html>")
    True
    """
    library, script = "", ""
    if '<figure class="panel">' in body:
        from plotly.offline import get_plotlyjs

        library, script = f"<script>{get_plotlyjs()}</script>", f"<script>{SCRIPT}</script>"
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    look = f"<title>{escape(title)}</title><style>{STYLE}{style}</style>"
    start = f'<!doctype html>\n<html lang="en"><head>{head}{look}{library}</head>'
    return f"{start}\n<body>\n{body}\n{script}</body></html>\n"


def inline(text: str) -> str:
    """Text for a page; what stands between backticks is code.

    >>> inline("`a < b` & more")
    '<code>a &lt; b</code> &amp; more'
    """
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text))


def heading(level: int, text: str) -> str:
    """A heading.

    >>> heading(2, "Results")
    '<h2>Results</h2>'
    """
    return f"<h{level}>{inline(text)}</h{level}>"


def paragraph(text: str, about: str = "") -> str:
    """Text as a paragraph, after what it is about.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    >>> paragraph("no guarantee", "d_ogd")
    '<p><b>d_ogd:</b> no guarantee</p>'
    """
    return f"<p>{_lead(about)}{inline(text)}</p>"


def caption(text: str, about: str = "") -> str:
    """Text below a figure or a table, after what it is about.

    >>> caption("who is good")
    '<p class="caption">who is good</p>'
    """
    return f'<p class="caption">{_lead(about)}{inline(text)}</p>'


def table_block(table: Table, classes: Mapping[str, str] | None = None) -> str:
    """A table that scrolls where it is too wide: columns of numbers on the right, texts on the left.

    `classes`: of the style, by the text of the cell that gets it.

    >>> print(table_block(Table(("run", "loss"), (("mine", "0.31"),))))
    <div class="scroll" tabindex="0"><table><thead><tr><th>run</th><th class="number">loss</th></tr></thead>
    <tbody><tr><td>mine</td><td class="number">0.31</td></tr>
    </tbody></table></div>
    """
    numbers = [_numbers([row[place] for row in table.rows]) for place in range(len(table.columns))]
    known = classes or {}

    def cell(text: str, number: bool) -> str:
        wide = next((name for length, name in WIDTHS.items() if len(text) > length), "")
        kind = known.get(text) or ("number" if number else wide)
        lines = "<br>".join(map(inline, text.split("\n")))
        return f"<td{_class(kind)}>{lines}</td>"

    head = "".join(
        f"<th{_class('number' * number)}>{inline(column)}</th>"
        for column, number in zip(table.columns, numbers, strict=True)
    )
    rows = "".join(f"<tr>{''.join(map(cell, row, numbers))}</tr>\n" for row in table.rows)
    body = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{body}</div>'


def gallery(pictures: Sequence[Picture], *, small: bool = False) -> str:
    """Pictures side by side where there is room, with their titles; `small` ones three or four in a row."""
    figures = "\n".join(map(_figure, pictures))
    return f'<div class="panels{" small" * small}">\n{figures}\n</div>'


def legend(looks: Mapping[str, Stroke]) -> str:
    """Which line is which.

    >>> legend({"mine": Stroke("#3f7fd0", "dash")})
    '<p class="legend"><span><i style="border-top:3px dashed #3f7fd0"></i>mine</span></p>'
    """
    lines = [
        f'<span><i style="border-top:3px {DASHES[look.dash]} {look.colour}"></i>{inline(name)}</span>'
        for name, look in looks.items()
    ]
    return f'<p class="legend">{"".join(lines)}</p>'


def colours(scale: Scale) -> str:
    """Which colour is which value.

    >>> colours(Scale("accuracy", 0.0, 1.0, ("#f00", "#00f"), ("0%", "100%")))
    '<p class="scale">accuracy: 0%<i style="background:linear-gradient(to right,#f00,#00f)"></i>100%</p>'
    """
    low, high = scale.ends
    strip = f'<i style="background:linear-gradient(to right,{",".join(scale.colours)})"></i>'
    return f'<p class="scale">{inline(scale.meaning)}: {low}{strip}{high}</p>'


def _figure(picture: Picture) -> str:
    """The place of a figure and what to draw there; the page draws when all of it is there, and widths are known."""
    plot = str(picture.figure.to_json()).replace("<", "\\u003c")
    data = f'<script type="application/json">{plot}</script>'
    title = f"<figcaption>{inline(picture.title)}</figcaption>"
    return f'<figure class="panel">{title}<div class="plot"></div>{data}</figure>'


def _lead(about: str) -> str:
    return f"<b>{inline(about)}:</b> " if about else ""


def _numbers(cells: Sequence[str]) -> bool:
    return bool(cells) and all(NUMBER.fullmatch(cell.partition("\n")[0]) for cell in cells)


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
