"""What is imported when: `gossamer --version` and `--help` need not wait, and nobody who imports notices."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

import gossamer
from gossamer.cli import app
from gossamer.cli.commands import COMMANDS, imported

HEAVY = {"jax", "numpy", "scipy", "networkx", "pandas", "plotly", "cryptography", "dp_accounting"}


def modules_after(program: str) -> set[str]:
    """The top-level modules that a new interpreter has loaded at the end of a program."""
    ended = f"import sys\ntry:\n    {program}\nexcept SystemExit:\n    pass\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", ended], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_neither_version_nor_help_loads_what_computes(option: str) -> None:
    loaded = modules_after(f"sys.argv = ['gossamer', '{option}']; from gossamer.cli import main; main()")
    assert "gossamer" in loaded
    assert not loaded & HEAVY


def test_importing_the_package_loads_what_is_used() -> None:
    assert not modules_after("from gossamer import ConfigurationError") & HEAVY
    assert "jax" in modules_after("from gossamer import algorithms")


def test_everything_public_is_there() -> None:
    names: dict[str, Any] = {}
    exec("from gossamer import *", names)
    assert set(gossamer.__all__) <= set(names)
    assert set(gossamer.__all__) <= set(dir(gossamer))
    assert names["Budget"] is gossamer.privacy.Budget
    assert (names["Block"], names["Every"]) == (gossamer.problems.Block, gossamer.core.Every)
    with pytest.raises(AttributeError, match="no attribute 'Budgets'"):
        _ = gossamer.Budgets
    with pytest.raises(ImportError):
        exec("from gossamer.cli import nothing")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    command = imported(name)
    assert COMMANDS[name].line == inspect.cleandoc(command.help).splitlines()[0].replace("\\[", "[")


def every_command(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, (*path, name))


ALL = dict(found for name in COMMANDS for found in every_command(imported(name), (name,)))


def shown(*path: str) -> str:
    """The help of a command, without the frame, in one line."""
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "400"})
    assert result.exit_code == 0, result.output
    return " ".join(re.sub("[│╭╮╰╯─]", " ", result.stdout).split())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_shows_every_text_whole(path: tuple[str, ...]) -> None:
    """Brackets too: [problem] is no markup."""
    command, text = ALL[path], shown(*path)
    source = command.callback and inspect.getdoc(command.callback)
    for wanted in [source or command.help, *(each.help for each in command.params if each.help)]:
        assert " ".join(wanted.replace("\\[", "[").split()) in text


def test_brackets_are_shown() -> None:
    assert "A TOML file with [problem], [topology] and [algorithm]." in shown("network", "try")
    assert "With [data] in the file" in shown("network", "try")


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_no_option_says_no_twice(path: tuple[str, ...]) -> None:
    for parameter in ALL[path].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert "no-no-" not in option
