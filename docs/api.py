"""Write docs/api.md from the docstrings: `python docs/api.py`. The same source always gives the same page."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

MODULES = ("", ".core", ".algorithms", ".problems", ".sets", ".topology", ".streams", ".data", ".metrics")
MODULES += (".privacy", ".privacy.accounting", ".mechanisms", ".simulation", ".auditing", ".reports", ".reproduction")
MODULES += (".net",)
MODULES += (".errors",)


def page() -> str:
    """The reference of every public module."""
    names = [f"gossamer{module}" for module in MODULES]
    contents = [f"- [`{name}`](#{name.replace('.', '')})" for name in names]
    head = ["# API reference", "Made from the docstrings by `python docs/api.py`; do not edit.", "\n".join(contents)]
    return "\n\n".join([*head, *(part for name in names for part in module_parts(name))]) + "\n"


def module_parts(name: str) -> list[str]:
    """A module's own text, and that of everything it exports and no other module on the page does."""
    module = importlib.import_module(name)
    parts = [f"## {name}", prose(module)]
    for export in sorted(getattr(module, "__all__", None) or own_names(module), key=str.lower):
        thing = getattr(module, export)
        if name == "gossamer" or not getattr(thing, "__module__", "").startswith("gossamer"):
            continue  # what the package exports is described where it lives
        if inspect.isclass(thing) or inspect.isfunction(thing):
            kind = "class" if inspect.isclass(thing) else "def"
            parts += [f"### {export}", f"```python\n{kind} {signature(export, thing)}\n```", prose(thing)]
            parts += members(thing) if inspect.isclass(thing) else []
    return parts


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
    Path(__file__).with_name("api.md").write_text(page(), encoding="utf-8")
