"""Statistics of some rows of a call of attention in PyTorch, and the penalty on them.

The logits of a few rows fit in memory, so that the definitions are written out here without blocks
of keys: nothing is shared with `streaming`, which computes the same for JAX.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from sparsity.attention.library import torch
from sparsity.attention.measurement.attention_layers import shows_keys_here_and_there
from sparsity.attention.monitoring.step import check_bounds, mean_square_outside, sample_rows
from sparsity.attention.torch.call import (
    Call,
    Output,
    Unseen,
    added_to_rows,
    logits,
    over_axes,
)
from sparsity.calls import NotTaken
from sparsity.checks import check_flag, check_heads
from sparsity.errors import InputError

# Rows are taken a few at a time, of so many logits in all: 16 MiB in single precision, for each of
# several arrays. More cost memory, fewer cost launches of kernels.
MAX_LOGITS_AT_ONCE = 2**22
_SPARSE_MASK = (
    "is given a mask that hides tokens from themselves and shows them to others, as sparse "
    "attention does, and cannot tell which are padding"
)


def text_tokens(call: Call) -> Any:
    """Return which queries are tokens of a text, [batch or 1, heads or 1, T]; None for all.

    PyTorch's masks do not say what is padding, so it is inferred. In a call with as many queries as
    keys a query is padding where the masks hide the key at its own position from itself and from
    the queries beside it, if any query of that text sees its own.
    """
    (batch, heads, length, _), keys = call.query.shape, call.key.shape[-2]
    if length != keys or all(x is None for x in (call.mask, call.bias, call.mask_mod)):
        return None
    at = torch.arange(length, device=call.query.device)
    if call.mask_mod is not None:
        mask = over_axes(torch, call.mask_mod, ("ij", "h", "b"), scored=False)
        place = [torch.arange(n, device=at.device) for n in (batch, heads)]

        def seen(i: Any) -> Any:
            return mask(*place, i, at)  # only these entries, not the matrix
    else:
        before = at <= at[:, None] if call.causal else torch.ones_like(at, dtype=torch.bool)
        shown = added_to_rows(call, at[None], before)[1]
        shown = shown.expand(*shown.shape[:2], length, length)

        def seen(i: Any) -> Any:
            return shown[..., i, at]

    diagonal = seen(at)
    # Where masks leave the token itself out, the queries beside it see its key.
    beside = seen((at + 1).clamp(max=length - 1)) | seen((at - 1).clamp(min=0))
    return diagonal | beside | ~diagonal.any(-1, keepdim=True)


def choose_rows(call: Call, rows: Any) -> tuple[Any, Any]:
    """Return the positions of the rows to look at, [batch or 1, rows], and which of them count.

    A number of rows is taken of each text without its padding, so that the statistics of a text do
    not depend on the texts beside it. Where a text has fewer rows than another, the rest of its
    places hold row 0 and do not count.
    """
    length, device, tokens = call.query.shape[-2], call.query.device, text_tokens(call)
    at = sample_rows(length, rows)
    at = np.arange(length)[None] if at is None else at[None]
    if tokens is None:
        return torch.as_tensor(at, device=device), None
    counts = np.ones((1, 1, 1), bool)
    if rows is not None and np.ndim(rows) == 0:
        of_text = [np.flatnonzero(x) for x in tokens.any(1).cpu().numpy()]
        of_text = [x[sample_rows(len(x), rows)] for x in of_text]
        most = max(map(len, of_text))
        at = np.array([np.pad(x, (0, most - len(x))) for x in of_text])
        counts = np.array([np.arange(most) < len(x) for x in of_text])[:, None]
    at = torch.as_tensor(at, device=device)
    tokens = torch.take_along_dim(tokens, at[:, None], -1)
    return at, tokens & torch.as_tensor(counts, device=device)


def statistics(s: Any, seen: Any, unit: Any = None) -> dict[str, Any]:
    """Return the statistics of `monitor` of logits [batch, heads, rows, keys].

    Gradients are finite everywhere: where a branch has none (rows without a key, equal logits), its
    argument is replaced before it, since a `where` behind it would multiply ∞ by 0.

    Args:
        s: logits, finite also where they are not seen.
        seen: which keys are seen.
        unit: logits of learned sinks, [heads], or None.
    """
    n = seen.sum(-1)
    some = n > 0
    top = torch.where(seen, s, -torch.inf).amax(-1)
    reference = top if unit is None else torch.maximum(top, unit[:, None].to(s.dtype))
    # Weights are relative to the largest logit. All statistics are the same whatever is subtracted,
    # so that it gets no gradient.
    reference = torch.where(torch.isfinite(reference), reference, 0.0).detach()
    shifted = torch.where(seen, s - reference[..., None], 0.0)
    e = torch.where(seen, torch.exp(shifted), 0.0)
    sink = 0.0 if unit is None else torch.exp(unit[:, None] - reference)
    z = torch.where(some, e.sum(-1), 1.0)
    total = z + sink
    squares = torch.where(some, (e * e).sum(-1), 1.0)
    count = n.clamp(min=1).to(s.dtype)
    beta = torch.where(seen, s, 0.0).sum(-1) / count
    centred = torch.where(seen, s - beta[..., None], 0.0)
    square = (centred * centred).sum(-1)
    # The root has no derivative at 0: a row of equal logits takes the branch without it.
    spread = torch.sqrt(torch.where(square > 0, square, 1.0) / (count - 1).clamp(min=1))
    known = (n > 1) & ~torch.isnan(square)
    gamma = torch.where(known, torch.where(square > 0, spread, 0.0), torch.nan)
    first = seen.to(torch.uint8).argmax(-1, keepdim=True)  # the first of equal ones
    values = {
        "n_eff": z * z / squares,
        "entropy": ((z * torch.log(total) - (e * shifted).sum(-1)) / total).clamp(min=0),
        "beta": beta,
        "max_logit": top,
        "sink_mass": (e.gather(-1, first)[..., 0] + sink) / total,
    }
    values = {name: torch.where(some, x, torch.nan) for name, x in values.items()}
    ratio = gamma / torch.sqrt(2 * torch.log(count.clamp(min=2)))
    return {"length": n, "gamma": gamma, "gamma_ratio": ratio, **values}


def measure_rows(call: Call, rows: Any = 16, made: Output | None = None) -> dict[str, Any]:
    """Return `statistics` of some rows, [batch, heads, rows]; rows of padding see no key.

    Rows of logits or of an output that are not finite are NaN, and those beside them are told.

    Args:
        call: the call.
        rows: how many, log-spaced with the last; or their positions; None for all.
        made: what the call returned, to check the logits against; None for no check.

    Raises:
        Unseen: the logits do not make what the call returned, or the mask does not tell which
            tokens are padding.
    """
    batch, heads, _, _ = call.query.shape
    at, tokens = choose_rows(call, rows)
    size = max(1, MAX_LOGITS_AT_ONCE // max(1, batch * heads * call.key.shape[-2]))
    parts = []
    for start in range(0, at.shape[-1], size):
        part = at[:, start : start + size]
        s, seen = logits(call, part)
        if made is not None:
            s = s.masked_fill(made.check_rows(s, seen, part, call.unit)[..., None], torch.nan)
        if tokens is not None:
            of_text = tokens[..., start : start + size]
            seen = seen & of_text[..., None]
            text = text_tokens(call) if made is not None else None
            if text is not None and not bool(text.all()):
                masks = (x.cpu().numpy() for x in (seen, of_text, text))
                if shows_keys_here_and_there(*masks):
                    raise Unseen(_SPARSE_MASK)
            s = torch.where(seen, s, 0.0)
        parts.append(statistics(s, seen, call.unit))
    return {name: torch.cat([part[name] for part in parts], -1) for name in parts[0]}


def torch_monitor(
    queries: Any, keys: Any, *, rows: Any = 16, causal: bool = True, **given: Any
) -> dict[str, Any]:
    """Measure what `monitor` measures, for tensors of PyTorch, on their device, without gradient.

    Only which rows are padding is brought to the host, where there is a mask. `log` brings over
    what is returned.

    Args:
        queries: [batch, heads, T, d].
        keys: [batch, kv heads, T, d].
        rows: how many, log-spaced with the last; or their positions; None for all.
        causal: whether a query sees only itself and the keys before it.
        given: scale, mask, bias, softcap, unit, score_mod and mask_mod, as `Call` takes them.

    Returns:
        By name, [batch, heads, rows]; NaN for rows with too few keys.

    Raises:
        InputError: positions of no row, an option it does not take, or arrays of other shapes.
    """
    with torch.no_grad():
        return measure_rows(_call("torch_monitor", queries, keys, causal, given), rows)


def _call(taker: str, queries: Any, keys: Any, causal: bool, given: dict[str, Any]) -> Call:
    """Return the call of attention that a user describes.

    Args:
        taker: the name of the function that takes the arguments, for refusals.
        queries: [batch, heads, T, d].
        keys: [batch, kv heads, T, d].
        causal: whether a query sees only itself and the keys before it.
        given: the options.

    Raises:
        InputError: an option it does not take, or arrays of other shapes.
    """
    named = ("query", "key", "causal")
    takes = [field.name for field in fields(Call) if field.name not in named]
    for name in given:
        if name not in takes:
            raise NotTaken(name, given[name], taker, takes)
    for name, x in (("queries", queries), ("keys", keys)):
        if not hasattr(type(x), "detach"):
            raise InputError(name, type(x).__name__, "give a tensor of PyTorch")
    fix = "give [batch, heads, tokens, dim], of key heads that divide query heads"
    check_heads("queries and keys", queries, keys, fix, queries.ndim == 4)
    if check_flag("causal", causal) and queries.shape[-2] != keys.shape[-2]:
        tokens = f"{queries.shape[-2]} queries and {keys.shape[-2]} keys"
        fix = "give as many, or causal=False with a mask of what each query sees"
        raise InputError("queries and keys", tokens, fix)
    return Call(queries, keys, causal=causal, **given)


def torch_penalty(
    queries: Any,
    keys: Any,
    of: str = "n_eff",
    *,
    low: float | None = None,
    high: float | None = None,
    rows: Any = 16,
    causal: bool = True,
    **given: Any,
) -> Any:
    """Penalise rows outside bounds on a quantity as `penalty` does, for tensors of PyTorch.

    Args:
        queries: [batch, heads, T, d].
        keys: [batch, kv heads, T, d].
        of: what is bounded, as `penalty` takes it.
        low: the least value without cost; None for no such bound.
        high: the largest value without cost; None for no such bound.
        rows: how many, log-spaced with the last; or their positions; None for all.
        causal: whether a query sees only itself and the keys before it.
        given: scale, mask, bias, softcap, unit, score_mod and mask_mod, as `Call` takes them.

    Raises:
        InputError: another `of`, no bound, `low` above `high`, positions of no row, an
            option it does not take, or arrays of other shapes.
    """
    call = _call("torch_penalty", queries, keys, causal, given)
    bounds = check_bounds(of, low, high)
    measured = measure_rows(call, rows)
    return mean_square_outside(torch, of, bounds, measured[of], measured["length"])
