"""Which planted mistakes the README's tests let through: `python -m benchmarks.mutations 40`.

Each mutant of a module of the theory has one operator or number changed, at a place drawn from the
seed. First the README's tests run once on a copy, under coverage: only those that run a statement
can see a mistake in it. These run for each mutant, the most special ones first, until one fails.
With a folder as third argument, copy and coverage are kept there for another seed.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import json
import os
import pkgutil
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage  # pyright: ignore[reportMissingImports]
import pytest

ROOT = Path(__file__).parents[1]
MUTATED = ["kernels", "limit", "rows", "quantities", "metric.py", "exact_law"]
MUTATED += ["attention/measurement"]
OTHER = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And},
}
# What was looked at and changes no result: it counts as a survivor, and is counted beside.
EQUIVALENT = {
    "attention/measurement/tables.py: sign * float(rank_correlation(*pair))": "the sign is 1 or −1",
    "exact_law/keys_for_mass.py: self.r > 0": "no node is 0",
    "exact_law/sink_chance.py: known(i)[0] > _ALWAYS": "a chance that just counts as 1",
    "exact_law/maps/router.py: (keys - k) / spread.min(axis=1, keepdims=True)": "finer panels",
    "exact_law/maps/top_k.py: 0.0 * u": "0 either way",
    "kernels/lowering.py: the number 17": "digits of a float, which has 17",
    "kernels/numeric/intervals.py: sizes[0] < sizes[1]": "one of two that are equal",
    "kernels/threshold_maps.py: (norm - 1) * norm ** (power - 1)": "Newton's steps are shorter",
    "limit/map_limits.py: left > 0": "∞ at 0 either way",
    "limit/panels.py: axis.work + 2 * len(rest.half) * axis.f.size > work": "work, just reached",
    "limit/panels.py: first <= t <= last": "a root just at the end of the axis",
    "limit/score_moments.py: real > -0.5": "a bound, just at its edge",
    "metric.py: top + (top == 0)": "0/−1 is 0 as 0/1",
    "quantities/marked.py: the number 16": "parts in which a table is made",
}
CACHE = type(functools.cache(abs))
FIRST = 40  # tests that run before the others of a mutant, as to collect all takes 10 s
# Some folders of Python do not look at `.pth`, from which coverage starts by itself.
START = "import coverage\ncoverage.process_startup()\n"
# Coverage of commands that a test starts is that test's.
SETTINGS = """[run]
source = {copy}/sparsity
parallel = true
data_file = {copy}/covered
context = ${{TEST_THAT_RUNS-}}
"""


def places(node: ast.AST, lines: range = range(0)) -> Iterator[tuple[Any, range, str]]:
    """What can be changed in functions, the lines that run it, and what is said of it.

    A default is run by who runs the function.
    """
    if isinstance(node, ast.FunctionDef):
        lines = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    elif isinstance(node, ast.stmt) and lines:
        lines = range(node.lineno, node.lineno + 1)
    if lines and (
        (isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in OTHER)
        or (isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER)
    ):
        yield node, lines, ast.unparse(node)
    elif lines and isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield node, lines, f"the number {node.value}"
    for child in ast.iter_child_nodes(node):
        # Decorators hold the sizes of caches, on which no number depends.
        if child not in getattr(node, "decorator_list", ()):
            yield from places(child, lines)


def change(node: Any) -> None:
    """Plant the mistake."""
    if isinstance(node, ast.Constant):
        node.value += 1  # pyright: ignore
    elif isinstance(node, ast.Compare):
        node.ops[0] = OTHER[type(node.ops[0])]()
    else:
        node.op = OTHER[type(node.op)]()


# As a plugin of pytest, `-p benchmarks.mutations`: the tests that pass, and their seconds.
SECONDS: dict[str, float] = {}


def _switch(test: str) -> None:
    """Name what runs to coverage, and have it run what an earlier test left in a cache."""
    import jax

    if test.split("::")[0] != os.environ["TEST_THAT_RUNS"].split("::")[0]:
        jax.clear_caches()
    for name in [x for x in sys.modules if x.startswith("sparsity")]:
        for value in [*vars(sys.modules[name]).values()]:
            if isinstance(value, CACHE):
                value.cache_clear()
    os.environ["TEST_THAT_RUNS"] = test
    current = coverage.Coverage.current()
    assert current
    current.switch_context(test)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count what a test runs to it."""
    _switch(item.nodeid)
    start = time.process_time()
    result = yield
    SECONDS.setdefault(item.nodeid, time.process_time() - start)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[None]:
    """Count what a fixture of a module runs to all of its tests."""
    test = os.environ["TEST_THAT_RUNS"]
    if fixturedef.scope != "function":
        _switch(request.node.nodeid)
    result = yield
    if fixturedef.scope != "function":
        _switch(test)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Count what the reading of a module of tests runs to all of its tests."""
    _switch(collector.nodeid)
    return (yield)


def pytest_collection() -> None:
    """Count what the import of the package runs to all tests."""
    _switch("")
    for module in pkgutil.walk_packages(["sparsity"], "sparsity."):
        with contextlib.suppress(ImportError):  # of PyTorch and the like
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test that fails without a mistake tells nothing."""
    if report.failed:
        SECONDS[report.nodeid] = -1


