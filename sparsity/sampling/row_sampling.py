"""Whole rows by Monte Carlo, whatever their scores come from: any quantity of them.

A source draws scores, the kernel makes weights of them, each row is added up, and the definitions
of the quantities are applied to the sums. Theory and sampling share the kernel's definition, the
steps and the quantities, and nothing else.

    row, n ─> plan_rows ─> Source, its numbers, scale ─> RowSampler ─> run ─> DrawnRows ─> Estimate

Rows of one law, up to `iid_rows.MOST_TOKENS` tokens, have the `IidRowSampler` there in its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity import quantities
from sparsity.errors import InputError
from sparsity.kernels import Kernel, RowMap
from sparsity.kernels.lowering import jax_row
from sparsity.kernels.parameters import LENGTH
from sparsity.quantities import Quantity, RowSums
from sparsity.results import ESTIMATED, Estimate
from sparsity.rows.classes import classify_tokens, refuse_without
from sparsity.rows.row import Row, have_pairs
from sparsity.sampling import proposals
from sparsity.sampling.batches import Sampler, batch_size, summary
from sparsity.sampling.devices import runs_on_cpu, token_sums
from sparsity.sampling.iid_rows import MOST_TOKENS, IidRowSampler
from sparsity.sampling.row_plans import RowPlan, plan_rows
from sparsity.sampling.row_sources import TOKENS_IN_CACHE, DistinctTokens, IidTokens, Source
from sparsity.sampling.running import Run, Sampling, conclude, run

# Rows of so many tokens are drawn in float32 where the error asked for is this or more and no
# precision is given: a draw costs a quarter of one in float64, and rounding is 1e-6 of the result.
# Scores then end 6.3 spreads out, which one in 3,000 of the longest of these rows would exceed. Of
# the quantities below such a row, with its dominant token, has less than the mean, so that the mean
# is off by no more than that chance; one of p² or of a largest weight could be off by per cents.
LONG_ROWS, COARSE_ERROR = range(2**16, 2**20 + 1), 1e-3
_LESS_OF_RARE_ROWS = (quantities.n_eff, quantities.S, quantities.named("entropy"))


class _Sums(NamedTuple):
    """What the weights of some rows add up to, [rows] each, those of zeros are 0.

    Args:
        peak: the largest log|a|, over which all sums but the pooled ones are kept.
        l1: Σ|a|.
        l2: Σa².
        of_sinks: Σ|a| of sinks.
        pooled1: Σ|a| over the scale that all rows have in common.
        pooled2: Σa² over its square.
        needle: |a| of the needle; None where no quantity asks for it, as the next two.
        others_l1: Σ|a| of all tokens but the needle.
        others_l2: Σa² of them.
    """

    peak: jax.Array
    l1: jax.Array
    l2: jax.Array
    of_sinks: jax.Array
    pooled1: jax.Array
    pooled2: jax.Array
    needle: Any = None
    others_l1: Any = None
    others_l2: Any = None


@dataclass(frozen=True)
class RowSampler:
    """Whole rows, drawn block by block: memory does not grow with the length of like tokens.

    Moments: each quantity of a row (0 where it has none), whether a token is nonzero, whether
    anything is, then |a| and a² pooled over rows and tokens. The gate is a factor on all weights.
    """

    kernel: Kernel | RowMap
    source: Source
    quantities: tuple[Quantity, ...]
    sinks: bool
    size: int
    dtype: str
    gate: float = 1.0
    needle: bool = False

    @property
    def numbers(self) -> int:
        """Random numbers held at once."""
        return self.size * self.source.block * self.source.width

    def _sums(self, key: jax.Array, law: Any, log_scale: jax.Array) -> tuple[Any, ...]:
        """Add up the blocks of each row, relative to its largest weight so far.

        The weights span more than a float's range, so that sums are kept over the largest weight
        and shrunk where a later block has a larger one. Moments pooled over rows need one scale for
        all of them.

        Returns:
            The sums. Then the weights themselves, over the largest, where a quantity asks for
            them; the log of what the weights of a row map leave of 1; whether it reads the key of
            the largest score, where it may not; and the `RowSums.pair` of each quantity of one.
        """
        whole = any(q.whole for q in self.quantities)
        rhos = [q.pair.rho for q in self.quantities if q.pair]

        def add(sums: _Sums, number: jax.Array) -> tuple[Any, Any]:
            scores, log_w, sink, needle = self.source(key, number, self.size, self.dtype, law)
            log_f, log_left = jax_row(self.kernel, scores)
            reads_top = getattr(self.kernel, "reads_top", None)
            top = None if reads_top is None else reads_top(scores).astype(self.dtype)
            # A token out of sight has weight 0 whatever its score: +∞ − ∞ would be no number.
            log_a = jnp.where(log_w > -jnp.inf, log_f + log_w, -jnp.inf)
            higher = jnp.maximum(sums.peak, log_a.max(axis=1))
            a = jnp.exp(log_a - jnp.where(jnp.isfinite(higher), higher, 0)[:, None])
            # Where nothing was nonzero so far, peak is −∞ and there is nothing to shrink.
            shrink = jnp.where(jnp.isfinite(sums.peak), jnp.exp(sums.peak - higher), 0)
            common = jnp.where(jnp.isfinite(higher), jnp.exp(higher - log_scale), 0)
            # Σ over the others is added up by itself: l1 − a* would lose its digits where the
            # needle takes nearly everything.
            terms = [] if sink is None else [a * sink]
            if needle is not None and self.needle:
                terms += [a * needle, a * (1 - needle), a * a * (1 - needle)]
            new1, new2, *here = token_sums(a, a * a, *terms)
            grown = sums._replace(
                peak=higher,
                l1=sums.l1 * shrink + new1,
                l2=sums.l2 * shrink**2 + new2,
                of_sinks=sums.of_sinks * shrink + (here[0] if here else 0),
                pooled1=sums.pooled1 + common * new1,
                pooled2=sums.pooled2 + common**2 * new2,
            )
            if self.needle:  # such rows are one block: there is nothing to shrink
                grown = grown._replace(needle=here[1], others_l1=here[2], others_l2=here[3])
            pairs = tuple((log_a, self._log_partner(key, law, scores, log_w, rho)) for rho in rhos)
            if whole:  # what is not zero stays so where it underflows: `support` counts it
                a = jnp.where(log_a > -jnp.inf, jnp.maximum(a, jnp.finfo(a.dtype).tiny), 0)
                if not isinstance(self.kernel, RowMap) and not isinstance(self.source, IidTokens):
                    a = a[:, ::-1]  # these are drawn with the query's own token first
            return grown, (a if whole else None, log_left, top, pairs)

        zero = jnp.zeros(self.size, self.dtype)
        start = _Sums(zero - jnp.inf, *([zero] * (8 if self.needle else 5)))
        blocks = -(-self.source.length // self.source.block)
        sums, kept = jax.lax.scan(add, start, jnp.arange(blocks))
        return sums, *jax.tree.map(lambda x: x[0], kept)

    def _log_partner(self, key: jax.Array, law: Any, scores: Any, log_w: Any, rho: float) -> Any:
        """Draw log|a| of rows whose scores have correlation ρ with these, token by token."""
        beta = law[0]
        other = self.source(jax.random.fold_in(key, 1), 0, self.size, self.dtype, law).scores
        rest = math.sqrt((1 - rho) * (1 + rho))
        log_f, _ = jax_row(self.kernel, beta + rho * (scores - beta) + rest * (other - beta))
        return jnp.where(log_w > -jnp.inf, log_f + log_w, -jnp.inf)

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = (the source's law, log of the sink logits, log scale)."""
        law, log_unit, log_scale = arguments
        sums, a, left, top, pairs = self._sums(key, law, log_scale)
        peak, l1, l2, of_sinks, pooled1, pooled2, *needle = sums
        # Every quantity is a function of sums over the row's largest weight, which cancels in it.
        # Rows without a nonzero token have no quantity: they count 0, with a flag of 0 beside it,
        # and sums of 1 keep what is computed of them finite.
        n, seen = self.source.length, jnp.isfinite(peak)
        one = jnp.exp(-jnp.where(seen, peak, 0)) / self.gate
        tokens = RowSums(
            n, jnp.where(seen, l1, 1), jnp.where(seen, l2, 1), of_sinks, 0.0, a, one, 1.0, *needle
        )
        if top is not None:
            tokens = tokens._replace(top=top)
        live, whole = seen, tokens
        if left is not None:  # it belongs to the total, as a sink logit's weight does
            unit = jnp.where(seen, jnp.exp(left - jnp.where(seen, peak, 0)), 0)
            whole = tokens._replace(unit=unit)
        if self.sinks:  # the common scale is the larger of both, and no row with a logit is empty
            scale = jnp.maximum(peak, log_unit)
            live = jnp.isfinite(scale)
            at = jnp.where(live, scale, 0)
            shrink = jnp.where(seen, jnp.exp(peak - at), 0)
            unit = jnp.where(live, jnp.exp(log_unit - at), 0)
            a = None if a is None else a * shrink[:, None]
            total = jnp.where(live, l1 * shrink, 1)
            scaled_one = jnp.exp(-at) / self.gate
            whole = RowSums(n, total, l2 * shrink**2, of_sinks * shrink + unit, unit, a, scaled_one)
            if self.needle:
                whole = whole._replace(needle=tokens.needle * shrink)
        pairs = iter(pairs)
        values = [
            jnp.where(live, q.of(whole), 0)
            if q.units
            else jnp.where(seen, q.of(tokens._replace(pair=next(pairs) if q.pair else None)), 0)
            for q in self.quantities
        ]
        # The mean of a quantity is the ratio of its mean to that of the flag it belongs to.
        flags = (seen.astype(self.dtype), live.astype(self.dtype))
        return summary(*values, *flags, pooled1 / n, pooled2 / n)


