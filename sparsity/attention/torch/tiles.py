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
from sparsity.attention.measurement.sinks import (
    MIN_SINK_WEIGHT,
    find_sinks,
    name_without_sinks,
    reuse_rows,
)
from sparsity.attention.streaming.inputs import log_spaced
from sparsity.attention.streaming.sums import Sums
from sparsity.attention.torch.call import Call, Output, Unseen, logits

# Logits of a tile. On a CPU those of 64 rows and 2,048 keys, which with their exponentials and the
# keys stay in its cache: with three times as many, a pass takes up to twice as long. With fewer, a
# tile's 20 small operations weigh more: 98,304 take 4 % longer.
ENTRIES_ON_CPU, ENTRIES = 2**17, 2**24
MASKED_ROWS = 32  # of a tile of all heads, whose logits with masks take several arrays
HIDDEN = -1e30  # the logit of a hidden key: finite, since Σ e^s·s would be 0·∞
# Rows in which sinks are looked for beforehand, and how many keys may be set apart as such: by 16
# rows, 13 of the 66 heads of SmolLM2 with several sinks had to be read again, by 32 next to none.
LOOKED_AT, MOST_APART = 32, 4
CHECKED_ROWS = 16  # of a call, which must make the rows of its output


class Tile(NamedTuple):
    """Logits of some rows, and which of the keys they see.

    Args:
        heads: of these heads.
        beside: `_PlainRows.beside` of these rows.
        room: [2, heads, rows, keys], logits and what is to be overwritten; as they are, too.
        edges: of both, the keys at the end that not all of the rows see.
        shown: 1 for those of these that they see, else 0; broadcasts.
        hide: 0 for these, else `HIDDEN`.
    """

    heads: slice
    beside: Any
    room: Any
    edges: Any
    shown: Any
    hide: Any


class TileSums(NamedTuple):
    """Sums of the rows of a tile, [heads, rows].

    Args:
        top: the largest logit, `HIDDEN` in rows without a key, whose other sums mean nothing.
        sums: Σ (s − top), Σ e with e = e^(s − top), [2, heads, rows].
        norms: √Σ (s − top)², √Σ e², likewise.
        w: Σ (s − top) e.
    """

    top: Any
    sums: Any
    norms: Any
    w: Any


