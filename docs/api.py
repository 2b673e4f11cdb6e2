"""Write docs/api.md and docs/api/ from the docstrings: `python docs/api.py`. The same source gives the same pages."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
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


class Written(str):
    """An annotation as the source has it."""

    def __repr__(self) -> str:
        return str(self)


def signature(name: str, thing: Any) -> str:
    """How it is called, with annotations as they are written."""
    try:
        call, annotations = inspect.signature(thing), written(thing)
    except ValueError:  # an exception that takes whatever its built-in parent takes
        return f"{name}(*args)"
    each = [one.replace(annotation=annotations.get(one.name, one.annotation)) for one in call.parameters.values()]
    text = f"{name}{call.replace(parameters=each, return_annotation=annotations.get('return', call.empty))}"
    text = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text))  # defaults
    text = text.removesuffix(" -> None")
    if len(text) < 100:
        return text
    return re.sub(r", (?=\*(?:,|\w)|\w+: )", ",\n    ", text.replace("(", "(\n    ", 1))  # one parameter a line


def written(thing: Any) -> dict[str, str]:
    """The annotations of a function's parameters and result, or of a class' fields, from the source."""
    if inspect.isclass(thing):
        found = {}
        for base in (base for base in reversed(thing.__mro__) if base.__module__.startswith("gossamer")):
            fields = (node for node in parsed(base).body if isinstance(node, ast.AnnAssign))
            found |= {ast.unparse(one.target): Written(ast.unparse(one.annotation)) for one in fields}
            found |= written(base.__init__) if inspect.isfunction(vars(base).get("__init__")) else {}
        return found
    try:
        node = parsed(thing)
    except OSError:  # made by `dataclass`
        return {}
    known = {each.arg: each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    return {key: Written(ast.unparse(one)) for key, one in (known | {"return": node.returns}).items() if one}


def parsed(thing: Any) -> Any:
    """The tree of a function or a class."""
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


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
