"""What a type checker says of a user's script."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparsity

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
from sparsity import Alibi, InputError, Row

row = Row("exp", gamma=2.0, steps=(Alibi(0.01),))
law = sparsity.exact(row, length=[64, 1024])
limit = sparsity.evaluate("relu2", beta=-1.0, gamma=np.linspace(0.5, 2, 4))
drawn = sparsity.estimate("exp", gamma=1.3, rel_error=0.01)
print(law.value, law.error, limit.S, float(drawn), drawn.ci95, drawn.beside(limit).z)
wanted = sparsity.design("exp", length=4096, n_eff=8)
grid = sparsity.sweep("exp", gamma=[1, 2], length=64, of=["n_eff", "entropy"])
sparsity.plot("exp", gamma=[1, 2], montecarlo=True).figure.savefig("focus.png")
q = np.random.default_rng(0).normal(size=(4, 64, 16))
data = sparsity.measure(queries=q, keys=q)
print(data["n_eff"].mean(), wanted.to_dataframe(), sparsity.derive("exp").latex())
with sparsity.monitoring.Watch(object()) as watch:
    logged: dict[str, float] = watch.log()
try:
    sparsity.verify("exp", seed=1)
except InputError as error:
    print(error.argument, error.fix, sparsity.n_eff(np.ones(4)))
"""
PLANTED = {  # line: (as it is, as it is mistaken)
    6: ("sparsity.exact(", "sparsity.exactt("),
    8: ("rel_error=0.01", 'rel_error="a"'),
    10: ("length=4096", 'length="a"'),
    14: ("queries=q", "querys=q"),
    17: ("watch.log()", "watch.logs()"),
}


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
    lines = SCRIPT.splitlines()
    assert len(lines) == 21
    compile(SCRIPT, "script", "exec")
    for number, (right, wrong) in PLANTED.items():
        assert lines[number - 1].count(right) == 1
        lines.append(lines[number - 1].strip().replace(right, wrong))
    script = tmp_path / "script.py"
    script.write_text("\n".join(lines))
    assert sorted(set(checker(script))) == [22, 23, 24, 25, 26]  # those that were appended
