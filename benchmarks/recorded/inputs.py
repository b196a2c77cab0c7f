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
_LENGTHS = (1, 2, 10, 1000, 10**6, 10**12)
INTEGRALS = (
    *("S", "n_eff", "participation", "entropy", "power_sum:3", "power_sum:0.5", "hoyer"),
    "pq_index:1,2",
)
POWERS = ("identity", "relu", "relu2", "relu3", "power2", "power4")
OTHERS = (
    *("cosh", "taylor2", "taylor4", "threshold", "softpick", "softplus", "sigmoid", "elu+1"),
    *("elu", "gelu", "silu"),
)
RANKS = ("max_weight", "gini", "top_k_mass:2")
THRESHOLD_MAPS = ("sparsemax", "entmax1.5", "entmax:1.25")
OF_THRESHOLD_MAPS = ("S", "n_eff", "participation", "max_weight", "support")
Given = dict[str, Any]


def _evaluate(member: str, unit: str, **asked: Any) -> Cell:
    return Cell(member, {"call": "evaluate", **asked}, unit)


def exact_cell(of: str, kernel: str, length: int, **own: Any) -> Cell:
    """Return a question to an exact law."""
    named = kernel if kernel in WEIGHTS or kernel not in ("exp",) else "exp"
    asked = {"call": "exact", "kernel": kernel, "of": of, "length": length, **own}
    return Cell(f"exact law: {of.partition(':')[0]} of {named}", asked, "relative")


def closed_forms() -> Iterator[Cell]:
    """Yield questions to the closed forms of log S."""
    for gamma in _GAMMAS:
        for beta in (0.0, -3.0):
            yield _evaluate("closed form: exp", "relative", kernel="exp", beta=beta, gamma=gamma)
    for kernel in ("relu2", "identity"):
        for z in _Z:
            for gamma in (1e-6, 0.7, 1e6):
                asked = {"kernel": kernel, "beta": z * gamma, "gamma": gamma}
                yield _evaluate(f"closed form: {kernel}", "relative", **asked)
    for query in ("uniform", "one-hot", "half-normal"):
        for ratio in (1e-6, 0.03, 0.5, 1.0, 2.0, 77.0, 1e6):
            for dim in (1, 2, 64, 1000):
                asked = {"kernel": "nonnegative", "ratio": ratio, "dim": dim, "query": query}
                yield _evaluate("closed form: nonnegative", "relative", **asked)
    near_one = (1.0, 1 - 2.0**-53, 1 - 1e-12, 1 - 1e-6, 0.999)
    for decay in (*near_one, 0.9, 0.5, 0.1, 1e-3, 1e-16, 1e-300):
        for length in (1, 2, 3, 60, 10**3, 10**6, 10**12):
            asked = {"kernel": "decayed", "decay": decay, "length": length}
            yield _evaluate("closed form: decayed", "relative", **asked)


def quadratures() -> Iterator[Cell]:
    """Yield questions to the quadrature of every function of a score."""
    for kernel in WEIGHTS:
        for beta, gamma in _PLACES:
            asked = {"kernel": kernel, "beta": beta, "gamma": gamma, "method": "quadrature"}
            yield _evaluate(f"quadrature: {kernel}", "log", **asked)


def limits() -> Iterator[Cell]:
    """Yield questions to the limits of long rows: of softmax's quantities, and of maps."""
    every = ("n_eff", "participation", "entropy", "gini", "hoyer", "power_sum:3", "power_sum:0.5")
    for of in (*every, "pq_index:1,2", "pq_index:2,3.5", "top_k_mass:8", "keys_for_mass:0.5"):
        for gamma in (1e-3, 0.3, 1.0, 2.5, 4.0):
            for length in (100, 10**6):
                asked = {"kernel": "exp", "beta": 0.3, "gamma": gamma, "of": of}
                yield _evaluate(f"limit: {of.partition(':')[0]}", "relative", **asked, length=length)
    for gamma, gamma2, rho, mix in (
        *((1.0, 1.0, 0.0, 0.5), (2.0, 1.0, 0.5, 0.8), (0.1, 0.3, -0.5, 0.2), (3.0, 3.0, 0.9, 1.5)),
        *((1e-3, 2e-3, 0.0, 0.1), (10.0, 9.0, -1.0, 0.9), (1.0, 1.0, 0.99, 0.99)),
    ):
        asked = {"kernel": "differential", "gamma": gamma, "gamma2": gamma2, "rho": rho, "mix": mix}
        yield _evaluate("limit: differential", "log", **asked)
    for gamma, gate, spread in ((1.0, 2.0, 1.0), (0.1, 6.0, 0.0), (2.0, -1.0, 2.0), (3.0, 9.0, 3.0)):
        for length in (1, 10, 1000, 10**6):
            asked = {"kernel": "forgetting", "gamma": gamma, "gate": gate, "gate_spread": spread}
            yield _evaluate("limit: forgetting", "log", **asked, length=length)
    for gamma, sigma, features, dim in (
        *((1.0, 0.3, 64, 16), (0.1, 0.7, 1, 1), (2.0, 0.1, 256, 64), (1e-3, 1e-2, 8, 128)),
    ):
        asked = {"gamma": gamma, "sigma": sigma, "features": features, "dim": dim}
        yield _evaluate("limit: performer", "log", kernel="performer", **asked)


