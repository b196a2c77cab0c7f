"""Calls of the package that prose and docstrings show in passing are run as they stand."""

import ast
import inspect
import re
import tempfile
import textwrap
from pathlib import Path

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest
from headers import header

import sparsity

matplotlib.use("agg")
HOME = Path(__file__).parents[1]
PAGES = (HOME / "README.md", HOME / "CONTRIBUTING.md", *sorted((HOME / "docs").glob("*.md")))


def described():
    """What `describe` finds in a header, which needs no class of a model."""
    sizes = {"block_count": 2, "embedding_length": 64, "attention.head_count": 1}
    own = {f"llama.{name}": size for name, size in {**sizes, "context_length": 64}.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        path.write_bytes(header({"general.architecture": "llama", **own}))
        return sparsity.describe(path)


# What the prose calls these things, where it does not make them.
STANDING = {
    **{name: getattr(sparsity, name) for name in sparsity.__all__},
    "sparsity": sparsity,
    "kernel": sparsity.Row("softplus", beta=0, gamma=1),
    "mine": "max(s - 1, 0)**2",
    "row": sparsity.Row("exp", gamma=2, steps=(sparsity.Window(8),)),
    "attention": np.full((1, 8, 8), 1 / 8) * np.tri(8),
    "n": 16,
    "b": 1.5,
    "margin": 3.0,
    "needle": sparsity.NeedleAbove(3.0, distance=0),
    "found": described(),
    "q": np.ones(8),
    "mu": np.ones(8) / 8,
    "spread": 0.5,
    "sample": [-1.0, 0.0, 0.5, 2.0],
    "queries": np.random.default_rng(0).normal(size=(2, 16, 8)),
    "keys": np.random.default_rng(1).normal(size=(2, 16, 8)),
}
# A panel needs a notebook, a cross-check minutes, and docs/kernel.md derives: arguments must fit.
BOUND = {"explore", "verify", "derive"}
LONG = {"design"}  # half a minute
RECALL = "needle_recall:"  # of rows of many lengths: half a minute
ALIKE = re.compile(r"plot\(.*(montecarlo|x=.dim|x=.gamma)")  # by test_plot.py as well


def called(tree):
    """The public function or class of the package that an expression calls first; "" for others."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        name = ast.unparse(call.func).removeprefix("sparsity.")
        if name in sparsity.__all__:
            return name
    return ""


def shown(text):
    """The calls of the package in backticks, and on lines of code of their own."""
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    spans = [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]
    spans += [line.strip() for line in prose.splitlines() if line.startswith("    ")]
    for span in spans:
        try:
            tree = ast.parse(span, mode="eval")
        except SyntaxError:
            continue
        if called(tree):
            yield span


def docstrings():
    """(where, text) of every docstring of the package."""
    for path in sorted((HOME / "sparsity").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    yield str(path.relative_to(HOME)), textwrap.dedent(text)


SOURCES = [(path.name, path.read_text("utf-8")) for path in PAGES] + list(docstrings())
CALLS = list(dict.fromkeys((where, span) for where, text in SOURCES for span in shown(text)))


def run(span):
    """Evaluate the call; of what is dear, bind the arguments only."""
    tree = ast.parse(span, mode="eval")
    name = called(tree)
    if name in BOUND:
        call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call))
        given = [eval(ast.unparse(x), dict(STANDING)) for x in call.args]
        named = {str(x.arg): eval(ast.unparse(x.value), dict(STANDING)) for x in call.keywords}
        inspect.signature(STANDING[name]).bind(*given, **named)
    else:
        eval(compile(tree, span, "eval"), dict(STANDING))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("where", "span"),
    [
        pytest.param(
            *call,
            marks=[pytest.mark.slow]
            * (
                called(ast.parse(call[1])) in LONG
                or RECALL in call[1]
                or ALIKE.search(call[1]) is not None
            ),
        )
        for call in CALLS
    ],
)
def test_a_call_that_is_shown_runs(where, span):
    run(span)
    matplotlib.pyplot.close("all")


def test_the_calls_are_found():
    assert len(CALLS) >= 25
    assert {where for where, _ in CALLS} >= {"models.md", "start.md", "sparsity/plots/__init__.py"}


@pytest.mark.parametrize(
    "span",
    ['evaluate("exp", gamma=1, value=2)', 'exact("exp", gamma=1, n=3)', "derive(1, order=2)"],
)
def test_a_wrong_call_is_seen(span):
    assert list(shown(f"Try `{span}`.")) == [span]
    with pytest.raises((TypeError, sparsity.InputError)):
        run(span)