def _powers(known: tuple[Quantity, ...], quantity: Quantity | None) -> tuple[float, ...]:
    """Return exponents of the moments whose product is the quantity; None is the limit form."""
    powers = [0.0] * (len(known) + 4)
    if quantity is None:
        powers[-2:] = 1.0, -0.5
    else:  # its mean over rows that have one
        powers[known.index(quantity)] = 1.0
        powers[len(known) + quantity.units] = -1.0
    return tuple(powers)


def _all_zero(estimate: Estimate, rows: float, most: float) -> Estimate:
    """Return the estimate of what is 0 in all rows that count, and `most` at most: 0, and its ends.

    Chances p beyond the upper end have (1 − p)^N < 0.025. Whenever it is stopped, they have less
    than 0.05 of ∫(1 − q)^N dq = 1/(N + 1), a mixture's likelihood.
    """
    high, wide = (-math.expm1(math.log(x) / rows) * most for x in (0.025, 0.05 / (rows + 1)))
    said = f"it is 0 in all of {rows:.0f} rows: only its upper end is known" if most else None
    return replace(
        estimate,
        **{"value": 0.0, "log_value": -math.inf, "rel_stderr": math.inf, "stderr": most / rows},
        **{"ci95": (0.0, high), "anytime95": (0.0, wide), "error_kind": ESTIMATED},
        warning=said,
    )


