"""Every row of a call of attention, measured beside it: some rows at a time, never the matrix.

The sums are those of `streaming.sums`, written out for PyTorch, with the sink key apart (as
`measurement.logit_blocks` has them for JAX); `measurement.row_focus` makes statistics of them.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sparsity.attention.library import torch
from sparsity.attention.measurement.layers import ContextImportance, contexts
from sparsity.attention.measurement.row_focus import measure_logit_sums
from sparsity.attention.measurement.sinks import find_sinks, name_without_sinks, reuse_rows
from sparsity.attention.streaming.inputs import spaced
from sparsity.attention.streaming.sums import Sums
from sparsity.attention.torch.call import Call, Output, Unseen, logits

# Logits of a tile. On a CPU those of 48 rows and 2,048 keys, which with their exponentials and the
# keys stay in its cache: with three times as many, a pass takes up to twice as long.
ENTRIES_ON_CPU, ENTRIES = 3 * 2**15, 2**24
MASKED_ROWS = 32  # of a tile of all heads, whose logits with masks take several arrays
HIDDEN = -1e30  # the logit of a hidden key: finite, since Σ e^s·s would be 0·∞
CHECKED_ROWS = 16  # of a call, which must make the rows of its output


class Tile(NamedTuple):
    """Logits of some rows, and which of the keys they see.

    Args:
        heads: of these heads.
        rows: of these rows.
        s: logits, [heads, rows, keys]; overwritten.
        room: a tensor of its shape to write in; None for a new one.
        clear: how many keys at the start all of the rows see.
        shown: 1 for those of the keys after these that they see, else 0; broadcasts.
        hide: 0 for these, else `HIDDEN`.
    """

    heads: slice
    rows: slice
    s: Any
    room: Any
    clear: int
    shown: Any
    hide: Any


class TileSums(NamedTuple):
    """Sums of the rows of a tile, [heads, rows].

    Args:
        top: the largest logit, `HIDDEN` in rows without a key, whose other sums mean nothing.
        z: Σ e, with e = e^(s − top).
        norm_e: √Σ e².
        total: Σ (s − top).
        norm: √Σ (s − top)².
        w: Σ (s − top) e.
    """

    top: Any
    z: Any
    norm_e: Any
    total: Any
    norm: Any
    w: Any


def _sum_tile(tile: Tile, entropy: bool = True) -> tuple[TileSums, Any]:
    """Return the sums of a tile, and e^(s − top); w, which only the entropy needs, is 0 without."""
    s, edge = tile.s, tile.s[..., tile.clear :]
    edge.add_(tile.hide)  # five times as fast as a masked fill
    top = s.amax(-1) if s.shape[-1] else s.new_full(s.shape[:-1], HIDDEN)
    e = torch.exp(s.sub_(top[..., None]), out=tile.room)
    edge.mul_(tile.shown)  # in moments of logits a hidden key counts as 0
    # A norm reads once what a product and its sum read and write: half the time, the same digits.
    total, norm = s.sum(-1), torch.linalg.vector_norm(s, dim=-1)
    z, norm_e = e.sum(-1), torch.linalg.vector_norm(e, dim=-1)
    w = s.mul_(e).sum(-1) if entropy else torch.zeros_like(z)
    return TileSums(top, z, norm_e, total, norm, w), e


class _PlainRows:
    """Rows of a call without masks, of some heads.

    Keys that are set apart are left out of tiles: nothing cancels where they take almost all of the
    weight.

    Args:
        call: the call.
        heads: these heads.
        apart: positions of the keys that are set apart.

    Attributes:
        kept: positions of the other keys.
        count: how many of these each row sees.
        beside: ln Σ e^s of the keys set apart, [heads, rows]; −∞ where none is seen.
    """

    def __init__(self, call: Call, heads: slice, apart: Any) -> None:
        wide = torch.promote_types(call.query.dtype, torch.float32)
        shared = call.query.shape[1] // call.key.shape[1]
        self.q = q = call.query[0, heads].to(wide)
        scale = 1 / math.sqrt(q.shape[-1]) if call.scale is None else call.scale
        k = call.key[0].to(wide) * scale
        self.at = torch.arange(k.shape[-2], device=q.device)
        self.kept = self.at[(self.at[:, None] != apart).all(-1)]
        kept = k[:, self.kept]
        self.keys = [kept[head // shared] for head in range(heads.start, heads.stop)]
        # The last key that each row sees.
        self.last = self.at if call.causal else torch.full_like(self.at, len(self.at))
        self.count = torch.searchsorted(self.kept, self.last, right=True)
        of_apart = [x @ k[head // shared, apart].mT for head, x in enumerate(q, heads.start)]
        s = torch.stack(of_apart).double().masked_fill(apart > self.last[:, None], -math.inf)
        self.beside = s.logsumexp(-1).to(wide)
        self.first, self.looks_back = apart[:1].expand(self.beside.shape), call.causal
        self.entries = ENTRIES_ON_CPU if q.device.type == "cpu" else ENTRIES
        # What a tile is written in is kept: new memory for each takes the system as much time as
        # the sums.
        size = max(self.entries, len(self.at))
        self.rooms = torch.empty((2, size), dtype=wide, device=q.device)

    def key_counts(self, stop: int) -> Any:
        """Return how many of the rows before `stop` see each key."""
        return (stop - torch.searchsorted(self.last, self.at)).clamp(min=0)[None]

    def tiles(self, start: int, stop: int) -> Iterator[Tile]:
        """Yield the tiles of some rows, all heads of a row before the next."""
        step, count = max(1, self.entries // stop), self.count.tolist()
        for first in range(start, stop, step):
            rows = slice(first, min(first + step, stop))
            clear, width = count[first], count[rows.stop - 1]
            shown = (self.kept[clear:width] <= self.last[rows, None]).to(self.q.dtype)
            hide, shape = (1 - shown) * HIDDEN, (len(shown), width)
            s, room = (x[: math.prod(shape)].view(1, *shape) for x in self.rooms)
            for head, keys in enumerate(self.keys):
                torch.mm(self.q[head, rows], keys[:width].mT, out=s[0])
                yield Tile(slice(head, head + 1), rows, s, room, clear, shown, hide)


class _MaskedRows:
    """Rows of any call, of some heads; as `_PlainRows`, but that every key is in the tiles.

    Args:
        call: the call.
        heads: these heads.
        apart: positions of the keys that are set apart; None for the first that each row sees.

    Attributes:
        beside: also ∞ for rows without a key, from which keys receive nothing then.
        first: the first of the keys set apart, of each row [heads, rows].
        looks_back: whether none of the rows so far sees a key after itself.
    """

    def __init__(self, call: Call, heads: slice, apart: Any) -> None:
        self.call, self.heads, self.apart = call, heads, apart
        self.kept = torch.arange(call.key.shape[-2], device=call.key.device)
        shape = heads.stop - heads.start, len(self.kept)
        self.count, self.first, self._key_counts = self.kept.new_zeros((3, *shape))
        self.beside = self.count.to(torch.promote_types(call.query.dtype, torch.float32))
        self.looks_back = True

    def key_counts(self, stop: int) -> Any:
        """Return how many of the rows before `stop`, the last so far, see each key."""
        return self._key_counts.clone()

    def tiles(self, start: int, stop: int) -> Iterator[Tile]:
        """Yield the tiles of some rows."""
        for first in range(start, stop, MASKED_ROWS):
            rows = slice(first, min(first + MASKED_ROWS, stop))
            s, seen = (x[0, self.heads] for x in logits(self.call, self.kept[None, rows]))
            if self.apart is None:
                apart = seen.to(torch.uint8).argmax(-1, keepdim=True)
            else:
                apart = self.apart.expand(*s.shape[:2], -1)
            of_apart = s.gather(-1, apart).double()
            of_apart = of_apart.masked_fill(~seen.gather(-1, apart), -math.inf)
            others = seen.scatter(-1, apart, False)
            beside = of_apart.logsumexp(-1).masked_fill(~seen.any(-1), math.inf)
            self.beside[:, rows], self.first[:, rows] = beside, apart[..., 0]
            self.count[:, rows] = others.sum(-1)
            self._key_counts += seen.sum(-2)
            self.looks_back = self.looks_back and not bool(seen[..., first:].triu(1).any())
            shown = others.to(s.dtype)
            yield Tile(slice(0, len(s)), rows, s, None, 0, shown, (1 - shown) * HIDDEN)


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
        self.call, plain = call, all(x is None for x in mods)
        self.kind = _PlainRows if plain else _MaskedRows
        self.sink = 0 if sink is None and plain else sink
        apart = None if self.sink is None else torch.tensor([self.sink], device=call.query.device)
        self.rows = self.kind(call, slice(0, heads), apart)
        wide = torch.promote_types(call.query.dtype, torch.float32)
        unit = None if call.unit is None else call.unit.to(wide)
        self.sums: defaultdict[int, list[TileSums]] = defaultdict(list)  # by the first of the heads
        of_keys = np.zeros((heads, length))
        received = call.query.new_empty((heads, 1, len(self.rows.kept)), dtype=wide)
        self.contexts: list[tuple[int, np.ndarray, np.ndarray]] = []
        for cut, following in itertools.pairwise([0, *contexts(length)]):
            received.zero_()
            for tile in self.rows.tiles(cut, following):
                sums, e = _sum_tile(tile)
                self.sums[tile.heads.start].append(sums)
                beside = self.rows.beside[tile.heads, tile.rows].sub(sums.top).exp_().add_(sums.z)
                if unit is not None:
                    beside += torch.exp(unit[tile.heads, None] - sums.top)
                received[tile.heads, :, : e.shape[-1]].baddbmm_(beside.reciprocal_()[:, None], e)
            of_keys[:, self.rows.kept.cpu().numpy()] += received[:, 0].cpu().numpy()
            counts = self.rows.key_counts(following).cpu().numpy()
            self.contexts.append((following, of_keys.copy(), counts))
        self.looks_back = self.rows.looks_back

    def statistics(self) -> dict[str, np.ndarray]:
        """Return rows with and without their sinks, as `measurement.measure_with_laws` has them."""
        measured, count, sink = _measure_rows(self.rows, [*self.sums.values()], self.call.unit)
        measured["length"] = count + np.isfinite(sink)
        importance, first = ContextImportance(self.sink), self.rows.first.cpu().numpy()
        of_sink = np.nan_to_num(measured["sink_mass"] - measured.get("learned_sink", 0.0))
        for stop, received, counts in self.contexts:
            at = np.arange(len(received))[:, None], first[:, :stop]
            np.add.at(received, at, of_sink[:, :stop])
            importance.close(stop, received, counts, stop)
        # Shorter contexts are those of rows that look back.
        measured |= importance.statistics(measured, 0 if self.looks_back else -1)
        sinks = find_sinks(importance.by_key)
        reused, several = reuse_rows(measured, sinks, self.sink, np.isfinite(sink))
        for head in several:
            for name, values in self._head_without(head, sinks[head]).items():
                reused[name][head] = values
        kind = np.float64 if self.call.query.dtype == torch.float64 else np.float32
        measured |= reused
        return {name: x if x.dtype == np.int32 else x.astype(kind) for name, x in measured.items()}

    def _head_without(self, head: int, sinks: np.ndarray) -> dict[str, np.ndarray]:
        """Return all rows of a head without its sinks."""
        apart = torch.as_tensor(np.flatnonzero(sinks), device=self.call.query.device)
        heads = slice(head, head + 1)
        rows = self.kind(self.call, heads, apart)
        sums = [_sum_tile(tile, entropy=False)[0] for tile in rows.tiles(0, len(sinks))]
        unit = None if self.call.unit is None else self.call.unit[heads]
        measured, count, _ = _measure_rows(rows, [sums], unit)
        return name_without_sinks(measured) | {"length_without_sinks": count}


def _measure_rows(
    rows: _PlainRows | _MaskedRows, groups: list[list[TileSums]], unit: Any
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return statistics of rows, how many keys are not set apart, and the logit of those that are.

    Args:
        rows: the rows.
        groups: the sums of their tiles, by heads.
        unit: logits of learned sinks, [heads], or None.
    """
    of_heads = [[torch.cat(x, -1) for x in zip(*group, strict=True)] for group in groups]
    joined = (torch.cat(x) for x in zip(*of_heads, strict=True))
    top, z, norm_e, total, norm, w = (x.double().cpu().numpy() for x in joined)
    count, beside = rows.count.cpu().numpy(), rows.beside.double().cpu().numpy()
    some, mean = count > 0, total / np.maximum(count, 1)
    if not (np.isfinite(mean) & np.isfinite(norm)).all():
        raise Unseen("has logits that are not finite")
    m2 = np.maximum(norm**2 - total * mean, 0.0)
    tops, means = np.where(some, top, -np.inf), np.where(some, mean + top, 0.0)
    others = Sums(count, tops, z, norm_e**2, w, means, m2)
    learned = None if unit is None else unit.double().cpu().numpy()[:, None]
    return measure_logit_sums(others, beside, learned), count, beside


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
