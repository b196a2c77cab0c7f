"""What a type checker says of a user's script."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import sparsity
from sparsity import design_search, quantities
from sparsity.design_search.free_numbers import NAMES
from sparsity.kernels import parameters
from sparsity.plots import requests
from sparsity.plots.axes.controls import CONTROLS

STUB = Path(sparsity.__file__).with_suffix(".pyi")


def test_the_stub_names_what_the_package_has():
    tree = ast.parse(STUB.read_text())
    imports = [each for each in tree.body if isinstance(each, ast.ImportFrom)]
    listed = next(x.value for x in tree.body if isinstance(x, ast.Assign))
    assert {*ast.literal_eval(listed)} == {*sparsity.__all__}
    for each in imports:  # each is the thing that the package gives under its name
        for name in each.names:
            scope: dict = {}
            exec(ast.unparse(each), scope)
            assert scope[name.asname] is getattr(sparsity, name.asname)


SCRIPT = """\
import numpy as np
import sparsity
from sparsity import Alibi, InputError, Row, Temperature, Window

row = Row("exp", gamma=2.0, steps=(Alibi(0.01), Temperature.llama4()))
tokens = Row("exp", gamma=np.linspace(0.5, 2, 8), beta=[0.5] * 8)
laws = sparsity.exact(row, length=[64, 1024], of="entropy")
one: float = sparsity.exact("exp", gamma=np.float32(2), length="128k").value
limit = sparsity.evaluate("relu2", gamma=np.linspace(0.5, 2, 4))
mine = sparsity.score_kernel("mine", "log(1 + exp(s))")
drawn = sparsity.estimate(mine, gamma=1.3, rel_error=0.01, steps=(Window(4),), length=64)
print(laws.value[0], laws.error.max(), limit.S.shape, float(drawn), drawn.ci95, tokens, one)
wanted = sparsity.design("exp", length=4096, n_eff=8)
other = sparsity.design(row, length=64, of="top_k_mass:8", value=0.5, free="slope")
grid = sparsity.sweep("exp", gamma="1:2:5:log", length=64, of=["n_eff", "entropy"])
sparsity.plot("exp", gamma=[1, 2], montecarlo=True).figure.savefig("focus.png")
sparsity.plot(row, x="slope", slope="0.001:1:9:log", length=512, yscale="log")
q = np.random.default_rng(0).normal(size=(4, 64, 16))
data = sparsity.measure(queries=q, keys=q)
print(data["n_eff"].mean(), wanted.to_dataframe(), sparsity.derive("exp").latex(), other)
with sparsity.monitoring.Watch(object()) as watch:
    logged: dict[str, float] = watch.log()
try:
    sparsity.verify("exp", gamma=1, length=64, seed=1)
except InputError as error:
    print(error.argument, error.fix, sparsity.n_eff(np.ones(4)))
"""
WRONG = """\
sparsity.exactt("exp")
sparsity.exact("exp", gama=2, length=64)
sparsity.exact("exp", gamma=[1, 2], length=64)
sparsity.exact(lambda s: s, gamma=2, length=64)
sparsity.evaluate("exp", gamma=2, steps=Window(4))
sparsity.estimate("exp", gamma=1, rel_error="a")
sparsity.estimate("exp", gamma=2, samples=100)
sparsity.design("exp", length=64, neff=8)
sparsity.plot("exp", gamma=2, save="a.png")
sparsity.sweep("exp", gammas=[1, 2])
sparsity.verify("exp", gamma=2, n=64)
sparsity.measure(querys=q, keys=q)
sparsity.explore(gama=2)
Row("exp", gama=2)
Temperature(0.5)
Alibi(slop=0.1)
laws.valeu
watch.logs()
"""


def test_a_type_checker_knows_every_parameter():
    every = {p.name for p in (*parameters.ALL, *parameters.OF_MAPS)}
    assert {*parameters.Parameters.__annotations__} == every - {"length"}
    aims = {q.name for q in (*quantities.ALL, *quantities.OF_MAPS) if q.has_law}
    assert {*design_search._Aims.__annotations__} == (aims - {"n_eff"}) | {
        *("beta", "gamma", "within")
    }
    # The threshold is a number of the quantity, and no axis of rows.
    on_axes = {name for name in (*CONTROLS, *NAMES) if name.isidentifier()} - {"threshold"}
    assert {*get_type_hints(requests.OnAxes)} == on_axes | every


def mypy(script):
    """The lines of which mypy --strict says an error."""
    words = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(script.parent),
        script.name,
    ]
    said = subprocess.run(words, capture_output=True, text=True, check=False, cwd=script.parent)
    assert said.returncode in (0, 1), said.stderr
    return [int(line) for line in re.findall(r"^\S+?:(\d+): error", said.stdout, re.MULTILINE)]


def pyright(script):
    """The lines of which pyright says an error."""
    words = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    said = subprocess.run([*words, str(script)], capture_output=True, text=True, check=False)
    found = json.loads(said.stdout)["generalDiagnostics"]
    return [x["range"]["start"]["line"] + 1 for x in found if x["severity"] == "error"]


@pytest.mark.thorough
@pytest.mark.parametrize("checker", [pytest.param(mypy, marks=pytest.mark.slow), pyright])
def test_a_type_checker_finds_planted_mistakes_and_no_others(checker, tmp_path):
    if importlib.util.find_spec(checker.__name__) is None:
        pytest.skip(f"no {checker.__name__} here: it is in the extra `dev`")
    compile(SCRIPT + WRONG, "script", "exec")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + WRONG)
    right, wrong = SCRIPT.count("\n"), WRONG.count("\n")
    assert (right, wrong) == (26, 18)
    assert sorted(set(checker(script))) == list(range(right + 1, right + wrong + 1))