class DrawnRows(NamedTuple):
    """Rows that were drawn, and what can be said of them.

    Args:
        done: the run.
        known: the quantities that are moments of it.
        length: n.
        method: how they were drawn.
        sampling: the settings.
    """

    done: Run
    known: tuple[Quantity, ...]
    length: int
    method: str
    sampling: Sampling

    def estimate(self, of: str | Quantity) -> Estimate:
        """Return the mean of a quantity over rows that have one."""
        return self._conclude(quantities.named(of))

    def limit_form(self) -> Estimate:
        """Return S of the moments pooled over rows and tokens: √(n_eff/n) of long rows."""
        return self._conclude(None)

    def _conclude(self, quantity: Quantity | None) -> Estimate:
        powers = _powers(self.known, quantity)
        estimate = conclude(self.done, powers, method=self.method, sampling=self.sampling)
        name = "S" if quantity is None else quantity.name
        means = self.done.batches[:, 0].mean(axis=0)
        if quantity is not None and not means[self.known.index(quantity)]:
            rows = estimate.samples * float(means[len(self.known) + quantity.units])
            most = 1.0 if quantity.chance else math.inf
            most = float(quantity.ends(self.length)[1]) if quantity.has_law else most
            estimate = _all_zero(estimate, rows, most) if rows and most < math.inf else estimate
        return replace(estimate, quantity=name, length=self.length)


