"""Which planted mistakes the README's tests let through: `python -m benchmarks.mutations 40`.

Each mutant of a module of the theory has one operator or number changed, at a place drawn from the
seed. The tests of that module run on a copy; what none of them sees is printed as a survivor.
"""

from __future__ import annotations

import ast
import functools
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Folders and files of the theory, and words of the names of the tests that are to see a mistake.
MUTATED = {
    "kernels": ("kernels", "zoo", "text", "row_maps", "map_", "numeric"),
    "limit": ("properties", "finite", "quadrature", "closed_form", "hard_kernels", "kernels"),
    "rows": ("rows", "rope", "rotary", "pairs", "members", "steps", "scores", "row_"),
    "quantities": ("members", "ranks", "measure", "rows", "needle", "entropy", "extremes", "ends"),
    "metric.py": ("metric", "members", "entropy"),
    "exact_law": ("finite", "rows", "ranks", "entropy", "needle", "map_", "router", "sink"),
    "attention/measurement": ("measurement", "measured", "padding", "sinks"),
}
OTHER = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And},
}
SECONDS = 600  # of a processor, until a mutant is ended; it counts by itself


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The nodes inside functions that can be changed, and what is said of each."""
    for function in ast.walk(tree):
        for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            if (isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in OTHER) or (
                isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER
            ):
                yield node, ast.unparse(node)
            elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
                yield node, f"the number {node.value}"


def change(node: ast.AST) -> None:
    """Plant the mistake."""
    if isinstance(node, ast.Constant):
        node.value += 1  # pyright: ignore
    elif isinstance(node, ast.Compare):
        node.ops[0] = OTHER[type(node.ops[0])]()
    else:
        node.op = OTHER[type(node.op)]()  # pyright: ignore


def run_pytest(copy: Path, *given: str) -> str:
    """Return the test that fails first, "" if none does, "ended" where processor time ran out."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *given]
    env = {**os.environ, "PYTHONPATH": str(copy)}
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_CPU, (SECONDS, SECONDS))
    done = subprocess.run(
        words, cwd=copy, env=env, capture_output=True, text=True, preexec_fn=limit, check=False
    )
    if done.returncode < 0:
        return "ended"
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", done.stdout, re.MULTILINE)
    return (failed[1] if failed else "no test") if done.returncode else ""


def tests_of(copy: Path, name: str, stem: str) -> list[str]:
    """Return the files of tests of a room; first those, of any room, that import the module."""
    by_word = {x for word in MUTATED[name] for x in copy.glob(f"tests/test_*{word}*.py")}
    imported = re.compile(rf"^(from|import) .*\b{stem}\b", re.MULTILINE)
    first = [x for x in copy.glob("tests/test_*.py") if imported.search(x.read_text("utf-8"))]
    return [str(x) for x in (*sorted(first), *sorted(by_word.difference(first)))]


def main(count: int, seed: int = 0) -> None:
    """Draw mutants, run their tests, and print those that survive.

    A test that fails without the mistake as well tells nothing: then all stops.
    """
    drawn, counts = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "out", "__pycache__"))
        while counts.total() < count:
            name = drawn.choice([*MUTATED])
            home = copy / "sparsity" / name
            path = drawn.choice(sorted(home.rglob("*.py")) if home.is_dir() else [home])
            text = path.read_text("utf-8")
            tree = ast.parse(text)
            if not (known := list(places(tree))):
                continue
            node, said = drawn.choice(known)
            line = node.lineno  # pyright: ignore
            change(node)
            path.write_text(ast.unparse(tree), "utf-8")
            failed = run_pytest(copy, *tests_of(copy, name, path.stem))
            path.write_text(text, "utf-8")
            if failed not in ("", "ended") and run_pytest(copy, failed) == failed:
                raise SystemExit(f"{failed} fails without a mistake")
            counts[failed if failed == "ended" else "killed" if failed else "survived"] += 1
            place = f"{path.relative_to(copy)}:{line}"
            print(failed or "survived", place, said, dict(counts), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
