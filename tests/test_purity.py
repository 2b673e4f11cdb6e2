"""What the import linter cannot see of purity: functions of the language and of NumPy that read, write or print.

Its contract in pyproject.toml names the packages, and the modules that none of them imports.
"""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
PURE = next(one["source_modules"] for one in CONTRACTS if one["type"] == "forbidden")
IMPURE = {"open", "print", "input", "breakpoint", "exec", "eval", "__import__"}
OF_NUMPY = {"load", "save", "savez", "savez_compressed", "savetxt", "loadtxt", "genfromtxt", "fromfile", "memmap"}
METHODS = {"tofile", "dump", "read_text", "read_bytes", "write_text", "write_bytes"}


def impure(source):
    """The calls in a program that are none of a pure one."""
    called = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = [one.id for one in called if isinstance(one, ast.Name)]
    attributes = [(ast.unparse(one.value), one.attr) for one in called if isinstance(one, ast.Attribute)]
    of_numpy = [name for owner, name in attributes if owner in ("np", "jnp", "numpy") and name in OF_NUMPY]
    return [name for name in names if name in IMPURE] + of_numpy + [name for _, name in attributes if name in METHODS]


@pytest.mark.parametrize("package", PURE)
def test_packages_of_mathematics_call_nothing_that_reads_writes_or_prints(package):
    files = list((ROOT / "src" / package.replace(".", "/")).rglob("*.py"))
    assert files
    assert {file.name: found for file in files if (found := impure(file.read_text()))} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [("open('x')", ["open"]), ("np.load(x)", ["load"]), ("file.read_text()", ["read_text"]), ("json.dumps(x)", [])],
)
def test_such_calls_are_seen(source, found):
    assert impure(source) == found
