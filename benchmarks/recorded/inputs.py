"""The questions: where each route is asked, over β/γ ∈ [−40, 1e6], γ ∈ [1e−6, 1e6], n to 1e12."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.recorded.cells import Cell
from benchmarks.recorded.score_laws import WEIGHTS

_Z = (
    *(-40.0, -20.0, -16.5, -16.0, -12.3, -8.0, -6.1, -4.0, -3.3, -2.0, -1.5, -1.0, -0.4, -1e-8),
    *(0.0, 1e-8, 0.3, 1.0, 2.7, 5.0, 9.99, 10.0, 13.0, 37.0, 40.0, 1e3, 1e6),
)
_GAMMAS = (1e-6, 1e-3, 0.1, 0.7, 1.0, 2.5, 6.0, 40.0, 1e3, 1e6)
# (β, γ) of quadratures
_PLACES = (
    *((0.0, 1.0), (0.3, 1.7), (-3.0, 1.2), (-8.0, 1.0), (-40.0, 1.0), (2.0, 1e-6), (0.0, 1e-3)),
    *((5.0, 0.1), (0.5, 30.0), (-20.0, 30.0), (400.0, 3.0), (1e6, 1.0), (0.0, 1e4), (-3e5, 1e6)),
)
_EXPONENTIAL = ("cosh", "threshold", "softpick")
_LENGTHS = (1, 2, 10, 1000, 10**6, 10**12)
INTEGRALS = (*("S", "n_eff", "participation", "entropy", "power_sum:3", "power_sum:0.5", "hoyer"),)
POWERS = ("identity", "relu", "relu2", "relu3", "power2", "power4")
OTHERS = (
    *("cosh", "taylor2", "taylor4", "threshold", "softpick", "softplus", "sigmoid", "elu+1"),
    *("elu", "gelu", "silu"),
)
RANKS = ("max_weight", "gini", "top_k_mass:2")
BELOW = ("below:-2", "mass_below:-2", "tiles_below:-2,1", "tiles_mass_below:-2,1")
THRESHOLD_MAPS = ("sparsemax", "entmax1.5")
OF_THRESHOLD_MAPS = ("S", "n_eff", "participation", "max_weight", "support")
OF_SOFTMAX = (*("n_eff", "participation", "entropy", "hoyer", "power_sum:3"),)
OF_TOP_K = ("S", "n_eff", "participation", "entropy", "varentropy", "power_sum:3")
OF_DECAYED = ("S", "n_eff", "participation")
# Quantities of a key with a fixed score, and the step that names it
STEPS_OF_LIMITS = (("sink_mass", "sink"), ("needle_mass", "needle"), ("needle_signal", "needle"))
STEPS_OF_ROWS = (
    *STEPS_OF_LIMITS, ("sink_mass", "sink-logit"), ("participation", "sink-logit"),
)  # fmt: skip
CHANCES = (
    *(("needle_odds_above:0.7", "needle"), ("needle_snr_above:1.5", "needle")),
    *(("sink_mass_above:0.3", "sink"), ("needle_largest", "needle")),
)
Given = dict[str, Any]


def _evaluate(kernel: str, **asked: Any) -> Cell:
    return Cell({"call": "evaluate", "kernel": kernel, **asked})


def exact_cell(of: str, kernel: str, length: int, **own: Any) -> Cell:
    """Return a question to an exact law; "steps" are pairs of a name and numbers."""
    return Cell({"call": "exact", "kernel": kernel, "of": of, "length": length, **own})


def closed_forms() -> Iterator[Cell]:
    """Yield questions to the closed forms of log S."""
    for gamma in _GAMMAS:
        for beta in (0.0, -3.0):
            yield _evaluate("exp", beta=beta, gamma=gamma)
    for kernel in ("relu2", "identity", "abs"):
        for z in _Z:
            for gamma in (1e-6, 0.7, 1e6):
                yield _evaluate(kernel, beta=z * gamma, gamma=gamma)
    for query in ("uniform", "one-hot", "half-normal"):
        for ratio in (1e-6, 0.03, 0.5, 1.0, 2.0, 77.0, 1e6):
            for dim in (1, 2, 64, 1000):
                yield _evaluate("nonnegative", ratio=ratio, dim=dim, query=query)
    near_one = (1.0, 1 - 2.0**-53, 1 - 1e-12, 1 - 1e-6, 0.999)
    for decay in (*near_one, 0.9, 0.5, 0.1, 1e-3, 1e-16, 1e-300):
        for length in (1, 2, 3, 60, 10**3, 10**6, 10**12):
            yield _evaluate("decayed", decay=decay, length=length)


def quadratures() -> Iterator[Cell]:
    """Yield questions to the quadrature of every function of a score."""
    for kernel in WEIGHTS:
        for beta, gamma in _PLACES:
            if kernel in _EXPONENTIAL and gamma > 1e3:
                continue  # no reference is found: moments of e^(γ²) with two features or more
            yield _evaluate(kernel, beta=beta, gamma=gamma, method="quadrature")


def limits() -> Iterator[Cell]:
    """Yield questions to the limits of long rows: of softmax's quantities, and of maps."""
    for of in (*OF_SOFTMAX, "power_sum:0.5", "overlap:0.7", "top_k_overlap:50,0.7"):
        for gamma in (1e-3, 0.3, 1.0, 2.5, 4.0):
            for length in (100, 10**6):
                yield _evaluate("exp", beta=0.3, gamma=gamma, of=of, length=length)
    for of, step in STEPS_OF_LIMITS:
        for gamma in (1e-3, 0.3, 1.0, 4.0):
            for place, length in ((-2.0, 2), (3.0, 100), (20.0, 10**6)):
                steps = [[step, [place]]]
                yield _evaluate("exp", gamma=gamma, of=of, steps=steps, length=length)
    for gamma in (1e-3, 1.0, 6.0):
        for slope, length in ((0.5, 2), (0.1, 60), (1e-4, 1000), (20.0, 1000)):
            yield _evaluate("exp", gamma=gamma, steps=[["alibi", [slope]]], length=length)
    for gamma, gamma2, rho, mix in (
        *((1.0, 1.0, 0.0, 0.5), (2.0, 1.0, 0.5, 0.8), (0.1, 0.3, -0.5, 0.2), (3.0, 3.0, 0.9, 1.5)),
        *((1e-3, 2e-3, 0.0, 0.1), (10.0, 9.0, -1.0, 0.9), (1.0, 1.0, 0.99, 0.99)),
    ):
        yield _evaluate("differential", gamma=gamma, gamma2=gamma2, rho=rho, mix=mix)
    for gamma, gate, spread in (
        (1.0, 2.0, 1.0),
        (0.1, 6.0, 0.0),
        (2.0, -1.0, 2.0),
        (3.0, 9.0, 3.0),
    ):
        for length in (1, 10, 1000, 10**6):
            own: Given = {"gamma": gamma, "gate": gate, "gate_spread": spread}
            yield _evaluate("forgetting", **own, length=length)
    for gamma, sigma, features, dim in (
        *((1.0, 0.3, 64, 16), (0.1, 0.7, 1, 1), (2.0, 0.1, 256, 64), (1e-3, 1e-2, 8, 128)),
    ):
        yield _evaluate("performer", gamma=gamma, sigma=sigma, features=features, dim=dim)


