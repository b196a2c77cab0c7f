"""CONTRIBUTING's recipes carried out on a copy of the package, and every instrument run on them."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from command_line import ENVIRONMENT, python

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
FILES = dict(re.findall(r"```python\n# (sparsity/\S+\.py)\n(.*?)```", PAGE, flags=re.DOTALL))
ENTRIES = re.findall(r"Add `(\w+)` from `([\w.]+)` to `(\w+)` in `(sparsity/\S+\.py)`", PAGE)
TOUCHED = dict(re.findall(r"^\| (a kernel|a claim) \| `([^`]*)` \|$", PAGE, flags=re.MULTILINE))

ASK = """
import json, sys
sys.modules["dask"] = None  # as where it is not installed: xarray would load it for nothing
import sparsity
from sparsity import figures
from sparsity import claims_ledger as ledger
from sparsity.panel import opened
from sparsity.derivation import mathml
from sparsity.rows.steps import ALL, parse

row = sparsity.Row("hinge", beta=1.0, gamma=0.5, steps=(parse("recency:2,0.5"),))
print(json.dumps({
    "derived": str(sparsity.derive("hinge").S)[:1] != "",
    "limit": float(sparsity.evaluate(row, length=6).S),
    "exact": float(sparsity.exact(row, length=6).value),
    "estimate": sparsity.estimate(row, length=6, of="variation", rel_error=2e-3).value,
    "Y2": float(sparsity.exact(row, length=6, of="participation").value),
    "verified": sparsity.verify(row, length=6, detectable=1e-2).agree,
    "panel": opened("hinge").specs()[0] is not None,
    "report": len(str(mathml.derivation(sparsity.derive("hinge")))),
    "verdict": ledger.ALL[0].record()["verdict"],
    "figure": sorted(figures.draw(figures.ALL[0], rel_error=1e-2).files),
}))
"""


def carry_out(place, *modules):
    """Write the files of the page that belong to these modules, and their entries, into a copy."""
    for path, code in FILES.items():
        if path.removesuffix(".py").replace("/", ".") in modules:
            assert not (place / path).exists()
            (place / path).write_text(code, "utf-8")
    for name, module, members, path in ENTRIES:
        if module not in modules:
            continue
        text = (place / path).read_text("utf-8")
        start = text.index(f"\n{members}:")
        opened = text.index("= (", start) + 3
        text = f"{text[:opened]}{name}, {text[opened:]}"
        text = f"{text[:start]}\nfrom {module} import {name}{text[start:]}"
        (place / path).write_text(text, "utf-8")


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of the package with one new member in every family."""
    place = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "sparsity", place / "sparsity")
    assert len(ENTRIES) == len(FILES) == 5
    carry_out(place, *(module for _, module, _, _ in ENTRIES))
    return place


def run_tests(place, words):
    """What the page says to run, in a copy: the exit status, and what pytest printed."""
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *words)
    settings = os.environ | {"PYTHONPATH": str(place)}
    done = python(*command, env=settings, cwd=place, timeout=None)
    return done.returncode, done.stdout


def test_the_tests_that_a_kernel_and_a_claim_touch_end_green(tmp_path):
    """Carried out as written; then with a claim that is false, and no longer green."""
    leave = shutil.ignore_patterns(".*", "out", "shared", "notebooks")
    shutil.copytree(ROOT, tmp_path / "copy", ignore=leave)
    place = tmp_path / "copy"
    carry_out(place, "sparsity.kernels.hinge", "sparsity.claims_ledger.flat")
    # What is planted or printed is of the members that there are, and so are cases of these alone.
    few = ("-k", "(hinge or flat or not [) and not planted and not printed")
    code, printed = run_tests(place, [*" ".join(TOUCHED.values()).split(), *few])
    assert code == 0, printed
    assert int(re.findall(r"(\d+) passed", printed)[0]) > 50
    kernel = place / "sparsity/kernels/hinge.py"
    kernel.write_text(kernel.read_text("utf-8").replace('"where it is stated"', '""'), "utf-8")
    code, printed = run_tests(place, ["tests/test_zoo.py", "-k", "there_once"])
    assert code == 1
    assert "1 failed" in printed


LOOP = """
import sys
from sparsity import cli
for line in sys.argv[1:]:
    sys.argv = ['sparsity', *line.split(), '--json']
    try:
        cli.main()
    except SystemExit as stop:
        assert not stop.code, (line, stop.code)
"""
COMMANDS = (
    "list",
    "derive hinge",
    "exact hinge --beta 1 --gamma 0.5 --length 6 --step recency:2,0.5",
    "sweep hinge --beta 1 --gamma 0.5,1 --length 6 --step recency:2,0.5 --out s.nc",
    "design hinge --beta 1 --length 6 --n-eff 3 --step recency:2,0.5",
)


@pytest.fixture(scope="module")
def answers(extended):
    """What one process with the copy says: of every instrument, then of every command."""
    settings = ENVIRONMENT | {"PYTHONPATH": str(extended), "JAX_ENABLE_X64": "1"}
    done = python("-c", ASK + LOOP, *COMMANDS, env=settings, cwd=extended)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


EXPERIMENT = re.findall(
    r"```(?:python|markdown)\n# (experiments/\S+)\n(.*?)```", PAGE, flags=re.DOTALL
)


@pytest.mark.slow
def test_an_experiment_is_a_prediction_a_module_and_an_entry(tmp_path):
    assert [path for path, _ in EXPERIMENT] == [
        "experiments/predictions/walks.md",
        "experiments/walks.py",
    ]
    leave = shutil.ignore_patterns("__pycache__", "results")
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments", ignore=leave)
    for path, text in EXPERIMENT:
        assert not (tmp_path / path).exists()
        (tmp_path / path).write_text(text, "utf-8")
    main = tmp_path / "experiments" / "__main__.py"
    text = main.read_text("utf-8")
    head, entries = text.split("ALL = (")
    main.write_text(f"{head}from experiments import walks\n\nALL = (walks.EXPERIMENT, {entries}")
    settings = ENVIRONMENT | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = python("-m", "experiments", "walks", "--out", "out", env=settings, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "walks.md").read_text("utf-8")
    assert EXPERIMENT[0][1].strip() in page
    assert "- Held: the mean square is n, within 10 %." in page
    assert "Failed" not in page
    assert len((tmp_path / "out" / "walks.csv").read_text("utf-8").splitlines()) == 1 + 6


def test_every_instrument_knows_the_new_members(answers):
    found = json.loads(answers[0])
    n = 6
    assert 1 <= found["exact"] <= n
    # It is linear in Y₂: the sampled new quantity against the exact law of that.
    assert found["estimate"] == pytest.approx(n * found["Y2"] - 1, rel=1.2e-2)
    assert 0 < found["limit"] < 1
    assert found["derived"]
    assert found["verified"]
    assert found["panel"]
    assert found["report"] > 100
    assert found["verdict"] == "confirmed"
    assert found["figure"] == ["csv", "png", "svg"]


def test_every_command_knows_them(answers):
    of_commands = answers[1:]
    assert len(of_commands) == len(COMMANDS) == 5
    assert "hinge" in of_commands[0]
    for answer, line in zip(of_commands[1:], COMMANDS[1:], strict=True):
        assert json.loads(answer), line
    assert "variation" in json.loads(of_commands[0])["quantities"]
