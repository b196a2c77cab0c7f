"""The README's Python runs as it stands, and says what it says."""

import ast
import json
import re
import shlex
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from benchmarks import first_picture
from sparsity.plots import curves

HOME = Path(__file__).parents[1]
README = (HOME / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def test_there_are_four_blocks():
    assert len(BLOCKS) == 4


# The first and the third run below.
@pytest.mark.thorough
@pytest.mark.parametrize("number", [1, 3])
def test_a_block_runs(number, capsys):
    names: dict[str, object] = {}
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), names)
    assert len(names) > 5


def test_it_opens_with_lines_that_draw_and_what_they_draw():
    opening = "\n".join(README.splitlines()[:26])
    assert first_picture.code() in opening
    assert "(docs/first.png)" in opening
    assert len([line for line in first_picture.code().splitlines() if line]) == 5
    assert first_picture.PICTURE.stat().st_size < 100_000


def drawn_again():
    """The numbers of the picture as it is stored, and as its lines draw it now."""
    from matplotlib import pyplot

    with PIL.Image.open(first_picture.PICTURE) as picture:
        stored = json.loads(picture.text[first_picture.KEY])
    figure = first_picture.drawn()
    again = first_picture.numbers(figure)
    pyplot.close(figure)
    assert sum(map(len, again)) > 300
    return stored, again


@pytest.mark.thorough
def test_the_first_picture_shows_what_its_lines_draw(monkeypatch):
    """Theory, and the first and last points, are the numbers that the picture was drawn from."""
    # Each length is a program of its own to compile.
    monkeypatch.setattr(curves, "SAMPLED_POINTS", 2)
    stored, again = drawn_again()
    points = [i for i, line in enumerate(stored) if len(line) == 5]
    assert len(points) == 6  # of each curve the points, and both ends of their bars
    for i in points:
        stored[i] = [stored[i][0], stored[i][-1]]
    assert same(again, stored)
    for i in (0, *points):
        again[i][1][1] *= 1 + 1e-4  # one point elsewhere
        assert not same(again, stored)
        again[i][1][1] /= 1 + 1e-4


@pytest.mark.slow
def test_all_points_of_the_first_picture_are_drawn_again():
    stored, again = drawn_again()
    assert same(again, stored)


def same(left, right):
    """Whether two lists of curves agree, up to the last bits of another processor."""
    return [*map(len, left)] == [*map(len, right)] and all(
        np.allclose(a, b, rtol=1e-6, atol=0) for a, b in zip(left, right, strict=True)
    )


def test_what_is_said_below_the_picture():
    import sparsity

    said = re.findall(r"attends\s+to\s+([\d,]+)\s+of\s+them.*?\s+to\s+([\d,]+)\.", README, re.S)[0]
    for kernel, tokens in zip(("exp", "softplus"), said, strict=True):
        value = float(sparsity.exact(kernel, beta=0, gamma=2, length=100_000).value)
        assert float(f"{value:.2g}") == float(tokens.replace(",", ""))


def inner_imports(code):
    """Modules of the package below `sparsity` itself that this code imports from."""
    found = []
    for node in ast.walk(ast.parse(code)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found += [name for name in names if name.startswith("sparsity.")]
    return found


def test_users_are_shown_imports_from_the_package_only():
    shown = list(BLOCKS)
    for path in sorted((HOME / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        shown += ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert len(shown) > 60
    assert [inner_imports(code) for code in shown] == [[]] * len(shown)
    assert inner_imports("import sparsity.cli\nfrom sparsity.rows.row import Row") == [
        "sparsity.cli",
        "sparsity.rows.row",
    ]


@pytest.mark.thorough
def test_the_numbers_beside_the_rows():
    """The block of rows runs; each `# number` after a line that ends in `.value` is that value."""
    block = BLOCKS[2]
    names: dict[str, object] = {}
    said = 0
    for node in ast.parse(block).body:
        code = ast.unparse(node)
        comment = block.splitlines()[node.end_lineno - 1].partition("  # ")[2]
        numbers = re.findall(r"\d+(?:\.\d+)?", re.split("[^0-9., ]", comment)[0])
        if not (isinstance(node, ast.Expr) and code.endswith(".value") and numbers):
            exec(code, names)
            continue
        values = np.atleast_1d(eval(code, names))
        said += len(numbers)
        for value, number in zip(values, numbers, strict=True):
            assert round(float(value), len(number.partition(".")[2])) == float(number)
    assert said == 10
    assert len(names) > 5


def test_the_design_shown_is_the_design_printed(command):
    designs = re.findall(r"^\$ sparsity (design .*)\n(.*)$", README, re.M)
    assert len(designs) == 1
    for arguments, shown in designs:
        code, out, _ = command(*arguments.split())
        assert code == 0
        assert out.startswith(shown.rstrip("…"))


def test_the_answers_shown_are_the_answers_printed(command):
    shown = [
        example
        for block in re.findall(r"```console\n(.*?)```", README, re.S)
        for example in re.findall(r"^\$ sparsity (.*)\n((?:(?!\$).*\n)*)", block, re.M)
        if "…" not in example[1]
    ]
    assert len(shown) == 1
    for line, words in shown:
        code, out, _ = command(*shlex.split(line))
        assert code == 0
        number = r"\d+\.?\d*(?:e[+-]\d+)?"
        assert re.sub(number, "#", out.strip()) == re.sub(number, "#", words.strip())
        pairs = zip(re.findall(number, out), re.findall(number, words), strict=True)
        for (
            printed,
            said,
        ) in pairs:  # the last digit, and a bound, may be another on another machine
            assert float(printed) == pytest.approx(float(said), rel=1e-10, abs=1e-11)


def test_every_command_is_in_the_table():
    from sparsity import cli

    rows = re.findall(r"^\| (`sparsity .*?) \|", README, re.M)
    named = re.findall(r"`sparsity (\w+)", " ".join(rows))
    assert set(named) == set(cli.cli.commands)