def transforms() -> Iterator[Cell]:
    """Yield questions to the Laplace transforms of a weight."""
    for kernel in WEIGHTS:
        for power, order, u in (
            *((1, None, -1.0), (1, None, -20.0), (2, None, 3.0), (1, 1.0, 0.5), (1, 2.0, -2.0)),
            *((2, 0.5, -4.0), (2, 1.0, 2.0), (2, 0.5, 4.0)),
        ):
            for beta, gamma in ((0.3, 1.7), (-1.0, 0.4)):
                asked: Given = {"call": "laplace", "kernel": kernel, "beta": beta, "gamma": gamma}
                yield Cell(asked | {"power": power, "order": order, "u": u})


def exact_laws() -> Iterator[Cell]:
    """Yield questions to exact laws that are one integral over u."""
    for of in INTEGRALS:
        for gamma in (0.1, 1.0, 3.0, 10.0, 30.0):
            for length in _LENGTHS[1:] if of == "hoyer" else _LENGTHS:
                yield exact_cell(of, "exp", length, gamma=gamma)
    for kernel in POWERS:
        for beta in (-40.0, -5.0, -0.7, 0.0, 0.3, 6.0, 40.0):
            for length in (2, 100, 10**6, 10**12):
                yield exact_cell("n_eff", kernel, length, beta=beta, gamma=1.0)
    for kernel in ("relu2", "identity"):
        for of in ("S", "participation", "entropy", "power_sum:3"):
            for beta in (-3.0, 0.0, 1.0):
                for length in (2, 1000, 10**9):
                    yield exact_cell(of, kernel, length, beta=beta, gamma=1.0)
    for length in (2, 100, 10**6):
        yield exact_cell("n_eff", "abs", length, beta=0.3, gamma=1.0)
    for of, step in STEPS_OF_ROWS:
        for gamma in (1.0, 3.0, 10.0):
            for length in (2, 10, 1000, 10**9):
                for place in (-2.0, 3.0, 20.0):
                    yield exact_cell(of, "exp", length, gamma=gamma, steps=[[step, [place]]])


