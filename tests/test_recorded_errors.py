"""No route is off by more than a small multiple of what is recorded, its worst case included.

The table, its references and the search for worst cases are `benchmarks/recorded`.
"""

import functools
import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

pytest.importorskip("flint")

import sparsity
from benchmarks import recorded
from benchmarks.recorded.cells import LEAST, Cell, allowed, ask, extended_error, load
from benchmarks.recorded.inputs import questions
from benchmarks.recorded.page import PAGE, page
from benchmarks.recorded.references import reference
from benchmarks.recorded.search import spaces
from sparsity import kernels, quantities
from sparsity.exact_law import integration, map_laws
from sparsity.limit import closed_form, map_limits

CELLS = load()
ALLOWED = allowed(CELLS)
# Of each member the worst: the others run with `pytest -m slow`.
AT_FIRST = 1
# A question takes a second or more: what they are off by is tested with `pytest -m slow`.
SLOW = (
    *(f"exact law: {of} of {kernel}" for of in ("S", "n_eff", "max_weight") for kernel in
      ("entmax1.5",)),
    "exact law: abs_sum of router:1",
    "exact law: needle_recall of exp with needle",
    "transform: gelu",
    *(f"exact law: {of} of router:2" for of in ("S", "n_eff", "participation")),
)  # fmt: skip


@functools.cache
def members() -> dict[str, list[Cell]]:
    """Return the cells of each member, the worst first."""
    found: dict[str, list[Cell]] = {}
    for cell in sorted(CELLS, key=lambda cell: -cell.error):
        found.setdefault(cell.member, []).append(cell)
    return found


def worse(cells: list[Cell]) -> list[str]:
    """Return the cells that are off by more than is allowed, each as a line."""
    found = []
    for cell in cells:
        value, _ = ask(cell)
        error = extended_error(value, cell.reference, cell.unit)
        if not error <= ALLOWED[cell.key]:
            found.append(f"{cell.key}: {error:.2e}, recorded {cell.error:.2e}")
    return found


def routes() -> list[str]:
    """Return the names that members must have, each of what the library's tuples hold."""
    closed = [kernel.name for kernel in kernels.known() if kernel.weight in closed_form.FORMS]
    assert len(closed) == len(closed_form.FORMS)
    found = [f"closed form: {name}" for name in closed]
    scored = [each.name for each in kernels.ALL if each.law is kernels.Law.SCORE]
    for route in ("quadrature: ", "transform: ", "exact law: n_eff of "):
        found += [route + name for name in scored]
    found += [f"limit: {family}" for family in map_limits._LIMITS]
    examples = [f"{each.name}:{each.example}" for each in quantities.FAMILIES]
    every = [*quantities.ALL, *quantities.OF_MAPS, *map(quantities.named, examples)]
    for quantity in every:
        name = quantity.name.partition(":")[0]
        found += [f"limit: {name}"] * quantity.has_limit
        found += [f"exact law: {name} of exp"] * quantity.has_law
        families = [kernel.family for kernel in kernels.MAPS if map_laws.has(kernel, quantity)]
        found += [f"exact law: {name} of {family}" for family in families]
    return found + [f"exact law: {of} of decayed" for of in quantities.POWERS_OF_S_AND_N]


# Routes without a member of their own, and why.
WITHOUT = {
    "limit: S": "of kernels it is their closed form or quadrature, of rows `limit: exp with alibi`",
    **{
        f"exact law: {of} of {kernel.family}": "one minus S of the same row, or a line of it"
        for of in ("hoyer",)
        for kernel in kernels.MAPS
        if map_laws.has(kernel, quantities.S)
    },
    "exact law: weight of exp": "the law of needle_mass, at another token",
    "limit: kl_uniform": "ln n less the entropy",
    "exact law: kl_uniform of exp": "ln n less the entropy of the same row",
    "exact law: kl_uniform of topk": "ln n less the entropy of the same row",
    "exact law: support of topk": "a number of keys, which no integral is needed for",
}


def missing(routes: list[str], members: list[str]) -> list[str]:
    """Return the routes without a member: one of that name, or with a number or step besides."""
    return [
        route
        for route in routes
        if not any(m == route or m.startswith((f"{route}:", f"{route} with")) for m in members)
    ]


def test_every_route_has_a_member():
    needed = [route for route in routes() if route not in WITHOUT]
    assert not missing(needed, list(members()))
    assert len(needed) >= 60
    # Kernels of the zoo share these routes with every formula: a new one need not have cells.
    for route in ("quadrature: ", "transform: ", "exact law: n_eff of "):
        assert sum(route + each.name in members() for each in kernels.ZOO) >= 16
    assert set(WITHOUT) <= set(routes())
    assert missing(needed, [m for m in members() if m != "limit: entropy"]) == ["limit: entropy"]


@pytest.mark.thorough
def test_no_cell_is_worse_than_recorded():
    cells = [cell for m, own in members().items() if m not in SLOW for cell in own[:AT_FIRST]]
    assert not worse(cells)
    assert len({cell.member for cell in cells}) == len(members()) - len(SLOW) >= 110