def draw_rows(
    row: Row,
    length: Any,
    sampling: Sampling,
    of: str | Quantity | Sequence[str | Quantity | None] | None = "n_eff",
    *,
    dim: int | None = None,
    also: Sequence[str | Quantity] = (),
) -> DrawnRows:
    """Draw whole rows until a quantity of them, or each of several, is known well enough.

    Args:
        row: any row whose kernel is a function of the score, or a map of the whole row.
        length: n ≥ 1.
        sampling: the settings; samples are rows.
        of: the quantities that `sampling.rel_error` is meant for; None is the limit form, which a
            row map has of its unnormalised weights. S is drawn until its square, n_eff, is known
            well enough.
        dim: draw whole keys in R^dim, for a row without steps; None draws scalar scores.
        also: quantities of the same rows that may be asked for besides, however well known.

    Raises:
        InputError: a value outside its domain, rows too long to hold, or a sink that is not there.
    """
    mapped = isinstance(row.kernel, RowMap)
    row = row if mapped else row.scored()
    n = int(LENGTH.one(length))
    several: Any = of if isinstance(of, (tuple, list)) else (of,)
    wanted = [None if name is None else quantities.named(name) for name in several]
    coarse = n in LONG_ROWS and sampling.rel_error >= COARSE_ERROR
    light = all(q in _LESS_OF_RARE_ROWS for q in (*wanted, *map(quantities.named, also)))
    if sampling.dtype is None and coarse and light:
        sampling = replace(sampling, dtype=np.float32)
    real = sampling.real
    if isinstance(row.kernel, RowMap) and wanted == [None]:
        row = Row(row.kernel.as_unnormalised, steps=(), **row.params)
    if (dim or not have_pairs(row.kernel, row.steps)) and any(q and q.pair for q in wanted):
        fix = "is of pairs of rows of Gaussian scores, one a token; use such rows"
        raise InputError("of", next(q.name for q in wanted if q and q.pair), fix)
    plan = plan_rows(row, n, dim or 0, sampling.seed)
    for needed in {quantity.needs for quantity in wanted if quantity}:
        refuse_without(row, needed, plan.needle if needed == "needle" else plan.sinks)
    for token in {quantity.token for quantity in wanted if quantity and quantity.token}:
        if token > n:
            raise InputError("of", f"weight:{token}", f"a row of {n} tokens has no such token")
        if isinstance(plan.source, DistinctTokens) and not mapped:
            classify_tokens(row, n, token)  # refuses one out of sight
    # Rows of tokens that differ compile once: the sums of sinks are kept whether or not there are
    # any. A map has no sinks: what its weights leave of 1 belongs to the total in their place.
    sinks = plan.sinks or (isinstance(plan.source, DistinctTokens) and not mapped)
    there = {None: True, "sink": sinks, "needle": plan.needle}
    # The quick quantities are moments of every sampler, so that asking for another one of them
    # compiles nothing; those that need the whole row come in only where they are asked for.
    known = tuple(
        q
        for q in quantities.ALL
        if there[q.needs] and not q.whole and q.linear is None  # these when asked for
    )
    # The target on S of rows is meant for its square, n_eff/n.
    goals = [quantities.n_eff if goal is quantities.S else goal for goal in wanted]
    more = dict.fromkeys((*filter(None, goals), *map(quantities.named, also)))
    known = (*known, *(quantity for quantity in more if quantity not in known))
    if (mapped or any(q.whole for q in known)) and plan.source.block < n:
        what = row.kernel.name if mapped else known[-1].name
        fix = f"{what} needs whole rows, of at most {plan.source.block} tokens; shorten the row"
        raise InputError("length", n, fix)
    sampler, arguments = _sampler_of(row.kernel, plan, known, sinks, real)
    # No error bar is smaller than what summing in this precision rounds.
    rounding = proposals.SUMMATION_ULPS * float(np.finfo(real).eps)
    powers = [_powers(known, goal) for goal in dict.fromkeys(goals)]
    # Rows that all say 1 do not scatter, and yet one in three times as many may say 0.
    resolved = not any(goal and goal.chance for goal in goals)
    done = run(sampler, arguments, powers, sampling, resolution=rounding, resolved=resolved)
    return DrawnRows(done, known, n, plan.method, sampling)


def _sampler_of(
    kernel: Kernel | RowMap, plan: RowPlan, known: tuple[Quantity, ...], sinks: bool, real: np.dtype
) -> tuple[Sampler, Any]:
    """Return the sampler of the rows that are planned, and its arguments."""
    source = plan.source
    law, log_unit, log_scale = jax.tree.map(
        lambda x: np.asarray(x, dtype=real), (plan.law, plan.log_unit, plan.log_scale)
    )
    n, scalar_normal = source.length, source == IidTokens(source.length)
    # A definition of a user's own may want the length as a number.
    sums_alone = all(q in quantities.ALL and not q.whole for q in known)
    fits = scalar_normal and sums_alone and n <= MOST_TOKENS
    if fits and isinstance(kernel, Kernel) and runs_on_cpu():
        any_length = IidRowSampler(kernel, known, real.name, n)
        return any_length, (law, log_scale, np.uint32(n), np.uint32(any_length.size))
    size = batch_size(source.length * source.width)
    if scalar_normal and sums_alone and isinstance(kernel, Kernel) and runs_on_cpu():
        source = IidTokens(n, most=TOKENS_IN_CACHE)
    this_length = RowSampler(kernel, source, known, sinks, size, real.name, plan.gate, plan.needle)
    return this_length, (law, log_unit, log_scale)


def sample_rows(
    row: Row,
    length: Any,
    sampling: Sampling,
    of: str | Quantity = "n_eff",
    *,
    dim: int | None = None,
) -> Estimate:
    """Return the mean of a quantity over whole rows of n tokens, by sampling them.

    Args and raises as `draw_rows`.
    """
    return draw_rows(row, length, sampling, of, dim=dim).estimate(of)
