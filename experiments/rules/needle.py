"""Claims about what a row can hold: the needle's signal, and capacities; with their judges."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from experiments.rules.first_passage import sample_capacity
from sparsity import metric
from sparsity.claims_ledger.findings import CHANCE_BELOW_1E5, Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim, Routes
from sparsity.limit.long_rows import needle_capacity

# Capacities of softmax grow by e^(d/2): at d = 24 a row holds some 3·10⁵ keys, all of which are
# drawn one by one; d = 32 is left to the kernels that hold d^p of them.
_DIMS = (8, 16, 24, 32)
_QUERIES = (0.25, 1.0, 4.0)  # lengths t of the query
_STEEP = (2.0, 3.0, 4.0, 8.0)  # of it, at d = 16, from its best place √d/2 on
_ROUNDING = 1e-12


def signal_to_noise(routes: Routes, seed: int) -> Judged:
    """Compare the SNR of drawn rows with values with odds and n_eff of the other keys."""
    # ln of the root mean square of 512 numbers scatters by 1/√1024 = 0.03, over 40 rows by ½ %.
    rng, dim, rows, keys = np.random.default_rng(seed), 512, 40, 64
    off, drawn, law = 0.0, [], []
    for _ in range(rows):
        # Softmax weights of scores N(0, 1), and of a needle three spreads above their mean.
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
            abs(z) < CHANCE_BELOW_1E5,
        ),
    ]
    return findings, {"rows": rows, "rounding": off, "z": z, "error": error}


def linear_capacity(routes: Routes, seed: int) -> Judged:
    """Judge the capacity of identity scores, whatever the query's length."""
    # `sample_capacity` lets rows grow key by key until SNR = 1 and takes the median row; the law
    # under test takes the mean of Σa².
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
            + listed(f"{x:g} at d = {d}" for x, d in zip(held, _DIMS, strict=True)),
            # The median of whole numbers of keys may be off the mean by one key.
            all(
                abs(x.value - d) <= CHANCE_BELOW_1E5 * x.stderr + 1
                for x, d in zip(drawn, _DIMS, strict=True)
            ),
        ),
    ]
    return findings, {"dims": _DIMS, "held": held}


def softmax_capacity(routes: Routes, seed: int) -> Judged:
    """Judge the capacity of softmax at the best query of the annealed law, and at longer ones."""
    dims = _DIMS[:3]
    law = [needle_capacity("exp", dim=d, query=math.sqrt(d) / 2).log_value for d in dims]
    drawn = [sample_capacity("exp", dim=d, query=math.sqrt(d) / 2, seed=seed) for d in dims]
    held = [x.value for x in drawn]
    slopes = np.diff(np.log(held)) / np.diff(dims)  # ½ for e^(d/2), whatever stands before it
    steep = [sample_capacity("exp", dim=16, query=t, seed=seed).value for t in _STEEP]
    annealed = [needle_capacity("exp", dim=16, query=t).value for t in _STEEP]
    # The largest possible: the needle scores t√d, the others N(0, t²). None of n others is above it
    # with the chance (1 − Φ(−√d))ⁿ ≤ exp(−n·Φ(−√d)), so that it is ½ at an n below ln 2/Φ(−√d), by
    # 2e-5 of it; √d = 4 at d = 16.
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
            f"{listed(_STEEP, 'g')} rows hold {listed(steep, '.0f')} (on the average "
            f"{listed(annealed, '.2g')}), at most ln 2/Φ(−√d) = {most:.0f}, "
            "where the needle is the largest of all with chance ½",
            np.all(np.diff(steep) > 0) and steep[-1] < 1.1 * most,
        ),
    ]
    return findings, {"dims": dims, "held": held, "queries": _STEEP, "steep": steep}


def power_capacity(routes: Routes, seed: int) -> Judged:
    """Judge the capacity of squared ReLU, and of the fourth power as a control of its degree."""
    law = [needle_capacity("relu2", dim=d).value for d in _DIMS]
    held = {
        name: [sample_capacity(name, dim=d, seed=seed).value for d in _DIMS]
        for name in ("relu2", "power4")
    }
    # Between the largest two dimensions: what the median row holds has corrections of order 1/d.
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


CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="needle-snr",
        source="Peterson, Birdsall & Fox (1954), signal detectability; here, of one row",
        statement="One key's value stands out of what a row reads by odds·√n_eff of the others.",
        formula="b/√(Σ a²) = (b/Σ|a|)·√(n_eff), b of the needle, a of the others",
        proof="n_eff = (Σ|a|)²/Σa². Values of zero mean that are independent from key to key add "
        "up to noise of variance Σa².",
        judge=signal_to_noise,
    ),
    Claim(
        key="linear-capacity",
        source="Schlag et al. (2021), Fast weight programmers, arXiv 2102.11174",
        statement="Linear attention holds about d keys, whatever the query.",
        formula="n = (t√d)²/E s² = d for s ∼ N(0, t²)",
        proof="The query's length multiplies the needle's score and all others alike.",
        judge=linear_capacity,
    ),
    Claim(
        key="softmax-capacity",
        source="Ramsauer et al. (2020), Hopfield networks is all you need, arXiv 2008.02217",
        statement="What softmax can hold grows exponentially with the dimension.",
        formula="n = e^(2t√d − 2t²), e^(d/2) at t = √d/2",
        proof="E e^(2s) = e^(2t²) of s ~ N(0, t²). For t > √d/2 the mean of a² is that of weights "
        "which no row meets: Σa² is frozen, and the annealed law says too little.",
        judge=softmax_capacity,
    ),
    Claim(
        key="power-capacity",
        source="Krotov & Hopfield (2016), Dense associative memory, arXiv 1606.01164",
        statement="With the weight max(s, 0)² a row holds about d² keys.",
        formula="n = d²/E max(x, 0)⁴ = 2d²/3",
        proof="The query's length cancels, and E max(x, 0)⁴ = 3/2 for x ~ N(0, 1).",
        judge=power_capacity,
    ),
)
