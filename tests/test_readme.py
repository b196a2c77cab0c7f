"""The README's Python runs as it stands, and says what it says."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
README = (HOME / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def test_there_are_four_blocks():
    assert len(BLOCKS) == 4


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs(number, capsys):
    names: dict[str, object] = {}
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), names)
    assert len(names) > 5


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


def test_the_numbers_in_the_last_block():
    import numpy as np

    from sparsity import Row, SinkLogit, exact

    (said,) = re.findall(r"# (0\.\d+): a sink of logit 8", BLOCKS[-1])
    row = Row("exp", gamma=2, steps=(SinkLogit(8.0),))
    mass = exact(row, length=1000, of="sink_mass").value
    assert np.round(mass, 4) == float(said)


def test_the_design_shown_is_the_design_printed(command):
    for line in re.findall(r"^\$ sparsity (design .*)\n(.*)$", README, re.M):
        arguments, shown = line
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
    assert len(shown) >= 3
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


def test_the_steps_and_quantities_named_are_those_there_are():
    from sparsity import quantities
    from sparsity.rows import steps

    (named,) = re.findall(r"`--step` takes (.*?), as\s+often", README, re.S)
    assert re.findall(r"`([a-z-]+)`", named) == list(steps.typed())
    (named,) = re.findall(r"`--of` takes (.*?)\. `", README, re.S)
    assert re.findall(r"`(\w+)`", named) == [quantity.name for quantity in quantities.ALL]


def test_every_command_is_in_the_table():
    from sparsity import cli

    assert set(re.findall(r"^\| `sparsity (\w+)", README, re.M)) == set(cli.cli.commands)
