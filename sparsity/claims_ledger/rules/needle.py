"""Judges of what a row can hold: the needle's signal, and the capacities of three kernels."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from sparsity import metric
from sparsity.claims_ledger.judging import Judged, Routes, core, instead, letter
from sparsity.limit.capacity import needle_capacity
from sparsity.sampling.first_passage import sample_capacity

_DIMS = (8, 16, 24, 32)
_QUERIES = (0.25, 1.0, 4.0)  # lengths t of the query
_STEEP = (2.0, 3.0, 4.0, 8.0)  # of it, at d = 16, from its best place √d/2 on
_ROUNDING = 1e-12


def signal_to_noise(routes: Routes, seed: int) -> Judged:
    """SNR of drawn rows with values, against odds and n_eff of the others."""
    rng, dim, rows, keys = np.random.default_rng(seed), 512, 40, 64
    off, drawn, law = 0.0, [], []
    for _ in range(rows):
        others, needle = np.exp(rng.standard_normal(keys)), math.exp(3.0)
        odds = needle / others.sum()
        snr = needle / math.sqrt((others**2).sum())
        off = max(off, abs(odds * math.sqrt(float(metric.n_eff(others))) / snr - 1))
        noise = others @ rng.standard_normal((keys, dim))  # of what is read out, [dim]
        drawn.append(math.log(needle / math.sqrt(float((noise**2).mean()))))
        law.append(math.log(snr))
    gap = np.array(drawn) - np.array(law)
    error = float(gap.std(ddof=1)) / math.sqrt(rows)
    # A mean square of d numbers: ln of its root is lower by 1/(2d) on the average.
    z = (float(gap.mean()) - 0.5 / dim) / error
    findings = [
        core("a*/√Σa² = odds·√n_eff of the others in every row, to rounding", off < _ROUNDING),
        core(
            f"what {rows} rows read out of values N(0, I) in R^{dim} has that ratio: "
            f"z = {z:+.1f}, at an error of {error:.1%}",
            abs(z) < 4.5,
        ),
    ]
    return findings, {"rows": rows, "rounding": off, "z": z, "error": error}


def linear_capacity(routes: Routes, seed: int) -> Judged:
    """The capacity of identity scores, whatever the query's length."""
    law = [needle_capacity("identity", dim=d, query=t).value for d in _DIMS for t in _QUERIES]
    drawn = [sample_capacity("identity", dim=d, query=2.0, seed=seed) for d in _DIMS]
    held = [each.value for each in drawn]
    findings = [
        core(
            f"SNR = 1 at n = d, for queries of lengths {_QUERIES[0]:g} to {_QUERIES[-1]:g}",
            np.allclose(law, np.repeat(_DIMS, len(_QUERIES)), rtol=_ROUNDING),
        ),
        core(
            "rows that grow key by key hold as many: "
            + ", ".join(f"{x:g} at d = {d}" for x, d in zip(held, _DIMS, strict=True)),
            all(abs(x.value - d) <= 4.5 * x.stderr + 1
                for x, d in zip(drawn, _DIMS, strict=True)),
        ),
    ]  # fmt: skip
    return findings, {"dims": _DIMS, "held": held}


def softmax_capacity(routes: Routes, seed: int) -> Judged:
    """The capacity of softmax at its best query, and of longer queries."""
    dims = _DIMS[:3]
    law = [needle_capacity("exp", dim=d, query=math.sqrt(d) / 2).log_value for d in dims]
    drawn = [sample_capacity("exp", dim=d, query=math.sqrt(d) / 2, seed=seed) for d in dims]
    held = [x.value for x in drawn]
    slopes = np.diff(np.log(held)) / np.diff(dims)
    steep = [sample_capacity("exp", dim=16, query=t, seed=seed).value for t in _STEEP]
    annealed = [needle_capacity("exp", dim=16, query=t).value for t in _STEEP]
    most = math.log(2) / float(ndtr(-4.0))
    findings = [
        core(
            "SNR² = 1 on the average at n = e^(d/2), for the query of length √d/2",
            np.allclose(law, np.array(dims) / 2, rtol=_ROUNDING),
        ),
        core(
            "what drawn rows hold grows like it: ln n rises by "
            + " and ".join(f"{x:.3f}" for x in slopes)
            + " a dimension",
            np.all(np.abs(slopes - 0.5) < 0.02),
        ),
        letter(
            "it is e^(d/2) within a tenth",
            all(abs(x / math.exp(d / 2) - 1) < 0.1 for x, d in zip(held, dims, strict=True)),
        ),
        instead(
            f"the median row holds {held[-1] / math.exp(dims[-1] / 2):.1f} times as many: half of "
            "E Σa² is in weights that it does not meet",
            1.8 < held[-1] / math.exp(dims[-1] / 2) < 2.2,
        ),
        instead(
            "a longer query holds more, where the average says less: at d = 16 and t = "
            + ", ".join(f"{t:g}" for t in _STEEP) + " rows hold "
            + ", ".join(f"{x:.0f}" for x in steep) + " (on the average "
            + ", ".join(f"{x:.2g}" for x in annealed) + f"), at most ln 2/Φ(−√d) = {most:.0f}, "
            "where the needle is the largest of all with chance ½",
            np.all(np.diff(steep) > 0) and steep[-1] < 1.1 * most,
        ),
    ]  # fmt: skip
    return findings, {"dims": dims, "held": held, "queries": _STEEP, "steep": steep}


def power_capacity(routes: Routes, seed: int) -> Judged:
    """The capacity of squared ReLU, and of the fourth power."""
    law = [needle_capacity("relu2", dim=d).value for d in _DIMS]
    drawn = {name: [sample_capacity(name, dim=d, seed=seed) for d in _DIMS]
             for name in ("relu2", "power4")}  # fmt: skip
    held = {name: [x.value for x in every] for name, every in drawn.items()}
    slope = {
        name: float(np.diff(np.log(every[-2:]))[0] / np.diff(np.log(_DIMS[-2:]))[0])
        for name, every in held.items()
    }
    findings = [
        core(
            "SNR² = 1 on the average at n = ⅔d², whatever the query's length",
            np.allclose(law, 2 / 3 * np.array(_DIMS) ** 2, rtol=_ROUNDING),
        ),
        core(
            f"what drawn rows hold grows like d^{slope['relu2']:.2f} between d = 24 and 32",
            abs(slope["relu2"] - 2) < 0.15,
        ),
        instead(
            f"the fourth power grows like d^{slope['power4']:.2f}: the degree of the weight is "
            "that of the capacity",
            abs(slope["power4"] - 4) < 0.25,
        ),
    ]
    return findings, {"dims": _DIMS, **held}
