"""The README's Python runs as it stands, and says what it says."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def test_there_are_two_blocks():
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs(number, capsys):
    names: dict[str, object] = {}
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), names)
    assert len(names) > 5


def test_the_numbers_in_the_second_block():
    import numpy as np

    from sparsity import Row, SinkLogit, exact

    (said,) = re.findall(r"# (0\.\d+): a sink of logit 8", BLOCKS[1])
    row = Row("exp", gamma=2, steps=(SinkLogit(8.0),))
    mass = exact(row, length=1000, of="sink_mass").value
    assert np.round(mass, 4) == float(said)


def test_the_design_shown_is_the_design_printed(command):
    for line in re.findall(r"^\$ sparsity (design .*)\n(.*)$", README, re.M):
        arguments, shown = line
        code, out, _ = command(*arguments.split())
        assert code == 0
        assert out.startswith(shown.rstrip("…"))
