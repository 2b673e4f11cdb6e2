"""Tables in the terminal: they wrap, and are never cut."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from gossamer.reports import Table


def show(console: Console, table: Table, *, words: bool = False) -> None:
    """Print a table; its first column is left-aligned, the others too where they hold words.

    >>> show(Console(width=40), Table(("algorithm", "loss"), (("d_ogd", "0.31"),)))
    <BLANKLINE>
    algorithm  loss
    ───────────────
    d_ogd      0.31
    <BLANKLINE>
    """
    drawn = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for number, column in enumerate(table.columns):
        if number == 0 or words:
            drawn.add_column(Text(column), no_wrap=number == 0, overflow="fold")
        else:  # a heading word by word, so that eight columns fit into 80 characters
            drawn.add_column(Text(column.replace(" ", "\n")), justify="right", overflow="fold")
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    console.print(Padding(drawn, (1, 0)))


def warn(*lines: str) -> None:
    """Print each line as a warning on standard error."""
    console = Console(stderr=True)
    for line in lines:
        console.print(Text.assemble(("warning: ", "bold yellow"), line), soft_wrap=True, highlight=False)


def say(console: Console, text: str, style: str = "", *, whole: bool = False) -> None:
    """Print a text as it is: brackets are not markup, numbers are not coloured; `whole`: its lines are not broken.

    >>> say(Console(width=40), "[data] seed 7")
    [data] seed 7
    """
    console.print(Text(text, style=style), soft_wrap=whole)