@pytest.mark.slow
def test_every_third_cell_is_no_worse_than_recorded():
    cells = [cell for own in members().values() for cell in own[::3]]
    assert not worse(cells)


def test_errors_are_numbers_within_their_bounds():
    for cell in CELLS:
        assert 0 <= cell.error <= cell.bound or cell.error == 0, cell.key
        assert math.isfinite(cell.error)
    assert len({cell.key for cell in CELLS}) == len(CELLS)


def planted(cell: Cell) -> float:
    """Return the error of an answer that has lost two digits of today's, or of rounding."""
    truth = float(cell.reference)
    size = max(abs(truth), 1.0) if cell.unit == "log" else abs(truth)
    value = truth + 100 * max(cell.error, LEAST) * size
    return extended_error(value, cell.reference, cell.unit)


def test_a_loss_of_two_digits_is_seen_in_every_member():
    caught = [cell for cell in CELLS if float(cell.reference) and planted(cell) > ALLOWED[cell.key]]
    assert {cell.member for cell in caught} == set(members())
    assert len(caught) > 0.9 * len(CELLS)
    for own in members().values():
        worst = next(cell for cell in own if float(cell.reference))
        assert planted(worst) > ALLOWED[worst.key]


def test_a_planted_error_of_the_library_is_seen(monkeypatch):
    form = closed_form.FORMS[kernels.relu2.weight]
    cells = members()["closed form: relu2"][:20]
    assert not worse(cells)
    off = {kernels.relu2.weight: lambda **own: form(**own) * (1 + 1e-13)}
    monkeypatch.setattr(closed_form, "FORMS", {**closed_form.FORMS, **off})
    assert len(worse(cells)) == 20


def test_the_page_is_that_of_the_table():
    assert PAGE.read_text("utf-8") == page(CELLS)


@pytest.mark.parametrize(
    ("value", "truth", "unit", "error"),
    [
        (1.0, "1", "relative", 0.0),
        (1.5, "1", "relative", 0.5),
        (-1.5, "-0.5", "log", 1.0),
        (0.0, "0", "relative", 0.0),
        (1e-300, "0", "relative", 1e-300 / 2.0**-1022),
        (8.0, "0", "relative", np.finfo(float).max),
        (math.inf, "inf", "relative", 0.0),
        (math.nan, "1", "relative", math.inf),
        (math.nan, "inf", "log", math.inf),
    ],
)
def test_an_error_is_never_nan(value, truth, unit, error):
    assert extended_error(value, truth, unit) == pytest.approx(error, rel=1e-12)


def test_references_are_made_without_the_library():
    folder = Path(recorded.__file__).parent
    for name in ("few_tokens", "row_laws", "score_laws"):
        text = (folder / f"{name}.py").read_text("utf-8")
        assert "import sparsity" not in text
        assert "from sparsity" not in text


@pytest.mark.slow
def test_references_are_those_of_the_scripts():
    quick = [own[-1] for m, own in members().items() if "exact law" not in m or "of exp" in m]
    for cell in quick:
        with mp.workdps(40):
            again = mpf(reference(cell))
            assert abs(again - mpf(cell.reference)) <= mpf(10) ** -29 * max(abs(again), 1)


def test_every_question_has_its_cell_and_every_search_its_worst_case():
    chosen = {cell.key for cell in CELLS if not cell.evaluations}
    assert chosen == {cell.key for cell in questions()}
    searched = {space.member: space.budget for space in spaces()}
    assert len(searched) == len(spaces()) >= 90
    found = {cell.member: cell.evaluations for cell in CELLS if cell.evaluations}
    assert all(found[member] >= searched[member] for member in found)


def n_eff_of_two(gamma):
    """E[(Σa)²/Σa²] = 1 + E[1/cosh d] of two softmax weights, d ~ N(0, 2γ²) between their scores."""
    with mp.workdps(30):
        spread = mpf(gamma) * mpmath.sqrt(2)
        density = lambda d: mpmath.npdf(d, 0, spread) * mpmath.sech(d)  # noqa: E731
        reach = min(14 * spread, 80)
        half: Any = mpmath.quad(density, mpmath.linspace(0, reach, 40))
        return 1 + 2 * half


@pytest.mark.parametrize("gamma", [1.0, 30.0, 137.3])
def test_the_sum_over_a_grid_has_the_step_of_its_grid(gamma):
    # NumPy's arange steps by (start + step) − start: this was off by 2e-14 … 9e-13.
    found = float(sparsity.exact("exp", gamma=gamma, length=2))
    assert abs(found / n_eff_of_two(gamma) - 1) < 4e-15


def test_points_of_a_grid_are_rounded_one_by_one():
    low, step = -20_000.3, 0.16
    points = integration.grid_points(low, 400.0, step)
    assert len(points) == math.ceil((400.0 - low) / step) > 100_000
    ideal = low + step * np.arange(len(points))
    assert np.array_equal(points, ideal)
    assert points[-1] < 400.0
    off = np.arange(low, 400.0, step)[-1] - points[-1]
    assert abs(off) > 1e-8  # what it is for
