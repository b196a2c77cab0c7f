"""Sums of one table shifted by each token: Σ_j w_j F(u + shift_j) for F on a grid of u.

The shifts become weights on the grid, and F is convolved with them once.
"""

from __future__ import annotations

import numpy as np

from sparsity.exact_law.integration import lagrange_weights

# Weights up to which a product with windows is taken: for so few it is one call for all rows.
# NumPy's convolve takes one dimension at a time, but does not make the windows.
_MAX_WINDOW = 28
_GAP = 1000  # zeros between weights from which on the two sides are convolved by themselves


def spread_weights_on_grid(
    shift: np.ndarray, weights: np.ndarray, taps: int, step: float
) -> tuple[int, np.ndarray]:
    """Return (first s, H) with Σ_s H[c, s] F[i + s] = Σ_j weights[c, j] F(u_i + shift_j).

    Between the points u_i of the grid F is the polynomial through `taps` of them around.

    Args:
        shift: of each term, [terms].
        weights: of each term in every channel, [channels, terms].
        taps: points that a polynomial goes through, an even number.
        step: of the grid.
    """
    # F(u_i + shift) is a few interpolation weights times values of F. These weights are the same at
    # every i, so terms are added up as weights, and F is convolved with them once: the work is
    # terms·taps plus a convolution, instead of terms·points.
    steps = np.floor(shift / step).astype(int)
    # Terms that all lie on one point of the grid need no polynomial.
    if np.all(shift == steps * step) and np.ptp(steps) == 0:
        return int(steps[0]), weights.sum(axis=1, keepdims=True)
    first = int(steps.min())
    total = np.zeros((len(weights), int(steps.max()) - first + taps))
    nodes = np.arange(taps)
    for start in range(0, len(shift), 2**16):  # by blocks: a share for each of the taps is held
        part = slice(start, start + 2**16)
        share = lagrange_weights(taps // 2 - 1 + shift[part] / step - steps[part], nodes)
        where = ((steps[part] - first)[:, None] + nodes).ravel()
        for channel, weight in zip(total, weights[:, part], strict=True):
            channel += np.bincount(where, (share * weight[:, None]).ravel(), len(channel))
    return first - taps // 2 + 1, total


def add_convolved(out: np.ndarray, table: np.ndarray, begin: int, h: np.ndarray) -> None:
    """Add out[c, r, i] += Σ_s h[c, s] F[c, r, begin + i + s] of a table F.

    F is 0 before the table, and its last value behind.

    Args:
        out: [channels, rows, points], added to in place.
        table: F, [channels, rows, points of the table].
        begin: the point of the table, which may lie outside it, at which out[..., 0] begins.
        h: the weights of the shifts 0, 1, … in every channel, [channels, shifts].
    """
    length, points = out.shape[-1] + h.shape[-1] - 1, table.shape[-1]
    zeros = min(max(-begin, 0), length)
    inside = table[..., max(begin, 0) : max(begin + length, 0)]
    behind = length - zeros - inside.shape[-1] if begin < points else length
    last = np.repeat(table[..., -1:], max(behind, 0), axis=-1)
    values = np.concatenate([np.zeros((*table.shape[:-1], zeros)), inside, last], axis=-1)
    if h.shape[-1] <= _MAX_WINDOW:
        windows = np.lib.stride_tricks.sliding_window_view(values, h.shape[-1], axis=-1)
        out += np.matmul(windows, h[:, None, :, None])[..., 0]
        return
    points = out.shape[-1]
    for total, channel, weights in zip(out, values, h, strict=True):
        for start, stop in _runs(weights):
            for rule in range(len(total)):
                seen = channel[rule, start : stop + points - 1]
                total[rule] += np.convolve(seen, weights[start:stop][::-1], "valid")


def _runs(h: np.ndarray) -> list[tuple[int, int]]:
    """Return where weights begin and end: all of them, or each run between two wide gaps."""
    some = np.flatnonzero(h)
    wide = np.flatnonzero(np.diff(some) > _GAP)
    if not len(wide):
        return [(0, len(h))] if len(some) else []
    starts, stops = some[np.r_[0, wide + 1]], some[np.r_[wide, -1]] + 1
    return list(zip(starts.tolist(), stops.tolist(), strict=True))
