"""Points per second of theory: closed forms and quadrature against SciPy's and mpmath's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bench.grid import Task
from benchmarks.bench.timing import paired
from sparsity import kernels
from sparsity.kernels import Kernel
from sparsity.limit import closed_form, quadrature
from sparsity.limit.evaluation import evaluate

_REACH = 40.0  # of ε: holds all but e^−300 of every integrand of the grid


def weight(name: str, exp: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """|f| of one score, as whoever integrates it writes it; `exp` of their numbers."""
    return {"exp": exp, "relu2": lambda s: s * s if s > 0 else 0 * s, "identity": abs}[name]


def _pieces(cell: Task) -> list[float]:
    """The range of ε, cut at the kink of the two kernels that have one."""
    kink = [] if cell.kernel is kernels.exp else [-cell.beta / cell.gamma]
    return [-_REACH, *kink, _REACH]


def _scipy_quad(cell: Task) -> float:
    from scipy.integrate import quad

    f = weight(cell.kernel.name, math.exp)

    def moment(p: int) -> float:
        def integrand(t: float) -> float:
            return f(cell.beta + cell.gamma * t) ** p * math.exp(-0.5 * t * t)

        low, *kink, high = _pieces(cell)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return quad(integrand, low, high, points=kink or None, epsabs=0, limit=200)[0]

    return math.log(moment(1)) - 0.5 * math.log(moment(2)) - 0.25 * math.log(2 * math.pi)


def _mpmath_quad(cell: Task) -> float:
    import mpmath

    f = weight(cell.kernel.name, mpmath.exp)

    def moment(p: int) -> Any:
        return mpmath.quad(
            lambda t: f(cell.beta + cell.gamma * t) ** p * mpmath.exp(-t * t / 2), _pieces(cell)
        )

    with mpmath.workdps(15):
        value = mpmath.log(moment(1)) - mpmath.log(moment(2)) / 2 - mpmath.log(2 * mpmath.pi) / 4
        return float(value)


def _quadrature(cell: Task) -> float:
    bound = {"beta": np.float64(cell.beta), "gamma": np.float64(cell.gamma)}
    return float(quadrature.log_sparsity(cell.kernel, bound)[0])


_INTEGRATORS: dict[str, tuple[str, Callable[[Task], float]]] = {
    "sparsity": ("sparsity's quadrature of the definition, with an error bound", _quadrature),
    "scipy.quad": ("scipy.integrate.quad of f·φ and f²·φ, split at the kink, relative 1.5e-8",
                   _scipy_quad),
    "mpmath.quad": ("mpmath.quad of the same at 15 digits, split at the kink", _mpmath_quad),
}  # fmt: skip


def integrators(cells: Sequence[Task], rounds: int) -> list[dict[str, Any]]:
    """Points per second and the worst |Δ log S| of each integrator over the cells, interleaved."""
    truth = np.array([cell.log_S for cell in cells])
    works = {name: lambda _, f=f: [*map(f, cells)] for name, (_, f) in _INTEGRATORS.items()}
    done = paired(works, rounds)
    return [
        {
            "name": name,
            "what": what,
            "points_per_second": len(cells) / median(done.seconds[name]),
            "worst_error": float(np.max(np.abs(done.results[name][0] - truth))),
        }
        for name, (what, _) in _INTEGRATORS.items()
    ]


def _points(kernel: Kernel, count: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    drawn = {
        "beta": rng.uniform(-6, 3, count),
        "gamma": rng.uniform(0.5, 6, count),
        "decay": rng.uniform(0.5, 1, count),
        "length": rng.integers(1, 10**6, count).astype(float),
        "ratio": rng.uniform(0.1, 10, count),
        "dim": rng.choice([1.0, 64.0, 4096.0], count),
        "query": "uniform",
    }
    return kernel.bind({p.name: drawn[p.name] for p in kernel.parameters})


def closed_forms(count: int, rounds: int) -> list[dict[str, Any]]:
    """Points per second of each closed form on arrays, and of `evaluate`, which checks as well."""
    rows = []
    for kernel in kernels.ALL:
        bound = _points(kernel, count)
        done = paired(
            {
                "form": lambda _, k=kernel, b=bound: closed_form.sparsity(k, b)[1],
                "evaluate": lambda _, k=kernel, b=bound: evaluate(k, method="closed form", **b),
            },
            rounds,
        )
        rows.append(
            {
                "kernel": kernel.name,
                "points": count,
                "points_per_second": count / median(done.seconds["form"]),
                "evaluate_points_per_second": count / median(done.seconds["evaluate"]),
            }
        )
    return rows
