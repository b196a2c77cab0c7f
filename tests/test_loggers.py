"""The page's lines for Weights & Biases and TensorBoard, run with what takes their places."""

import importlib
import re
from pathlib import Path

import pytest

import sparsity

pytestmark = pytest.mark.model

PAGE = Path(__file__).parents[1] / "docs" / "train.md"


class Writer:
    """In place of a SummaryWriter or of wandb: it keeps what it is given."""

    def __init__(self):
        self.rows = []

    def add_scalar(self, name, value, step):
        self.rows.append((name, float(value), int(step)))

    def log(self, numbers):
        self.rows.append({str(name): float(x) for name, x in numbers.items()})


def test_the_lines_of_the_page_log_what_a_watch_saw(capsys):
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    code = re.search(r"<!-- needs wandb .*?-->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert code is not None

    class Attention(torch.nn.Module):
        def forward(self, x):
            heads = x.unflatten(-1, (2, 8)).transpose(1, 2)
            return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), Attention())
    kept, made = Writer(), Writer()
    batches = [torch.randn(2, 12, 16) for _ in range(101)]
    names = {"sparsity": sparsity, "model": model, "batches": batches, "train_step": model}
    names |= {"wandb": kept, "writer": made}
    exec(code[1], names)
    assert [row["step"] for row in kept.rows] == [0.0, 100.0]
    assert all(row["all/n_eff"] > 1 for row in kept.rows)
    assert {step for *_, step in made.rows} == {0, 100}
    assert {name for name, *_ in made.rows} == kept.rows[0].keys() - {"step"}
    assert not any(".head" in name for name, *_ in made.rows)
    assert capsys.readouterr().out.count("is below") == 0  # random attention is wide
