"""Which planted mistakes the README's tests let through: `python -m benchmarks.mutations 40`.

Each mutant of a module of the theory has one operator or number changed, at a place drawn from the
seed. The tests of that module run on a copy; what none of them sees is printed as a survivor.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Folders and files of the theory, and words of the names of the tests that are to see a mistake.
MUTATED = {
    "kernels": ("kernels", "zoo", "text", "row_maps", "map_", "numeric"),
    "limit": ("properties", "finite", "quadrature", "closed_form", "hard_kernels", "kernels"),
    "rows": ("rows", "rope", "rotary", "pairs", "members", "steps", "scores", "row_"),
    "quantities": ("members", "ranks", "measured_quantities", "rows", "needle", "entropy"),
    "metric.py": ("metric", "members", "entropy"),
    "exact_law": ("finite", "rows", "ranks", "entropy", "needle", "map_", "router", "sink"),
    "attention/measurement": ("measurement", "measured", "padding", "sinks"),
}
OTHER = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And},
}
TIMES = 5  # as long as without a mistake, a mutant may run until it is ended; it counts by itself


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


def run_tests(copy: Path, name: str, seconds: float | None = None) -> str:
    """Run the tests of a folder of the theory: "survived", "killed", or "ended" after a time."""
    tests = {str(x) for word in MUTATED[name] for x in copy.glob(f"tests/test_*{word}*.py")}
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *sorted(tests)]
    env = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(
            words, cwd=copy, env=env, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return "ended"
    return "killed" if done.returncode else "survived"


def main(count: int, seed: int = 0) -> None:
    """Draw mutants, run their tests, and print those that survive.

    Where tests fail without a mistake nothing is learned: they run so once, and have to pass.
    """
    drawn, counts = random.Random(seed), Counter[str]()
    seconds: dict[str, float] = {}
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
            if name not in seconds:
                start = time.perf_counter()
                if run_tests(copy, name) != "survived":
                    raise SystemExit(f"the tests of {name} fail without a mistake")
                seconds[name] = time.perf_counter() - start
            node, said = drawn.choice(known)
            line = node.lineno  # pyright: ignore
            change(node)
            path.write_text(ast.unparse(tree), "utf-8")
            outcome = run_tests(copy, name, TIMES * seconds[name])
            path.write_text(text, "utf-8")
            counts[outcome] += 1
            print(outcome, f"{path.relative_to(copy)}:{line}", said, dict(counts), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
