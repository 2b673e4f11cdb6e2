"""Runbooks are typed in a hurry: every command in them exists, with its options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gossamer.cli.commands import imported

ROOT = Path(__file__).parent.parent
PAGES = ("runbooks.md", "deploy.md", "take-home.md")


def commands(page: str) -> list[str]:
    """Lines of code, and code within sentences, that begin with the name of the program."""
    text = (ROOT / "docs" / page).read_text()
    found = re.findall(r"(?m)^ *(?:runuser -u gossamer -- \S*/)?(gossamer [a-z].*)$", text)
    return found + re.findall(r"`(gossamer [a-z][^`]*)`", text)


@pytest.mark.parametrize(("page", "line"), [(page, line) for page in PAGES for line in commands(page)])
def test_commands_of_operators_exist(page: str, line: str) -> None:
    name, *words = line.replace("...", "").split()[1:]
    command = imported(name)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands"):  # `gossamer node DIR`
        assert name == "node"
        assert not words or not words[0].islower() or "-" in words[0] or words[0] == "north", line
        command = command.commands["run"]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, line
    needed = [one for one in command.params if one.required and not one.opts[0].startswith("--")]
    given = [word for word in words if not word.startswith("-")]
    assert not words or len(given) >= len(needed), line  # a sentence may name a command by itself
