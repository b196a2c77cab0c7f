"""What does a real model do with a longer context? Its heads from 512 to 8,192 tokens.

Rows of every length are those of prefixes of one text, so that one forward has them. n_eff of a
head is compared with what short rows forecast, and the rows of the longest context with rows whose
far keys are drawn anew, by one thing after another that real ones have. Thresholds under the
largest score are read along, as in `thresholds`. `dilution_verdict` has the page and the figure.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, softmax

import sparsity
from experiments import dilution_verdict, tile_law
from experiments.dilution_verdict import OWN, RUNGS
from experiments.frame import RESULTS, Experiment, Record, read_table
from experiments.real_model import RANDOM, SMOLLM2, hash_of, open_model, text_of
from experiments.thresholds import highest
from sparsity.attention.library import library
from sparsity.attention.torch.interception import Interceptor

DIGITS = 4  # of what is kept


@dataclass(frozen=True)
class Settings:
    """What is read: rows of queries that follow the n-th token of every text."""

    texts: tuple[str, ...] = (
        *("specialnames", "compound", "types", "formatstrings+debugger"),
        *("string-methods+typesmapping", "argparse.py", "tarfile.py", "inspect.py"),
        *("doctest.py", "pickle.py"),
    )
    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192)
    after: int = 128
    rows: int = 16
    near: int = 128  # keys that say nothing of those farther away
    log_ratios: tuple[float, ...] = (-4, -6, -8)
    tiles: tuple[int, ...] = (64, 128)
    thresholds_at: tuple[int, ...] = (4096, 8192)  # shorter ones are in `thresholds`
    seed: int = 0
    model: str = SMOLLM2


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each text."""
    return [{"text": name, "sha256": hash_of(name)} for name in settings.texts]


# --- rows with other far keys --------------------------------------------------------------------


def log_n_eff(*parts: np.ndarray) -> np.ndarray:
    """Return ln n_eff of rows of scores [heads, rows, keys] in parts, mean of rows, [heads]."""
    rows = np.concatenate(parts, -1)
    weights = np.exp(rows - rows.max(-1, keepdims=True))
    return np.log(sparsity.n_eff(weights).astype(float)).mean(-1)