def pytest_sessionfinish() -> None:
    """Hand over what was counted."""
    Path(os.environ["TESTS_THAT_RAN"]).write_text(json.dumps(SECONDS), "utf-8")


def run_pytest(copy: Path, *given: str, seconds: float = 10**6, **names: str) -> str:
    """Return the test that fails first, "" if none does, or why none could: "no end" of it, or
    "other tests" than those that are asked for.
    """
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *given]
    paths = os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")])

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        resource.setrlimit(resource.RLIMIT_AS, (2**34, 2**34))  # the tests take 6 GiB

    done = subprocess.run(
        words,
        **{"cwd": copy, "env": {**os.environ, "PYTHONPATH": paths, **names}},
        **{"capture_output": True, "text": True, "preexec_fn": limit, "check": False},
    )
    if done.returncode < 0:
        return "no end"
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", done.stdout, re.MULTILINE)
    if done.returncode == pytest.ExitCode.USAGE_ERROR and not failed:
        return "other tests"
    if done.returncode and not failed:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return failed[1] if failed else ""


def files(copy: Path, name: str) -> list[Path]:
    """Return the modules of a room of the theory."""
    home = copy / "sparsity" / name
    return sorted(home.rglob("*.py")) if home.is_dir() else [home]


def cover(copy: Path) -> None:
    """Copy the checkout, its theory as `ast` writes it, and run its tests under coverage."""
    shutil.copytree(ROOT / "sparsity", copy.parent / "sparsity")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "out", "__pycache__"))
    for path in (path for name in MUTATED for path in files(copy, name)):
        path.write_text(ast.unparse(ast.parse(path.read_text("utf-8"))), "utf-8")
    (copy / "sitecustomize.py").write_text(START, "utf-8")
    (copy / "settings").write_text(SETTINGS.format(copy=copy), "utf-8")
    run_pytest(
        *(copy, "-p", "benchmarks.mutations"),
        COVERAGE_PROCESS_START=str(copy / "settings"),
        TEST_THAT_RUNS="",
        TESTS_THAT_RAN=str(copy / "seconds.json"),
    )
    (copy / "sitecustomize.py").unlink()
    measured = coverage.Coverage(data_file=str(copy / "covered"), config_file=False)
    measured.combine([str(x) for x in copy.glob("covered.*")])
    measured.save()


def first_failure(copy: Path, tests: list[str], seconds: dict[str, float]) -> str:
    """Return the test that sees the mistake, "" if none does: the `FIRST` ones alone at first."""
    for some in filter(None, (tests[:FIRST], sorted(tests[FIRST:]))):
        (copy / "some").write_text("\n".join(some), "utf-8")
        # What takes thrice the time without the mistake, and the start, has no end with it.
        limit = 60 + 3 * sum(seconds[x] for x in some)
        failed = run_pytest(copy, "-x", "@some", seconds=limit)
        if failed == "other tests":  # as parameters of tests come of the module
            failed = run_pytest(copy, "-x", *sorted({x.split("::")[0] for x in some}))
        if failed:
            return failed
    return ""


def main(count: int, seed: int, copy: Path) -> None:
    """Draw mutants, run their tests, and print a line of a table for each.

    A test that fails without the mistake as well tells nothing: then all stops.
    """
    if not (copy / "covered").exists():
        cover(copy)
    seconds = json.loads((copy / "seconds.json").read_text("utf-8"))
    data = coverage.CoverageData(str(copy / "covered"))
    data.read()
    runs = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
    # The fewer lines of the theory a test runs, the more it says of one of them.
    breadth = Counter(x for lines in runs.values() for names in lines.values() for x in names)
    drawn, counts, killers = random.Random(seed), Counter[str](), set[str]()
    while counts["killed"] + counts["survived"] < count:
        path = drawn.choice(files(copy, drawn.choice(MUTATED)))
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        if not (known := list(places(tree))):
            continue
        index = drawn.randrange(len(known))
        node, lines, said = known[index]
        names = {name for line in lines for name in runs[str(path)].get(line, ())}
        tests = [
            *(x for x in seconds if seconds[x] >= 0 and names & {"", "tests", x.split("::")[0], x})
        ]
        change(node)
        why, failed = EQUIVALENT.get(f"{path.relative_to(copy / 'sparsity')}: {said}", ""), ""
        if not why:
            path.write_text(ast.unparse(tree), "utf-8")
            failed = first_failure(copy, sorted(tests, key=lambda x: breadth[x]), seconds)
            path.write_text(text, "utf-8")
        killers.add(failed)
        counts["of these change no result"] += bool(why)
        counts["killed" if failed else "survived"] += 1
        source = (copy.parent / path.relative_to(copy)).read_text("utf-8")
        line = [*places(ast.parse(source))][index][0].lineno
        place = f"{path.relative_to(copy / 'sparsity')}:{line}"
        outcome = failed or "survived" + (why and f": {why}")
        print(f"| {place} | `{said}` | {outcome} | {len(tests)} |", flush=True)
    print(dict(counts))
    killers -= {"", "no end"}
    if killers and (failed := run_pytest(copy, *sorted(killers))):
        raise SystemExit(f"{failed} fails without a mistake")


if __name__ == "__main__":
    mutants, seed, *kept = [*sys.argv[1:], "0"] if len(sys.argv) == 2 else sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        main(int(mutants), int(seed), Path(*kept or [folder]).resolve() / "copy")