def few_tokens() -> Iterator[Cell]:
    """Yield questions to ranks, chances and maps of rows whose definition is an integral."""
    for gamma in (0.1, 1.0, 3.0, 10.0):
        for of in (*RANKS[:2], "varentropy"):
            yield exact_cell(of, "exp", 2, gamma=gamma)
        if gamma <= 3:  # wider rows of two are not resolved
            yield exact_cell("keys_for_mass:0.9", "exp", 2, gamma=gamma)
        for rho in (-0.6, 0.5) if gamma <= 1 else ():
            yield exact_cell(f"overlap:{rho}", "exp", 2, gamma=gamma)
            yield exact_cell(f"top_k_overlap:1,{rho}", "exp", 2, gamma=gamma)
        for of in BELOW if gamma >= 1 else ():  # of narrower rows it is next to nothing
            yield exact_cell(of, "exp", 2, gamma=gamma)
            yield exact_cell(of, "tile-softmax:2", 2, gamma=gamma, within=0.3)
        for of in ("abs_sum", "square_sum"):
            yield exact_cell(of, "exp", 10**6, beta=-3.0, gamma=gamma)
        if gamma <= 3:
            for of in RANKS:
                yield exact_cell(of, "exp", 3, gamma=gamma)
    for kernel in ("identity", "relu", "relu2", "power2", "power4"):
        for of in RANKS[:2]:
            yield exact_cell(of, kernel, 2, beta=0.0, gamma=1.3)
    for kernel in THRESHOLD_MAPS:
        for of in OF_THRESHOLD_MAPS:
            for gamma in (0.3, 1.0, 4.0) if kernel == "sparsemax" else (1.0,):
                yield exact_cell(of, kernel, 2, gamma=gamma)
    for of in OF_TOP_K:
        for gamma in (0.5, 3.0):
            for length in (3, 100, 10**6):
                yield exact_cell(of, "topk:2", length, gamma=gamma)
    for gamma, rho in ((1.0, 0.5), (3.0, 0.8)):
        for of in ("abs_sum", "recall"):
            yield exact_cell(of, "router:1", 2, gamma=gamma, rho=rho)
    for length in (3, 100):
        for of in ("S", "n_eff", "participation"):
            yield exact_cell(of, "router:2", length, gamma=1.0, rho=0.5)
    for decay in (1 - 1e-12, 0.999, 0.5, 1e-3):
        for of in OF_DECAYED:
            for length in (1, 60, 10**6):
                yield exact_cell(of, "decayed", length, decay=decay)
    for gamma in (0.1, 1.0, 4.0):
        for slope in (0.1, 3.0):
            for of in ("S", "n_eff", "participation", "entropy"):
                yield exact_cell(of, "exp", 2, gamma=gamma, steps=[["alibi", [slope]]])
    for center, spread in ((10.0, 1.0), (0.5, 0.05), (0.5, 0.0625)):
        yield exact_cell("n_eff", "exp", 2, steps=[["coca", [[1.0, 0.5], center, spread]]])
    for gamma in (0.5, 2.0):
        for place in (-1.0, 2.0, 5.0):
            for of, step in CHANCES:
                for length in (2, 100, 10**6) if of == "needle_largest" else (2, 3):
                    if length < 10**6 or place >= 4 * gamma:  # else below float64's range
                        yield exact_cell(of, "exp", length, gamma=gamma, steps=[[step, [place]]])
            steps = [["needle", [place]]]
            yield exact_cell("needle_recall:2", "exp", 2, gamma=gamma, steps=steps)


def other_kernels() -> Iterator[Cell]:
    """Yield questions to exact laws whose references take minutes."""
    for kernel in OTHERS:
        # Near a zero of f, nodes are many.
        places = ((0.3, 1.0),) if kernel in ("elu", "gelu", "silu") else ((0.3, 1.0), (-1.0, 2.0))
        for beta, gamma in places:
            for length in (2, 100, 10**6, 10**12):
                yield exact_cell("n_eff", kernel, length, beta=beta, gamma=gamma)


def questions() -> Iterator[Cell]:
    """Yield every question, each once."""
    seen = set()
    for part in (
        closed_forms,
        quadratures,
        limits,
        transforms,
        exact_laws,
        few_tokens,
        other_kernels,
    ):
        for cell in part():
            if cell.key not in seen:
                seen.add(cell.key)
                yield cell
