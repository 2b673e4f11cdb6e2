"""Write docs/api.md and docs/api/ from the docstrings: `python docs/api.py`. The same source gives the same pages."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

MODULES = ("algorithms", "algorithms.authoring", "problems", "sets", "topology", "streams", "data", "simulation")
MODULES += (
    "metrics",
    "model",
    "reports",
    "privacy",
    "privacy.accounting",
    "mechanisms",
    "auditing",
    "net",
    "spec",
    "core",
)
MODULES += ("experiments", "experiments.measures", "errors")
MADE = "Made from the docstrings by `python docs/api.py`; do not edit."


def pages() -> dict[str, str]:
    """All pages of the reference, by their paths in docs/."""
    return {"api.md": index()} | {f"api/{module}.md": page(f"gossamer.{module}") for module in MODULES}


def index() -> str:
    """One line for each package, and where the names at the top are described."""
    lines = ["| package | what is in it |", "| --- | --- |"]
    for module in MODULES:
        said = (importlib.import_module(f"gossamer.{module}").__doc__ or "").splitlines()[0]
        lines.append(f"| [`gossamer.{module}`](api/{module}.md) | {said} |")
    top = importlib.import_module("gossamer")
    named = [name for name in top.__all__ if not inspect.ismodule(getattr(top, name))]
    found = ", ".join(f"[`{name}`](api/{home_of(getattr(top, name))}.md#{name.lower()})" for name in named)
    head = ["# API reference", f"One page for each package. {MADE}", "\n".join(lines)]
    return "\n\n".join([*head, f"`from gossamer import ...` also finds what most programs need: {found}."]) + "\n"


def home_of(thing: Any) -> str:
    """The page that describes something."""
    return str(thing.__module__.split(".")[1])


def page(name: str) -> str:
    """A module's own text, and that of everything it exports."""
    module = importlib.import_module(name)
    parts = [f"# {name}", f"[All packages](../api.md). {MADE}", prose(module)]
    for export in sorted(getattr(module, "__all__", None) or own_names(module), key=str.lower):
        thing = getattr(module, export)
        if not getattr(thing, "__module__", "").startswith("gossamer"):
            continue
        if inspect.isclass(thing) or inspect.isfunction(thing):
            kind = "class" if inspect.isclass(thing) else "def"
            parts += [f"## {export}", f"```python\n{kind} {signature(export, thing)}\n```", prose(thing)]
            parts += members(thing) if inspect.isclass(thing) else []
    return "\n\n".join(parts) + "\n"


def own_names(module: Any) -> list[str]:
    """The public classes and functions that a module without `__all__` defines."""
    public = (key for key in vars(module) if not key.startswith("_"))
    return [key for key in public if getattr(getattr(module, key), "__module__", "") == module.__name__]


def signature(name: str, thing: Any) -> str:
    """How it is called, without the quotes of postponed annotations."""
    try:
        text = str(inspect.signature(thing))
    except ValueError:  # an exception that takes whatever its built-in parent takes
        text = "(*args)"
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = name + re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text).removesuffix(" -> None")
    if len(text) < 100:
        return text
    return re.sub(r", (?=\*(?:,|\w)|\w+: )", ",\n    ", text.replace("(", "(\n    ", 1))  # one parameter a line


def members(cls: type) -> list[str]:
    """One line for every public method and property that the class itself defines."""
    lines = []
    for name, member in sorted(vars(cls).items()):
        thing = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(thing) and not name.startswith("_") and thing.__doc__:
            call = name if isinstance(member, property) else signature(name, thing)
            lines.append(f"- `{call}`: {inspect.cleandoc(thing.__doc__).splitlines()[0]}")
    return ["**Members**", "\n".join(lines)] if lines else []


def prose(thing: Any) -> str:
    """The docstring as Markdown: examples fenced, arguments and attributes as lists."""
    text = inspect.getdoc(thing) or ""
    text = re.sub(r"(?ms)^>>> .*?(?=\n\n|\Z)", lambda match: f"```python\n{match[0]}\n```", text)
    text = re.sub(r"(?m)^(Args|Attributes|Returns):$", r"**\1**\n", text)
    text = re.sub(r"(?m)^    (\w+): ", r"- `\1`: ", text)
    text = re.sub(r"(?m)^ {8}(?! )", "  ", text)
    return re.sub(r"(?m)^ {4}(?=[A-Z])", "", text)


if __name__ == "__main__":
    here = Path(__file__).parent
    for old in here.glob("api/*.md"):
        old.unlink()
    (here / "api").mkdir(exist_ok=True)
    for path, text in pages().items():
        (here / path).write_text(text, encoding="utf-8")