def moments(s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and spread of scores, [..., 1] each."""
    return s.mean(-1, keepdims=True), s.std(-1, keepdims=True)


def of_others(x: np.ndarray) -> np.ndarray:
    """Return the mean of the other rows of the same head, [heads, rows, 1]."""
    return (x.sum(1, keepdims=True) - x) / (x.shape[1] - 1)


def drawn_anew(settings: Settings, s: np.ndarray, z: np.ndarray) -> dict[str, np.ndarray]:
    """Return ln n_eff of rows whose far keys are drawn anew, by what they have of real ones.

    Args:
        settings: whose lengths are the ends of the bands of distance.
        s: rows of the longest context, the nearest key first.
        z: standard normals for the far keys.
    """
    ends, first = settings.lengths, settings.lengths[0]
    mean, spread = moments(s[..., settings.near : first])
    far: dict[str, list[np.ndarray]] = {name: [] for name in RUNGS}
    for low, high in itertools.pairwise(ends):
        band, normal = s[..., low:high], z[..., low - first : high - first]
        own_mean, own_spread = moments(band)
        there = mean + spread * of_others((own_mean - mean) / spread)
        wide = spread * of_others(own_spread / spread)
        shape = np.roll((band - own_mean) / own_spread, 1, axis=1)  # of another row
        made = (
            mean + spread * normal,
            there + spread * normal,
            mean + wide * normal,
            there + wide * normal,
            own_mean + own_spread * normal,
            own_mean + own_spread * shape,
        )
        for name, band in zip(RUNGS, made, strict=True):
            far[name].append(band)
    return {name: log_n_eff(s[..., :first], *bands) for name, bands in far.items()}


def forecasts(settings: Settings, s: np.ndarray, z: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield columns: ln n_eff at each longer length, of short rows with independent far keys.

    Args:
        settings: of the experiment.
        s: rows of the shortest context, the nearest key first.
        z: standard normals for the far keys.
    """
    near, first = settings.near, s.shape[-1]
    mean, spread = moments(s[..., near:])
    octaves = np.log2(np.arange(near, first))
    slope = np.polyfit(octaves, s[..., near:].mean(1).T, 1)[0][:, None, None]  # of each head
    below = slope * (np.log2(np.arange(first, settings.lengths[-1])) - octaves.mean())
    for n in settings.lengths[1:]:
        normal = mean + spread * z[..., : n - first]
        yield f"far_{n}", log_n_eff(s, normal)
        yield f"slope_{n}", log_n_eff(s, normal + below[..., : n - first])


# --- a layer -------------------------------------------------------------------------------------


def fitted_within() -> dict[tuple[int, int], float]:
    """Return the correlation of keys of a tile by layer and head, fitted by `thresholds`."""
    of = defaultdict[tuple[int, int], list[float]](list)
    for record in read_table(RESULTS / "thresholds.csv"):
        of[record["layer"], record["head"]].append(record["within"])
    return {head: float(np.median(x)) for head, x in of.items()}


@functools.cache
def tables(size: int, within: tuple[float, ...]) -> list[np.ndarray]:
    """Return tables of `tile_law` of heads."""
    return [tile_law.log_chance(c, size) for c in within]


def read_thresholds(settings: Settings, s: np.ndarray, within: tuple[float, ...]) -> Record:
    """Return shares of keys below thresholds, and in how many settings laws of tiles are close."""
    n, (mean, spread) = s.shape[-1], moments(s)
    largest = s.max(-1)
    below, gamma = s - largest[..., None], spread[..., 0]
    m, found = (largest - mean[..., 0]) / gamma, {}
    close: dict[str, np.ndarray] = dict.fromkeys(("tiles", "none"), np.zeros(len(s)))
    for t in settings.log_ratios:
        found[f"keys_{t:g}_{n}"] = (below < t).mean((1, 2))
        found[f"given_{t:g}_{n}"] = ndtr(m + t / gamma).mean(-1)
        for size in settings.tiles:
            share = (highest(below, size) < t).mean((1, 2))
            for name, of_heads in (("tiles", within), ("none", (0.0,) * len(s))):
                law = [
                    tile_law.share(table, n // size, m[i], t / gamma[i]).mean()
                    for i, table in enumerate(tables(size, of_heads))
                ]
                close[name] = close[name] + (np.abs(law - share) < dilution_verdict.CLOSE)
    return found | {f"{name}_close_{n}": x for name, x in close.items()}


def read_layer(
    settings: Settings, rows: list[np.ndarray], within: tuple[float, ...], rng: Any
) -> dict[str, np.ndarray]:
    """Return what the heads of a layer have, [heads] each, of their rows of each length."""
    first, longest = rows[0], rows[-1]
    shape = (2, *longest[..., first.shape[-1] :].shape)
    z, again = rng.standard_normal(shape, dtype=np.float32)
    found = {}
    for n, s in zip(settings.lengths, rows, strict=True):
        same = longest[..., :n]
        below = s - s.max(-1, keepdims=True)
        found |= {f"n_eff_{n}": np.exp(log_n_eff(s)), f"same_{n}": np.exp(log_n_eff(same))}
        found |= {f"gamma_{n}": s.std(-1).mean(-1)}
        found[f"local_{n}"] = softmax(s, axis=-1)[..., : settings.near].sum(-1).mean(-1)
        found[f"half_{n}"] = np.median(highest(below, settings.tiles[0]), axis=(1, 2))
        found[f"half_keys_{n}"] = np.median(below, axis=(1, 2))
        if n in settings.thresholds_at:
            found |= read_thresholds(settings, s, within)
    mean, spread = moments(longest[..., settings.near : first.shape[-1]])
    drawn = dict(forecasts(settings, first, z)) | drawn_anew(settings, longest, z)
    drawn[OWN] = log_n_eff(longest[..., : first.shape[-1]], mean + spread * again)
    found |= {name: np.exp(log) for name, log in drawn.items()}
    return found


def tokens(settings: Settings, name: str) -> tuple[Any, np.ndarray]:
    """Return the tokens of a text, and how far after the n-th one the queries are."""
    end = settings.lengths[-1] + settings.after
    encoded = open_model(settings.model).encode(text_of(name))[:end]
    if len(encoded) < end:
        raise sparsity.InputError("texts", name, f"has {len(encoded)} tokens, not {end}")
    drawn = np.random.default_rng(settings.seed).permutation(settings.after)
    return library("torch").as_tensor(encoded)[None], np.sort(drawn[: settings.rows])


def nearest_rows(settings: Settings, call: Any, after: np.ndarray) -> list[np.ndarray]:
    """Return the scores [heads, rows, n] of a layer at each length, the nearest key first."""
    q, k = (x[0].float().numpy() for x in (call.query, call.key))
    k = np.repeat(k, len(q) // len(k), axis=0)
    rows = []
    for n in settings.lengths:
        s = q[:, n + after] @ np.swapaxes(k, 1, 2) * q.shape[-1] ** -0.5
        nearest = np.broadcast_to((n + after)[:, None] - np.arange(n), (*s.shape[:2], n))
        rows.append(np.take_along_axis(s, nearest, -1))
    return rows


def run(settings: Settings, cell: Record) -> list[Record]:
    """Read the heads of a text; numbers are means of rows, n_eff the geometric one."""
    model, torch = open_model(settings.model), library("torch")
    ids, after = tokens(settings, cell["text"])
    fitted = fitted_within()
    layers = 0

    def look(path: str, call: Any, made: Any) -> list[Record]:
        nonlocal layers
        rows = nearest_rows(settings, call, after)
        within = tuple(fitted[layers, head] for head in range(len(rows[0])))
        found = read_layer(settings, rows, within, np.random.default_rng([settings.seed, layers]))
        layers += 1
        return [
            {"layer": layers - 1, "head": i}
            | {name: round(float(x[i]), DIGITS) for name, x in found.items()}
            for i in range(len(within))
        ]

    with Interceptor(model.llama, look) as calls, torch.no_grad():
        model.llama(input_ids=ids, use_cache=False, logits_to_keep=1)
    return [record for _, of_layer in calls.clear() for record in of_layer]


EXPERIMENT = Experiment(
    name="dilution",
    title="What does a real model do with a longer context?",
    full=Settings(),
    tiny=Settings(
        texts=("types", "pickle.py"),
        lengths=(16, 24, 32),
        after=8,
        rows=4,
        near=4,
        log_ratios=(-1, -2),
        tiles=(4, 8),
        thresholds_at=(24, 32),
        model=RANDOM,
    ),
    cells=cells,
    run=run,
    judge=dilution_verdict.judge,
    draw=dilution_verdict.draw,
    size=(15.0, 4.6),
)