def _sum_tile(tile: Tile, entropy: bool = True) -> tuple[TileSums, Any]:
    """Return the sums of a tile, and e^(s − top); w, which only the entropy needs, is 0 without."""
    (s, e), (edge, edge_of_e) = tile.room.unbind(), tile.edges
    edge.add_(tile.hide)  # five times as fast as a masked fill
    top = s.amax(-1) if s.shape[-1] else s.new_full(s.shape[:-1], HIDDEN)
    s.sub_(top.unsqueeze(-1))
    edge.mul_(tile.shown)  # 0 in moments, and for exp: an underflow takes it 60 times as long
    torch.exp(s, out=e)
    edge_of_e.mul_(tile.shown)
    # A norm reads once what a product and its sum read and write: half the time, the same digits.
    sums, norms = tile.room.sum(-1), torch.linalg.vector_norm(tile.room, dim=-1)
    w = s.mul_(e).sum(-1) if entropy else torch.zeros_like(top)
    return TileSums(top, sums, norms, w), e


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
        apart: positions of the keys set apart, [heads, rows, keys].
        s_apart: their logits, −∞ where they are not seen.
        beside: ln Σ e^s of them, [heads, rows].
    """

    def __init__(self, call: Call, heads: slice, apart: Any) -> None:
        wide = torch.promote_types(call.query.dtype, torch.float32)
        shared = call.query.shape[1] // call.key.shape[1]
        self.q = q = call.query[0, heads].to(wide)
        scale = 1 / math.sqrt(q.shape[-1]) if call.scale is None else call.scale
        # Of the key heads that these heads look at.
        k = call.key[0, heads.start // shared : (heads.stop - 1) // shared + 1].to(wide) * scale
        self.at = torch.arange(k.shape[-2], device=q.device)
        self.kept = self.at[(self.at[:, None] != apart).all(-1)]
        self.keys = k.mT.index_select(-1, self.kept)
        # The last key that each row sees.
        self.last = self.at if call.causal else torch.full_like(self.at, len(self.at))
        self.before = torch.searchsorted(self.last, self.at)  # rows that do not see a key yet
        self.count = torch.searchsorted(self.kept, self.last, right=True)
        s = (q.reshape(len(k), -1, q.shape[-1]) @ k[:, apart].mT).reshape(*q.shape[:2], -1)
        s = s.masked_fill_(apart > self.last[:, None], -math.inf)
        self.s_apart, self.beside = s, s.logsumexp(-1)
        self.apart, self.looks_back = apart.expand(s.shape), call.causal
        self.entries = ENTRIES_ON_CPU if q.device.type == "cpu" else ENTRIES
        # What a tile is written in is kept: new memory for each takes the system as much time as
        # the sums.
        size = max(self.entries, len(self.at))
        self.rooms = torch.empty((2, size), dtype=wide, device=q.device)

    def key_counts(self, stop: int) -> Any:
        """Return how many of the rows before `stop` see each key."""
        return (stop - self.before).clamp(min=0)[None]

    def tiles(self, start: int, stop: int) -> Iterator[Tile]:
        """Yield the tiles of some rows, all heads of a row before the next."""
        count, shared = self.count.tolist(), len(self.q) // len(self.keys)
        while start < stop:
            # As many rows as there is room for, where each may see one key more than the last.
            clear = count[start]
            fit = (math.isqrt(clear**2 + 4 * self.entries) - clear) // 2
            rows = slice(start, min(start + max(1, fit), stop))
            width = count[rows.stop - 1]
            shown = (self.kept[clear:width] <= self.last[rows, None]).to(self.q.dtype)
            hide, shape = (1 - shown) * HIDDEN, (1, len(shown), width)
            room = self.rooms[:, : math.prod(shape)].view(2, *shape)
            s, edges = room[0, 0], room[..., clear:].unbind()
            keys = self.keys[..., :width].unbind()
            heads = zip(self.q[:, rows].unbind(), self.beside[:, rows].split(1), strict=True)
            for head, (q, beside) in enumerate(heads):
                torch.mm(q, keys[head // shared], out=s)
                yield Tile(slice(head, head + 1), beside, room, edges, shown, hide)
            start = rows.stop


class _MaskedRows:
    """Rows of any call, of some heads; as `_PlainRows`, but that every key is in the tiles.

    Args:
        call: the call.
        heads: these heads.
        apart: positions of the keys that are set apart; None for the first that each row sees.

    Attributes:
        beside: also ∞ for rows without a key, from which keys receive nothing then.
        looks_back: whether none of the rows so far sees a key after itself.
    """

    def __init__(self, call: Call, heads: slice, apart: Any) -> None:
        self.call, self.heads, self._given = call, heads, apart
        self.kept = torch.arange(call.key.shape[-2], device=call.key.device)
        shape = heads.stop - heads.start, len(self.kept)
        self.count, self._key_counts = self.kept.new_zeros((2, *shape))
        self.apart = self.kept.new_zeros((*shape, 1 if apart is None else len(apart)))
        self.s_apart = self.apart.double()
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
            if self._given is None:
                apart = seen.to(torch.uint8).argmax(-1, keepdim=True)
            else:
                apart = self._given.expand(*s.shape[:2], -1)
            of_apart = s.gather(-1, apart).double()
            of_apart = of_apart.masked_fill(~seen.gather(-1, apart), -math.inf)
            others = seen.scatter(-1, apart, False)
            self.apart[:, rows], self.s_apart[:, rows] = apart, of_apart
            self.beside[:, rows] = of_apart.logsumexp(-1).masked_fill(~seen.any(-1), math.inf)
            self.count[:, rows] = others.sum(-1)
            self._key_counts += seen.sum(-2)
            self.looks_back = self.looks_back and not bool(seen[..., first:].triu(1).any())
            shown = others.to(s.dtype)
            room = torch.stack([s, s])
            hide = (1 - shown) * HIDDEN
            yield Tile(slice(0, len(s)), self.beside[:, rows], room, room, shown, hide)


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
        self.apart = [] if self.sink is None else [self.sink]
        if plain:
            self.apart += [key for key in _likely_sinks(call) if key != self.sink]
        apart = torch.tensor(self.apart, device=call.query.device) if self.apart else None
        self.rows = self.kind(call, slice(0, heads), apart)
        wide = torch.promote_types(call.query.dtype, torch.float32)
        unit = None if call.unit is None else call.unit.to(wide)
        self.sums: defaultdict[int, list[TileSums]] = defaultdict(list)  # by the first of the heads
        of_keys = torch.zeros((heads, length), dtype=torch.float64, device=call.query.device)
        received = call.query.new_empty((heads, 1, len(self.rows.kept)), dtype=wide)
        self.contexts: list[tuple[int, Any, Any]] = []
        for cut, following in itertools.pairwise([0, *contexts(length)]):
            received.zero_()
            for tile in self.rows.tiles(cut, following):
                sums, e = _sum_tile(tile)
                self.sums[tile.heads.start].append(sums)
                beside = tile.beside.sub(sums.top).exp_().add_(sums.sums[1])
                if unit is not None:
                    beside += torch.exp(unit[tile.heads, None] - sums.top)
                received[tile.heads, :, : e.shape[-1]].baddbmm_(beside.reciprocal_()[:, None], e)
            of_keys.index_add_(1, self.rows.kept, received[:, 0].double())
            self.contexts.append((following, of_keys.clone(), self.rows.key_counts(following)))
        self.looks_back = self.rows.looks_back

    def statistics(self) -> dict[str, np.ndarray]:
        """Return rows with and without their sinks, as `measurement.measure_with_laws` has them."""
        others, s = _read_sums(self.rows, [*self.sums.values()])
        sink, whole = s[..., 0], others
        for i in range(1, s.shape[-1]):
            whole = _add_key(whole, s[..., i])
        unit = self.call.unit
        learned = None if unit is None else unit.double().cpu().numpy()[:, None]
        measured = measure_logit_sums(whole, sink, learned)
        measured["length"] = whole.count + np.isfinite(sink)
        with np.errstate(invalid="ignore", divide="ignore"):
            log_total = np.logaddexp(
                np.where(whole.count > 0, whole.top + np.log(whole.z), -np.inf), sink
            )
            log_total = log_total if learned is None else np.logaddexp(log_total, learned)
            given = torch.from_numpy(np.nan_to_num(np.exp(s - log_total[..., None])))
        importance, apart = ContextImportance(self.sink), self.rows.apart.cpu()
        for stop, received, counts in self.contexts:
            received = received.cpu()  # of the kept keys; and what those set apart receive
            received.scatter_add_(1, apart[:, :stop].flatten(1), given[:, :stop].flatten(1))
            importance.close(stop, received.numpy(), counts.cpu().numpy(), stop)
        # Shorter contexts are those of rows that look back.
        measured |= importance.statistics(measured, 0 if self.looks_back else -1)
        sinks = find_sinks(importance.by_key)
        reused, several = reuse_rows(measured, sinks, self.sink, np.isfinite(sink))
        for head in several:
            left, of_sinks = self._without(head, sinks[head], others, s)
            statistics = measure_logit_sums(
                left, of_sinks, None if learned is None else learned[head]
            )
            without = name_without_sinks(statistics) | {"length_without_sinks": left.count}
            for name, values in without.items():
                reused[name][head] = values
        kind = np.float64 if self.call.query.dtype == torch.float64 else np.float32
        measured |= reused
        return {name: x if x.dtype == np.int32 else x.astype(kind) for name, x in measured.items()}

    def _without(
        self, head: int, sinks: np.ndarray, others: Sums, s: np.ndarray
    ) -> tuple[Sums, np.ndarray]:
        """Return the sums of a head without its sinks, and the logit of these as one key."""
        if sinks.sum() == sinks[self.apart].sum():  # all of them were set apart
            left = Sums(*(np.broadcast_to(x, s.shape[:2])[head] for x in others[:7]))
            for i in np.flatnonzero(~sinks[self.apart]):
                left = _add_key(left, s[head, :, i])
            s = s[head][:, sinks[self.apart]]
        else:
            apart = torch.as_tensor(np.flatnonzero(sinks), device=self.call.query.device)
            rows = self.kind(self.call, slice(head, head + 1), apart)
            tiles = [_sum_tile(x, entropy=False)[0] for x in rows.tiles(0, len(sinks))]
            left, s = _read_sums(rows, [tiles])
            left, s = Sums(*(np.broadcast_to(x, s.shape[:2])[0] for x in left[:7])), s[0]
        return left, np.logaddexp.reduce(s, axis=-1)


def _read_sums(
    rows: _PlainRows | _MaskedRows, groups: list[list[TileSums]]
) -> tuple[Sums, np.ndarray]:
    """Return sums of rows without the keys that are set apart, and the logits of these.

    Args:
        rows: the rows.
        groups: the sums of their tiles, by heads.
    """
    of_heads = [[torch.cat(x, -1) for x in zip(*group, strict=True)] for group in groups]
    joined = (torch.cat(x, -2) for x in zip(*of_heads, strict=True))
    top, (total, z), (norm, norm_e), w = (x.double().cpu().numpy() for x in joined)
    count = rows.count.cpu().numpy()
    some, mean = count > 0, total / np.maximum(count, 1)
    if not (np.isfinite(mean) & np.isfinite(norm)).all():
        raise Unseen("has logits that are not finite")
    m2 = np.maximum(norm**2 - total * mean, 0.0)
    tops, means = np.where(some, top, -np.inf), np.where(some, mean + top, 0.0)
    return Sums(count, tops, z, norm_e**2, w, means, m2), rows.s_apart.double().cpu().numpy()


def _add_key(sums: Sums, s: np.ndarray) -> Sums:
    """Return sums of rows with one more key of these logits, −∞ where it is not seen."""
    seen, some = np.isfinite(s), sums.count > 0
    count, top = sums.count + seen, np.maximum(sums.top, s)
    base = np.where(count > 0, top, 0.0)
    # How far what was the largest logit, and the new one, lie below the largest now.
    down, below = np.where(some, sums.top - base, 0.0), np.where(seen, s - base, 0.0)
    share, e = np.where(some, np.exp(down), 0.0), np.where(seen, np.exp(below), 0.0)
    moved = np.where(seen, s - sums.mean, 0.0) / np.maximum(count, 1)
    return Sums(
        count, top, share * sums.z + e, share**2 * sums.y + e**2,
        share * (sums.w + down * sums.z) + below * e,
        sums.mean + moved, sums.m2 + moved**2 * count * sums.count,
    )  # fmt: skip


def _likely_sinks(call: Call) -> list[int]:
    """Return keys that may be sinks, by some rows; one that is not found costs time alone."""
    length = call.query.shape[-2]
    at = torch.linspace(0, length - 1, LOOKED_AT, device=call.query.device).long()[None]
    s, seen = (x[0] for x in logits(call, at))
    seen = seen[:1]  # by all heads alike
    p, counts = torch.softmax(s.masked_fill_(~seen, HIDDEN), -1), seen.sum(-2)
    often = 4 * counts >= LOOKED_AT
    mean = torch.where(often, p.sum(-2) / counts.clamp(min=1), 0.0).amax(0)
    most = mean.topk(min(MOST_APART, length))
    return most.indices[most.values > MIN_SINK_WEIGHT / 2].tolist()


def check_some_rows(call: Call, made: Output) -> None:
    """Check that some rows of a call make its output.

    Raises:
        Unseen: they make something else, or are not finite.
    """
    length = call.query.shape[-2]
    at = log_spaced(length, min(CHECKED_ROWS, length))
    at = torch.as_tensor(at, device=call.query.device)[None]
    s, seen = logits(call, at)
    if bool(made.check_rows(s, seen, at, call.unit).any()):
        raise Unseen("has logits or an output that are not finite")
