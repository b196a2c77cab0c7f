"""What a `Row` is: frozen, hashable, equal by value, written as it was typed, checked at once."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from example_rows import MIXED

import sparsity
from sparsity import (
    Alibi,
    Coca,
    Decay,
    Empirical,
    InputError,
    Rope,
    Row,
    SinkLogit,
    Uniform,
    Window,
    exact,
    kernels,
    score_kernel,
)
from sparsity.kernels.symbols import s
from sparsity.rows import steps
from sparsity.rows.row import row_of

OWN = score_kernel("own", s**3)
NAMES = {name: getattr(sparsity, name) for name in ("Row", *(step.__name__ for step in steps.ALL))}
QUERY, MEAN = [1.0, 0.5, -0.3, 0.2], [0.4, -0.2, 0.1, 0.6]

ROWS = [  # two ways of writing each
    (Row("exp", gamma=2), Row(kernels.exp, beta=None, gamma=np.float32(2.0))),
    (Row("relu2", beta=-1, gamma=0.5), Row("relu2", gamma=0.5, beta=-1.0)),
    (Row(OWN, beta=0, gamma=1), Row(OWN, gamma=1, beta=0)),
    (Row("decayed", decay=0.9), Row("decayed", decay=np.array(0.9))),
    (
        Row("nonnegative", ratio=2, dim=8, query="uniform"),
        Row("nonnegative", query="uniform", ratio=2.0, dim=8.0),
    ),
    (Row("exp", gamma=2, steps=MIXED), Row("exp", gamma=2, steps=MIXED[:3]).then(*MIXED[3:])),
    (
        Row("exp", steps=(Rope(QUERY, MEAN, 0.3),)),
        Row("exp", steps=[Rope(np.array(QUERY), tuple(MEAN), 0.3)]),
    ),
    (
        Row("exp", steps=(Coca(QUERY, 0.5, 0.05), Decay(0.9))),
        Row("exp", steps=(Coca(np.array(QUERY), 0.5, 0.05), Decay(0.9)), beta=0, gamma=1),
    ),
]


@pytest.mark.parametrize(("one", "other"), ROWS, ids=lambda row: row.kernel.name)
def test_equal_rows_are_equal(one, other):
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.kernel = kernels.exp


def test_different_rows_differ():
    rows = [one for one, _ in ROWS]
    rows += [
        Row("exp", gamma=2.5),
        Row("exp", gamma=2, steps=MIXED[::-1]),
        Row("exp", steps=(Rope(QUERY, MEAN, 0.3, "half"),)),
        Row("exp", steps=(Rope([*QUERY[:3], 0.3], MEAN, 0.3),)),
        Row("exp", steps=(Coca(QUERY, 0.5, 0.05, slack_at=9), Decay(0.9))),
    ]
    assert len(set(rows)) == len(rows) == len(ROWS) + 5
    assert Rope(QUERY, MEAN, 0.3) != Coca(QUERY, 0.5, 0.05)


@pytest.mark.parametrize(("one", "other"), ROWS, ids=lambda row: row.kernel.name)
def test_a_row_is_printed_as_one_would_write_it(one, other):
    for row in (one, other):
        assert eval(repr(row), NAMES | {"own": OWN}) == row
    assert repr(one) == repr(other)
    shown = repr(Row("exp", gamma=2.0, steps=(SinkLogit(4.0),)))
    assert shown == "Row('exp', beta=0.0, gamma=2.0, steps=(SinkLogit(logit=4.0),))"


@pytest.mark.parametrize("kind", steps.ALL, ids=lambda kind: kind.name)
def test_every_step_is_printed_as_one_would_write_it(kind):
    step = kind(*kind.example)
    assert eval(repr(step), NAMES) == step
    assert hash(eval(repr(step), NAMES)) == hash(step)


def test_vectors_of_a_step_cannot_change():
    """Neither through the array that was given, nor through the step."""
    query = np.array(QUERY)
    for step in (Rope(query, MEAN, 0.3), Coca(query, 0.5, 0.05)):
        before, row = hash(step), Row("exp", steps=(step,))
        first = exact(row, length=3).value
        query[0] += 1
        assert hash(step) == before
        assert exact(row, length=3).value == first
        with pytest.raises(ValueError, match="read-only"):
            step.query[0] = 3.0
        query[0] -= 1


def test_replace_and_then():
    row = Row("exp", gamma=2.0, steps=MIXED)
    assert row.replace(gamma=3) == Row("exp", gamma=3, steps=MIXED)
    assert row.replace(gamma=3).replace(gamma=2) == row
    assert row.then() == row
    assert (row.beta, row.gamma, row.params["gamma"]) == (0.0, 2.0, 2.0)
    assert row_of(row, {}) is row
    assert row_of("exp", {"gamma": 2.0}).then(*MIXED) == row
    assert Row("nonnegative", ratio=1, dim=4, query="uniform").params == {
        "ratio": 1.0, "dim": 4, "query": "uniform",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Row("expp", gamma=1), "^kernel = expp: "),
        (lambda: Row("exp"), "^gamma is missing: "),
        (lambda: Row("exp", gamma=0), "^gamma = 0"),
        (lambda: sparsity.exact("exp", gamma=[1, 2]), "^gamma = .*: give one value; use sweep"),
        (lambda: Row("exp", gamma=1, decay=0.5), "^decay = 0.5"),
        (lambda: Row("nonnegative", ratio=1, dim=2, query="unifrom"), "^query = unifrom"),
        (lambda: Row("decayed", decay=0.5, steps=(Decay(0.5),)), "^steps = .*no scores"),
        (lambda: Row("exp", gamma=1, steps=Decay(0.5)), "^steps = Decay.*give a tuple"),
        (lambda: Row("exp", gamma=1, steps="alibi:0.1"), "^steps = alibi:0.1: give a tuple"),
        (lambda: Row("exp", gamma=1).replace(gamma=-2), "^gamma = -2"),
        (lambda: row_of(Row("exp", gamma=1), {"gamma": 1}), "^gamma = 1: .*row.replace"),
        (lambda: Row("decayed", decay=0.5).scored(), "^kernel = decayed: "),
        (lambda: steps.parse("alibbi:1"), "^step = alibbi:1: did you mean alibi"),
        (lambda: steps.parse("alibi"), "^step = alibi: write alibi:SLOPE"),
        (lambda: steps.parse("alibi:-1"), "^step = alibi:-1: slope: give one number >= 0"),
        (lambda: steps.parse("rope:1"), "^step = rope:1: takes vectors .* sparsity.Rope in"),
    ],
)
def test_errors_name_the_argument(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_every_typed_step_survives_being_typed():
    for name, kind in steps.typed().items():
        step = kind(*kind.example)
        text = f"{name}:{','.join(map(str, kind.example))}"
        assert steps.parse(text) == step
        (again,) = Row("exp", gamma=1, steps=(step,)).described()["steps"]
        assert steps.parse(again) == step
    by_vectors = {kind for kind in steps.ALL if issubclass(kind, (Rope, Coca))}
    assert len(steps.typed()) == len(steps.ALL) - len(by_vectors)
    assert steps.parse("sink:3,0.5") == sparsity.Sink(3, 0.5)
    assert steps.parse("alibi:1e-3") == sparsity.Alibi(0.001)


ALIKE = (  # leave six tokens alike
    *(sparsity.ScalableSoftmax, sparsity.FloorLog, sparsity.LogLength, sparsity.Yarn),
    sparsity.LongRope,
    *(sparsity.LengthBias, sparsity.Window, sparsity.Chunk, sparsity.Gate),
)


BESIDE = [  # a kernel, its parameters, and what stands beside them
    ("exp", {"beta": 0.3, "gamma": 1.5}, {"steps": (Alibi(0.05),)}),
    ("relu2", {"beta": -0.5, "gamma": 2.0}, {"scores": Uniform(), "steps": (Window(8),)}),
]


@pytest.mark.thorough
def test_steps_and_scores_beside_a_kernel_are_those_of_its_row() -> None:
    instruments: dict[str, Callable[..., Any]] = {
        "exact": lambda row, **own: exact(row, length=32, **own).value,
        "evaluate": lambda row, **own: sparsity.evaluate(row, length=32, **own).log_value,
        "estimate": lambda row, **own: (
            sparsity.estimate(row, length=32, max_samples=4096, **own).value
        ),
        "sweep": lambda row, **own: sparsity.sweep(row, length=32, **own).n_eff.item(),
    }
    for name, ask in instruments.items():
        for kernel, own, beside in BESIDE:
            row = Row(kernel, **own, **beside)
            assert ask(kernel, **own, **beside) == ask(row), (name, kernel)
            assert ask(row) != ask(Row(kernel, **own)), "the steps change the answer"
        with pytest.raises(InputError, match="steps"):
            ask("exp", gamma=1, steps=3)
        with pytest.raises(InputError, match="scores"):
            ask("exp", gamma=1, scores="uniform")
        if name != "sweep":
            with pytest.raises(InputError, match="its own parameters"):
                ask(row, steps=(Alibi(0.05),))
    # What a step brings along is the row's in a sweep, too; no steps at all change nothing.
    for brings in (Empirical(np.linspace(-2, 3, 50)), Rope(QUERY, MEAN, 0.5)):
        found = sparsity.sweep("exp", steps=(brings,), length=64, of="n_eff")
        assert found.n_eff.item() == exact("exp", steps=(brings,), length=64).value
    features = {"ratio": 1.0, "dim": 16, "query": "uniform"}
    for nothing in ({"steps": ()}, {"scores": None}):
        limits = [sparsity.evaluate("nonnegative", **features, **x).S for x in ({}, nothing)]
        drawn = [
            sparsity.estimate("exp", gamma=1.0, decay=0.9, length=64, max_samples=4096, **x).value
            for x in ({}, nothing)
        ]
        assert limits[0] == limits[1]
        assert drawn[0] == drawn[1]
