"""Every row of a call of attention, measured beside it: some rows at a time, never the matrix.

The sums are those of `streaming.sums`, written out for PyTorch, with the sink key apart (as
`measurement.logit_blocks` has them for JAX); `measurement.row_focus` makes statistics of them.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from sparsity.attention.library import torch
from sparsity.attention.measurement.layers import ContextImportance, contexts
from sparsity.attention.measurement.row_focus import measure_logit_sums
from sparsity.attention.measurement.sinks import find_sinks, name_without_sinks, reuse_rows
from sparsity.attention.streaming.inputs import spaced
from sparsity.attention.streaming.sums import Sums
from sparsity.attention.torch.call import Call, Output, Unseen, logits

# Rows of a tile. Of three heads and 2,048 keys they are 6 MiB; with half as many, small operations
# took 21 % more time.
ROWS = 256
HIDDEN = -1e30  # the logit of a hidden key: finite, since Σ e^s·s would be 0·∞
CHECKED_ROWS = 16  # of a call, which must make the rows of its output


class Tile(NamedTuple):
    """Logits of some rows and the keys that they may see.

    Args:
        s: logits, [heads, rows, keys]; overwritten.
        clear: how many keys at the start all of the rows see.
        seen: which of the keys after these they see, [1 or heads, rows, keys − clear].
        apart: positions of keys that are set apart [keys], or of one in each row,
            [1 or heads, rows].
    """

    s: Any
    clear: int
    seen: Any
    apart: Any


class TileSums(NamedTuple):
    """Sums of the rows of a tile, [heads, rows], over the keys that are not set apart.

    Args:
        count: how many keys these are.
        top: the largest logit, −∞ for none.
        z: Σ e^(s − top).
        y: Σ e^(2(s − top)).
        w: Σ (s − top) e^(s − top).
        mean: of s.
        m2: Σ (s − mean)².
        sink: logit of the key that is set apart, or ln Σ e^s of several; −∞ where none is seen.
    """

    count: Any
    top: Any
    z: Any
    y: Any
    w: Any
    mean: Any
    m2: Any
    sink: Any


def _sum_tile(tile: Tile, room: Any = None) -> tuple[TileSums, Any]:
    """Return the sums of a tile, and e^(s − top) of the keys that are not set apart.

    Args:
        tile: the tile.
        room: a tensor of its shape to write in; None for a new one.
    """
    s, clear, seen, apart = tile
    room, shown = torch.empty_like(s) if room is None else room, seen.to(s.dtype)
    s[..., clear:].add_((1 - shown) * HIDDEN)  # five times as fast as a masked fill
    if apart.ndim > 1:
        at = apart.expand(s.shape[:2])[..., None]
        of_apart = s.gather(-1, at)
    else:
        at, of_apart = None, s[..., apart]

    def set_apart(x: Any, value: float) -> None:
        if at is None:
            x.index_fill_(-1, apart, value)
        else:
            x.scatter_(-1, at, value)

    count = clear + seen.sum(-1) - (of_apart > HIDDEN).sum(-1)
    of_apart = of_apart.masked_fill(of_apart <= HIDDEN, -math.inf)
    of_apart = of_apart[..., 0] if of_apart.shape[-1] == 1 else of_apart.double().logsumexp(-1)
    # Nothing cancels where what is set apart takes almost all of the weight: the sums of the others
    # are made without it.
    set_apart(s, HIDDEN)
    top = s.amax(-1)
    some = top > HIDDEN
    base = torch.where(some, top, 0.0)
    s.sub_(base[..., None])
    # Moments of the logits less the largest, in which a hidden key counts as 0.
    s[..., clear:].mul_(shown)
    set_apart(s, 0.0)
    n = count.clamp(min=1).to(s.dtype)
    mean = s.sum(-1) / n
    # A norm reads once what a product and its sum read and write: half the time, the same digits.
    m2 = (torch.linalg.vector_norm(s, dim=-1) ** 2 - n * mean * mean).clamp(min=0)
    e = torch.exp(s, out=room)
    e[..., clear:].mul_(shown)
    set_apart(e, 0.0)
    z, w, y = e.sum(-1), s.mul_(e).sum(-1), torch.linalg.vector_norm(e, dim=-1) ** 2
    sums = TileSums(
        count.expand(top.shape), torch.where(some, top, -math.inf), z, y, w,
        torch.where(some, mean + base, 0.0), torch.where(some, m2, 0.0), of_apart,
    )  # fmt: skip
    return sums, e


def _share(sums: TileSums, unit: Any) -> tuple[Any, Any]:
    """Return by what e^(s − top) of the others becomes a weight p, and p of the sink key."""
    some = sums.count > 0
    log_z = torch.where(some, sums.top + torch.log(sums.z), -math.inf)
    odds = sums.sink - log_z  # NaN in rows that see no key
    of_sink = torch.where(some, torch.sigmoid(odds), (sums.sink > -math.inf).to(odds.dtype))
    over_weight = torch.where(some, torch.sigmoid(-odds) / sums.z, 0.0)
    if unit is not None:
        left = torch.sigmoid(torch.logaddexp(log_z, sums.sink) - unit[:, None])
        of_sink, over_weight = of_sink * left, over_weight * left
    return over_weight, of_sink


def _plain_tile(
    call: Call, heads: slice, start: int, stop: int, apart: Any, rooms: Any
) -> tuple[Tile, Any]:
    """Return the logits of rows of a call without masks, of heads that share a key head.

    Args:
        call: the call.
        heads: these heads.
        start: the first row.
        stop: the row after the last.
        apart: positions of keys that are set apart.
        rooms: two rows of memory; the logits are in the first.

    Returns:
        The tile, and as much of the second room.
    """
    q, k = call.query[0, heads, start:stop], call.key[0]
    shared, length = call.query.shape[1] // len(k), k.shape[-2]
    width, clear = (stop, start) if call.causal else (length, length)
    scale = 1 / math.sqrt(q.shape[-1]) if call.scale is None else call.scale
    keys = k[heads.start // shared, :width].to(rooms.dtype)
    rows = len(q) * (stop - start)
    s, beside = (x[: rows * width].view(-1, stop - start, width) for x in rooms)
    flat = (scale * q.to(rooms.dtype)).reshape(rows, q.shape[-1])
    torch.mm(flat, keys.mT, out=s.view(rows, width))
    order = torch.ones((stop - start, width - clear), dtype=torch.bool, device=s.device).tril()
    return Tile(s, clear, order[None], apart[apart < width]), beside


def _masked_tile(call: Call, start: int, stop: int, apart: Any) -> Tile:
    """Return the logits of rows of any call, of all heads."""
    at = torch.arange(start, stop, device=call.query.device)[None]
    s, seen = (x[0] for x in logits(call, at))
    return Tile(s, 0, seen, seen.to(torch.uint8).argmax(-1) if apart is None else apart)


class EveryRow:
    """Sums over all rows of a call for one text, tile by tile.

    Args:
        call: the call.
        sink: position of the key looked at as a sink; None for the first that each row sees.
    """

    def __init__(self, call: Call, sink: int | None) -> None:
        batch, heads, length, _ = call.query.shape
        if batch != 1 or call.key.shape[-2] != length:
            raise Unseen("looks at another text, or at several: one text is measured at a time")
        mods = call.mask, call.bias, call.softcap, call.score_mod, call.mask_mod
        self.call, self.plain = call, all(x is None for x in mods)
        self.sink = 0 if sink is None and self.plain else sink
        apart = None if self.sink is None else [self.sink]
        self.apart = None if apart is None else torch.tensor(apart, device=call.query.device)
        # What a tile is written in is kept: new memory for each takes the system as much time as
        # the sums.
        kind = torch.promote_types(call.query.dtype, torch.float32)
        size = heads // call.key.shape[1] * min(ROWS, length) * length if self.plain else 0
        self.rooms = torch.empty((2, size), dtype=kind, device=call.query.device)
        self.unit = None if call.unit is None else call.unit.to(torch.float32)
        self.rows: list[TileSums] = []
        self.received, self.counts = torch.zeros(
            (2, heads, length), dtype=torch.float64, device=call.query.device
        )
        # A masked call looks back as long as no row is met that sees a key after itself.
        self.looks_back = call.causal or not self.plain
        self.importance = ContextImportance(self.sink)
        for cut, following in itertools.pairwise([0, *contexts(length)]):
            for start in range(cut, following, ROWS):
                self._add(start, min(start + ROWS, following))
            self._close_context(following)

    def _add(self, start: int, stop: int) -> None:
        """Add the sums of some rows."""
        heads, shared = self.call.query.shape[1], self.call.query.shape[1] // self.call.key.shape[1]
        step = shared if self.plain else heads
        parts = []
        for first in range(0, heads, step):
            group = slice(first, first + step)
            if self.plain:
                tile, room = _plain_tile(self.call, group, start, stop, self.apart, self.rooms)
            else:
                room = None
                tile = _masked_tile(self.call, start, stop, self.apart)
                ahead = tile.seen[..., start:].triu(1)
                self.looks_back = self.looks_back and not bool(ahead.any())
            sums, e = _sum_tile(tile, room)
            over_weight, of_sink = _share(sums, None if self.unit is None else self.unit[group])
            received, counts = (x[group, : e.shape[-1]] for x in (self.received, self.counts))
            received += (over_weight[:, None] @ e)[:, 0]
            counts[:, : tile.clear] += stop - start
            counts[:, tile.clear :] += tile.seen.sum(-2)
            if isinstance(self.sink, int):
                self.received[group, self.sink] += of_sink.sum(-1)
            else:
                received.scatter_add_(-1, tile.apart, of_sink.double())
            parts.append(sums)
        self.rows.append(TileSums(*(torch.cat(x).cpu() for x in zip(*parts, strict=True))))

    def _close_context(self, stop: int) -> None:
        """Keep what keys receive from the rows up to here, where a context ends."""
        received, counts = (x.cpu().numpy() for x in (self.received, self.counts))
        self.importance.close(stop, received, counts, stop)

    def statistics(self) -> dict[str, np.ndarray]:
        """Return rows with and without their sinks, as `measurement.measure_with_laws` has them."""
        *sums, sink = (torch.cat(x, -1).double().numpy() for x in zip(*self.rows, strict=True))
        named = dict(zip(TileSums._fields, sums, strict=False))
        if not (np.isfinite(named["mean"]) & np.isfinite(named["m2"])).all():
            raise Unseen("has logits that are not finite")
        learned = None if self.unit is None else self.unit.double().cpu().numpy()[:, None]
        measured = measure_logit_sums(Sums(**named), sink, learned)
        measured["length"] = named["count"] + np.isfinite(sink)
        # Shorter contexts are those of rows that look back.
        measured |= self.importance.statistics(measured, 0 if self.looks_back else -1)
        measured |= self._without_sinks(measured, np.isfinite(sink))
        kind = np.float64 if self.call.query.dtype == torch.float64 else np.float32
        return {name: x if x.dtype == np.int32 else x.astype(kind) for name, x in measured.items()}

    def _without_sinks(
        self, rows: dict[str, np.ndarray], seen: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return what `sinks.measure_without_sinks` does; heads with several sinks run again."""
        sinks = find_sinks(self.importance.by_key)
        reused, several = reuse_rows(rows, sinks, self.sink, seen)
        for head in several:
            for name, values in self._head_without(head, sinks[head]).items():
                reused[name][head] = values
        return reused

    def _head_without(self, head: int, sinks: np.ndarray) -> dict[str, np.ndarray]:
        """Return all rows of a head without its sinks."""
        length = len(sinks)
        apart = torch.as_tensor(np.flatnonzero(sinks), device=self.call.query.device)
        parts, heads = [], slice(head, head + 1)
        # The rooms of a plain tile have space for the rows of all heads that share a key head.
        step = ROWS * min(2, len(self.rooms[0]) // (min(ROWS, length) * length)) or ROWS
        for start in range(0, length, step):
            stop = min(start + step, length)
            if self.plain:
                tile, room = _plain_tile(self.call, heads, start, stop, apart, self.rooms)
            else:
                room = None
                s, clear, seen, _ = _masked_tile(self.call, start, stop, apart)
                tile = Tile(s[heads].clone(), clear, seen[heads], apart)
            parts.append(TileSums(*(x.cpu() for x in _sum_tile(tile, room)[0])))
        sums = [torch.cat(x, -1)[0].double().numpy() for x in zip(*parts, strict=True)]
        others, of_sinks = Sums(**dict(zip(TileSums._fields, sums[:-1], strict=False))), sums[-1]
        learned = None if self.unit is None else float(self.unit[head])
        statistics = name_without_sinks(measure_logit_sums(others, of_sinks, learned))
        return statistics | {"length_without_sinks": others.count}


def check_some_rows(call: Call, made: Output) -> None:
    """Check that some rows of a call make its output.

    Raises:
        Unseen: they make something else, or are not finite.
    """
    length = call.query.shape[-2]
    at = spaced(length, min(CHECKED_ROWS, length))
    at = torch.as_tensor(at, device=call.query.device)[None]
    s, seen = logits(call, at)
    if bool(made.check_rows(s, seen, at, call.unit).any()):
        raise Unseen("has logits or an output that are not finite")