def transforms() -> Iterator[Cell]:
    """Yield questions to the Laplace transforms of a weight."""
    for kernel in WEIGHTS:
        for power, order, u in (
            *((1, None, -1.0), (1, None, -20.0), (2, None, 3.0), (1, 1.0, 0.5), (1, 2.0, -2.0)),
            *((2, 0.5, -4.0), (2, 1.0, 2.0), (2, 0.5, 9.0)),
        ):
            for beta, gamma in ((0.3, 1.7), (-1.0, 0.4)):
                asked = {"call": "laplace", "kernel": kernel, "beta": beta, "gamma": gamma}
                asked |= {"power": power, "order": order, "u": u}
                yield Cell(f"transform: {kernel}", asked, "relative")


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
    for kernel in OTHERS:
        for beta, gamma in ((0.3, 1.0), (-1.0, 2.0)):
            for length in (2, 100, 10**6, 10**12):
                yield exact_cell("n_eff", kernel, length, beta=beta, gamma=gamma)
    for gamma in (1.0, 3.0, 10.0):
        for length in (1, 10, 1000, 10**9):
            for place in (-2.0, 3.0, 20.0):
                logit: Given = {"gamma": gamma, "steps": [["sink-logit", [place]]]}
                yield exact_cell("sink_mass", "exp", length, **logit)
                yield exact_cell("participation", "exp", length, **logit)
                if length > 1:
                    for of, step in (("sink_mass", "sink"), *_NEEDLES):
                        own: Given = {"gamma": gamma, "steps": [[step, [place]]]}
                        yield exact_cell(of, "exp", length, **own)


_NEEDLES = (("needle_mass", "needle"), ("needle_signal", "needle"))


def few_tokens() -> Iterator[Cell]:
    """Yield questions to ranks, chances and maps, in rows of which the definition is an integral."""
    for gamma in (0.1, 1.0, 3.0, 10.0):
        for of in RANKS[:2]:
            yield exact_cell(of, "exp", 2, gamma=gamma)
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
    for of in ("S", "n_eff", "participation", "entropy", "power_sum:3"):
        for gamma in (0.5, 3.0):
            for length in (3, 100, 10**6):
                yield exact_cell(of, "topk:2", length, gamma=gamma)
    for of in ("S", "n_eff", "participation", "entropy"):
        for gate, spread in ((2.0, 0.0), (1.0, 1.0)):
            own: Given = {"gamma": 1.2, "gate": gate, "gate_spread": spread}
            yield exact_cell(of, "forgetting", 2, **own)
    for beta, gamma in ((0.0, 1.0), (-3.0, 0.5), (-4.6, 2.0)):
        for of in ("participation", "entropy"):
            for length in (2, 30, 1000):
                yield exact_cell(of, "stick-breaking", length, beta=beta, gamma=gamma)
        for of in ("n_eff", "max_weight"):
            yield exact_cell(of, "stick-breaking", 2, beta=beta, gamma=gamma)
    for gamma, gamma2, rho, mix in ((1.0, 1.0, 0.0, 0.5), (2.0, 1.0, 0.5, 0.8)):
        own = {"gamma": gamma, "gamma2": gamma2, "rho": rho, "mix": mix}
        for of in ("square_sum", "abs_sum"):
            yield exact_cell(of, "differential", 2, **own)
    for gamma, rho in ((1.0, 0.5), (3.0, 0.8)):
        for of in ("abs_sum", "recall"):
            yield exact_cell(of, "router:1", 2, gamma=gamma, rho=rho)
        yield exact_cell("abs_sum", "block-router:1,1", 2, gamma=gamma, within=0.3)
    for gamma in (0.5, 2.0):
        for place in (-1.0, 2.0):
            for length in (2, 3):
                for of in ("needle_odds_above:0.7", "needle_snr_above:1.5"):
                    own = {"gamma": gamma, "steps": [["needle", [place]]]}
                    yield exact_cell(of, "exp", length, **own)
                own = {"gamma": gamma, "steps": [["sink", [place]]]}
                yield exact_cell("sink_mass_above:0.3", "exp", length, **own)
            for length in (2, 100, 10**6):
                own = {"gamma": gamma, "steps": [["needle", [place + 3]]]}
                yield exact_cell("needle_largest", "exp", length, **own)
            own = {"gamma": gamma, "steps": [["needle", [place]]]}
            yield exact_cell("needle_recall:2", "exp", 2, **own)


def questions() -> Iterator[Cell]:
    """Yield every question, each once."""
    seen = set()
    for part in (closed_forms, quadratures, limits, transforms, exact_laws, few_tokens):
        for cell in part():
            if cell.key not in seen:
                seen.add(cell.key)
                yield cell
