"""docs/inside.md: the files that it names for a call are files that the call passes."""

import json
import re
from pathlib import Path

import pytest
from command_line import python

import sparsity
from sparsity import Alibi, Row

PACKAGE = Path(sparsity.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "inside.md").read_text("utf-8")
# In a process of its own: what another test has asked is kept, and not computed again.
WALK = """
import json, sys
from pathlib import Path
import jax.numpy  # before the walk, which would follow what it imports
import numpy as np
import sympy
import xarray
import sparsity
from sparsity import Alibi, Row

PACKAGE = Path(sparsity.__file__).parent
q, k = np.random.default_rng(0).normal(size=(2, 1, 2, 32, 8))
row = Row("softplus", beta=0.0, gamma=1.0, steps=(Alibi(0.1),))
CALLS = {
    "evaluate": lambda: sparsity.evaluate("softplus", beta=0.0, gamma=1.0),
    "exact": lambda: sparsity.exact(row, length=64),
    "estimate": lambda: sparsity.estimate("exp", gamma=1.3),
    "measure": lambda: sparsity.measure(queries=q, keys=k),
}
entered = set()  # the code of functions; which files they are of is asked at the end

def note(frame, event, arg):  # of a call alone: lines and returns are not asked for
    entered.add(frame.f_code)

def files():
    for code in entered:
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE) and code.co_name[0] != "<":
            yield path.relative_to(PACKAGE).as_posix()

passed = {}
for name, call in CALLS.items():
    entered.clear()
    sys.settrace(note)
    call()
    sys.settrace(None)
    passed[name] = sorted(set(files()))
print(json.dumps(passed))
"""
NAMES = ("evaluate", "exact", "estimate", "measure")


@pytest.fixture(scope="module")
def passed():
    """The files of the package whose functions each call enters."""
    return json.loads(python("-c", WALK).stdout)


def files_of(name):
    """The files that the section of a call names."""
    section = PAGE.split(f"## `{name}")[1].split("\n## ")[0]
    block = re.search(r"```text\n(.*?)```", section, re.DOTALL)
    assert block
    return [line.split()[0] for line in block[1].splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_way_of_a_call(name, passed):
    named = files_of(name)
    assert len(named) >= 8
    assert set(named) <= set(passed[name]), sorted(set(named) - set(passed[name]))
    assert "exact_law/maps/top_k.py" not in passed[name]  # the walk tells files apart


def test_every_package_is_on_the_map():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    drawn = set(re.findall(r"\b(\w+)/", PAGE.split("## `evaluate(")[0]))
    assert packages <= drawn | {"maps"}


def missing_names(text):
    """How many names such as `module.function` a text has, and those that no file defines."""
    named = set(re.findall(r"`((?:[a-z_]+\.)+(?:[A-Z]\w+\.)?)(\w+)`", text))
    missing = []
    for way, last in named:
        place = "/".join(x for x in way.split(".") if x.islower())
        files = [*PACKAGE.rglob(f"{place}.py"), *PACKAGE.rglob(f"{place}/__init__.py")]
        made = re.compile(rf"^\s*(?:(?:def|class) |self\.)?{last}\b\s*[:=(,]", re.MULTILINE)
        if not any(made.search(path.read_text("utf-8")) for path in files):
            missing.append(way + last)
    return len(named), missing


def test_what_is_named_is_there():
    files = set(re.findall(r"`(test_\w+\.py)`", PAGE))
    assert len(files) == 6
    assert all((Path(__file__).parent / name).exists() for name in files)
    text = re.sub(r"`\w+\.(?:py|md|toml)`", "", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
    count, missing = missing_names(text)
    assert count > 12
    assert missing == []
    assert missing_names("`reduce.sum_row`, `nodes.TAIL`")[1] == ["reduce.sum_row"]


def test_the_bound_of_the_example():
    """Its sum, and that the part which decides is the largest."""
    row = Row("softplus", beta=0.0, gamma=1.0, steps=(Alibi(0.1),))
    bound = float(sparsity.exact(row, length=64).error_bound)
    assert f"here {bound:.2e}:" in PAGE
