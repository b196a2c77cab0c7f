"""`capabilities`: what it says of a quantity of a row is what the instruments do."""

import functools
import itertools

import numpy as np
import pytest

import sparsity
from sparsity import Coca, InputError, Needle, Row, Sink, SinkLogit, Uniform, kernels, quantities
from sparsity.exact_law import map_laws
from sparsity.exact_law.capabilities import capabilities
from sparsity.kernels import Law
from sparsity.rows.steps import ALL as STEPS
from sparsity.sampling import Sampling, draw
from sparsity.sampling.row_sampling import draw_rows

N = 6
FAMILIES = [quantities.named(f"{each.name}:{each.example}") for each in quantities.FAMILIES]
ASKED = (*quantities.ALL, *quantities.OF_MAPS, *FAMILIES)
OWN = {"beta": 0.2, "gamma": 0.9, "decay": 0.9, "ratio": 1.0, "dim": 4, "query": "uniform"}


def row_of(kernel, *steps):
    """A row of a kernel or a map, with parameters inside every domain."""
    kernel = kernels.named(kernel)
    given = {p.name: OWN.get(p.name, p.default) for p in kernel.parameters}
    given = {name: x for name, x in given.items() if x is not None and name != "length"}
    own = {"gamma2": 1.1, "rho": 0.2, "mix": 0.5, "gate": 3.0, "gate_spread": 0.5, "within": 0.3}
    own |= {"sigma": 0.2, "features": 8}
    needed = {p.name: own[p.name] for p in kernel.parameters if p.name in own}
    return Row(kernel, steps=steps, **(given | needed))


def with_steps(kernel):
    return [row_of(kernel, step(*step.example)) for step in STEPS]


ROWS = {
    "kernels": [row_of(each) for each in (*kernels.ALL, kernels.zoo.softplus)],
    "maps": [row_of(each) for each in kernels.MAPS],
    "steps of exp": with_steps("exp"),
    "several steps": [
        row_of("exp", Sink(2.0), SinkLogit(1.0), Needle(3.0)),
        row_of("exp", Coca((1.0, 0.5, -0.3, 0.2), 0.1, 0.5)),  # whose scores are not normal
        row_of("exp", SinkLogit(1.0), Coca((1.0, 0.5, -0.3, 0.2), 0.1, 0.5)),
        row_of("sparsemax", Uniform()),
        row_of("sparsemax", Needle(3.0)),
    ],
    "laws of scores": [row_of("relu2", Uniform())],
}


def answers(instrument):
    """Whether an instrument answers; a value out of its reach is no answer and no refusal here."""
    try:
        instrument()
    except sparsity.TooFine:
        return None
    except InputError:
        return False
    return True


def exact_answers(row, quantity):
    if isinstance(row.kernel, kernels.RowMap) and map_laws.slow(row.kernel, quantity):
        return answers(lambda: map_laws.mean_over_map_rows(row, quantity, np.array([2])))
    return answers(lambda: sparsity.exact(row, length=N, of=quantity))


def limit_answers(row, quantity, length):
    return answers(lambda: sparsity.evaluate(row, of=quantity, length=length))


def wrong(row, quantity, say=capabilities):
    """What is said of a quantity of a row and is not so, in a line each."""
    here, anywhere, found = say(row, quantity, N), say(row, quantity), []
    law = exact_answers(row, quantity)
    if law is not None and law != (here.exact and here.missing is None):
        found.append(f"exact: {law}")
    if here.exact and not anywhere.exact:
        found.append("exact: at a length but at none")
    limit = limit_answers(row, quantity, N)
    if limit is not None and limit != (here.limit and here.missing is None):
        found.append(f"limit: {limit}")
    if limit:
        alone = limit_answers(row, quantity, None)
        if alone is not None and alone == anywhere.limit_needs_length:
            found.append(f"limit without a length: {alone}")
    if here.shares_nodes and not (here.exact and not row.steps):
        found.append("shared nodes")
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind",
    [pytest.param(x, marks=[pytest.mark.thorough] * (x in ("maps", "steps of exp"))) for x in ROWS],
)
def test_laws_and_limits_are_there_where_it_says_so(kind):
    cells = list(itertools.product(ROWS[kind], ASKED))
    cells = cells[:: {"kernels": 2, "maps": 5, "steps of exp": 5}.get(kind, 1)]  # of many rows
    found = [(row, quantity.name, w) for row, quantity in cells for w in wrong(row, quantity)]
    assert not found
    said = [capabilities(row, quantity) for row, quantity in cells]
    assert {each.exact for each in said} == {True, False}
    assert {each.limit for each in said} == {True, False}


PLANTED = {
    "exact": lambda x: x._replace(exact=not x.exact),
    "limit": lambda x: x._replace(limit=not x.limit),
    "limit_needs_length": lambda x: x._replace(limit_needs_length=not x.limit_needs_length),
    "missing": lambda x: x._replace(missing=None if x.missing else "sink"),
}


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize(
    ("row", "of"), [(row_of("exp"), "n_eff"), (row_of("exp", SinkLogit(1.0)), "sink_mass")], ids=str
)
def test_a_wrong_answer_is_caught(plant, row, of):
    quantity = quantities.named(of)
    assert wrong(row, quantity) == []
    assert wrong(row, quantity, lambda *given: PLANTED[plant](capabilities(*given)))


TINY = Sampling(0.5, 64, 0)
DRAWN = [
    row_of("exp", Sink(2.0), Needle(3.0)),
    row_of("sparsemax"),
    row_of("decayed"),
    row_of("nonnegative"),
    ROWS["several steps"][1],
]


@functools.cache
def rows_drawn(row):
    """Rows with all the quantities that are said to be sampled: one program for all of them."""
    said = [(each, capabilities(row, each, N)) for each in ASKED]
    return [each for each, known in said if known.sampled and known.missing is None]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "row",
    [pytest.param(x, marks=[pytest.mark.thorough] * (x.kernel.law is Law.SCORE)) for x in DRAWN],
    ids=str,
)
def test_it_is_sampled_where_it_says_so(row):
    sampled = rows_drawn(row)
    whole = row.kernel.law in (Law.SCORE, Law.ROW)
    length = None if row.kernel.law is Law.FEATURES else N
    if whole and sampled:
        drawn = draw_rows(row, N, TINY, tuple(sampled))
        assert all(drawn.estimate(each).samples for each in sampled)
    for quantity in ASKED:
        if quantity not in sampled:
            assert answers(lambda of=quantity: draw(row, TINY, length=length, of=of)) is False
        elif not whole:
            assert draw(row, TINY, length=length, of=quantity).samples


def test_what_has_no_law_for_this_kernel_is_sampled_only():
    """The law of ranks is known for some kernels: a sweep of others was refused as a whole."""
    how = {"gamma": [0.9], "beta": 0.2, "length": [N], "of": "gini", "rel_error": 0.2}
    data = sparsity.sweep("softplus", montecarlo=True, **how)
    assert "gini" not in data
    assert 0 < data.gini_mc.item() < 1
    with pytest.raises(InputError, match="no exact law of ranks"):
        sparsity.sweep("softplus", **how)
