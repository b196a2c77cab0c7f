"""The README's Python runs as it stands, and says what it says."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from benchmarks import first_picture
from sparsity.plots import curves

HOME = Path(__file__).parents[1]
README = (HOME / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def test_it_is_one_page():
    """Its one block of Python is drawn below; what else a door needs stands in docs/."""
    assert len(BLOCKS) == 1
    assert 80 <= len(README.splitlines()) <= 110


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
    assert len(points) == 2  # of each curve
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


def test_each_of_three_doors_has_one_command():
    """What is shown of its answer is printed: test_docs.py."""
    doors = re.findall(r"^## I .*\n((?:(?!## ).*\n)*)", README, re.M)
    assert [text.count("```console\n$ sparsity ") for text in doors] == [1, 1, 1]


def test_the_factor_at_128k():
    """Of the second door: 38 of 8,192 tokens, and what the scores are multiplied by."""
    import sparsity

    held = re.search(r"γ = 3 attends to (\d+) of ([\d,]+) tokens", README)
    factor = re.search(r"by ([\d.]+)/3 = (\d\.\d+)", README)
    assert held
    assert factor
    length = int(held[2].replace(",", ""))
    assert round(float(sparsity.exact("exp", gamma=3, length=length).value)) == int(held[1])
    gamma = sparsity.design("exp", length=131_072, n_eff=int(held[1]), lengths=()).value
    assert (f"{gamma:.2f}", f"{gamma / 3:.2f}") == (factor[1], factor[2])


NAMES = (HOME / "docs" / "names.md").read_text("utf-8")


def missing(page):
    """What a page does not name of names, commands, options and kernels; options it invents."""
    import sparsity
    from sparsity import cli, kernels

    commands = cli.cli.commands
    options = {
        name
        for found in commands.values()
        for parameter in found.params
        for name in parameter.opts
        if name.startswith("--")
    }
    called = {name for name in sparsity.__all__ if not re.search(rf"`{name}\b", page)}
    called |= set(commands) - set(re.findall(r"`sparsity (\w+)", page))
    called |= {"--help", *options} ^ set(re.findall(r"`(--[\w-]+)", page))
    records = (*kernels.ALL, *kernels.MAPS)
    return called | {record.name for record in records if f"`{record.name}`" not in page}


def test_one_page_has_every_name():
    assert missing(NAMES) == set()
    for name in ("`fused_rows`", "`sparsity list`", "`--along`", "`decayed`"):
        assert missing(NAMES.replace(name, "")) == {name.strip("`").removeprefix("sparsity ")}
    assert missing(NAMES + " `--planted`") == {"--planted"}
