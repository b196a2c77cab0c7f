"""Which threshold skips half of the tiles of a real model, and what is lost?

Tiles of keys are skipped whose largest score lies below the largest of the row + ln λ. Rows of
three lengths are those of prefixes of one text, so that one forward has them. `tile_law` has the
laws given the largest, `thresholds_verdict` the page and the figure.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, softmax

import sparsity
from experiments import thresholds_verdict, tile_law
from experiments.frame import Experiment, Record
from experiments.real_model import RANDOM, SMOLLM2, hash_of, open_model, text_of
from sparsity.attention.library import library
from sparsity.attention.torch.interception import Interceptor

WITHIN = np.linspace(0.0, 0.96, 33) ** 1.5  # finer where a little matters
DIGITS = 4  # of what is kept
_SPREADS = np.geomspace(
    0.5, 16.0, 81
)  # at which the law of γ̂ alone is known; below, nothing lies under λ


@dataclass(frozen=True)
class Settings:
    """What is read: rows of the queries that follow the n-th token of every text."""

    texts: tuple[str, ...] = (
        "specialnames", "compound", "types", "formatstrings", "string-methods", "typesseq",
        "debugger", "attribute-access", "typesmapping", "assignment",
    )  # fmt: skip
    lengths: tuple[int, ...] = (512, 1024, 2048)
    after: int = 128
    rows: int = 32
    log_ratios: tuple[float, ...] = (-4, -6, -8)
    tiles: tuple[int, ...] = (64, 128)
    seed: int = 0
    model: str = SMOLLM2


class Read(NamedTuple):
    """What a text has in rows of one length, [layers, heads] last; settings are ln λ by tile.

    Args:
        m: the largest score of each row, standardised, [layers, heads, rows].
        gamma: spread of each row.
        keys: share of keys below, [ln λ].
        mass: weight of the tiles below, [settings].
        tiles: share of tiles below, [settings].
        shuffled: the same of keys in random order.
        half: ln λ that skips half of the smaller tiles, and of the keys, [2].
    """

    m: np.ndarray
    gamma: np.ndarray
    keys: np.ndarray
    mass: np.ndarray
    tiles: np.ndarray
    shuffled: np.ndarray
    half: np.ndarray


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each text."""
    return [{"text": name, "sha256": hash_of(name)} for name in settings.texts]


def highest(scores: np.ndarray, size: int) -> np.ndarray:
    """Return the largest score of each tile, [..., tiles]."""
    return np.asarray(scores.reshape(*scores.shape[:-1], -1, size).max(-1))


def read_rows(settings: Settings, s: np.ndarray, rng: np.random.Generator) -> Read:
    """Return what scores [heads, rows, n] of a layer have."""
    largest, spread = s.max(-1), s.std(-1)
    below = s - largest[..., None]
    mixed, weights = rng.permuted(below, axis=-1), softmax(s, axis=-1)
    tiles, shuffled, mass = [], [], []
    for b in settings.tiles:
        top, mixed_top = (highest(x, b) for x in (below, mixed))
        held = weights.reshape(*top.shape, b).sum(-1)
        for t in settings.log_ratios:
            tiles.append((top < t).mean((1, 2)))
            shuffled.append((mixed_top < t).mean((1, 2)))
            mass.append(np.where(top < t, held, 0).sum(-1).mean(-1))
    half = [np.median(x, axis=(1, 2)) for x in (highest(below, settings.tiles[0]), below)]
    keys = [(below < t).mean((1, 2)) for t in settings.log_ratios]
    found = map(np.stack, (keys, mass, tiles, shuffled, half))
    return Read((largest - s.mean(-1)) / spread, spread, *found)


@functools.cache
def read(settings: Settings, name: str) -> list[Read]:
    """Return what a text has in rows of each length."""
    model, torch = open_model(settings.model), library("torch")
    end = settings.lengths[-1] + settings.after
    ids: Any = torch.as_tensor(model.encode(text_of(name))[:end])[None]
    if ids.shape[1] < end:
        raise sparsity.InputError("texts", name, f"has {ids.shape[1]} tokens, fewer than {end}")
    rng = np.random.default_rng(settings.seed)
    drawn = np.sort(rng.permutation(settings.after)[: settings.rows])

    def look(path: str, call: Any, made: Any) -> list[Read]:
        q, k = (x[0].float().numpy() for x in (call.query, call.key))
        k = np.repeat(k, len(q) // len(k), axis=0)
        found = []
        for n in settings.lengths:
            rows = n + drawn
            s = q[:, rows] @ np.swapaxes(k, 1, 2) * q.shape[-1] ** -0.5
            nearest = np.broadcast_to(rows[:, None] - np.arange(n), (*s.shape[:2], n))
            found.append(read_rows(settings, np.take_along_axis(s, nearest, -1), rng))
        return found

    with Interceptor(model.llama, look) as calls, torch.no_grad():
        model.llama(input_ids=ids, use_cache=False)
    layers = [found for _, found in calls.clear()]
    of_rows = ("m", "gamma")  # [heads, rows] in a layer, and others [settings, heads]
    return [
        Read(*(
            np.stack(of_layers, axis=int(field not in of_rows))
            for field, of_layers in zip(Read._fields, zip(*of_n, strict=True), strict=True)
        ))
        for of_n in zip(*layers, strict=True)
    ]  # fmt: skip


@functools.cache
def log_chances(settings: Settings) -> list[list[np.ndarray]]:
    """Return tables of `tile_law`, by tile and `within`."""
    return [[tile_law.log_chance(c, b) for c in WITHIN] for b in settings.tiles]


@functools.cache
def tile_laws(settings: Settings, name: str) -> np.ndarray:
    """Return the laws of the shares of tiles, [lengths, within, settings, layers, heads]."""
    found = []
    for n, of in zip(settings.lengths, read(settings, name), strict=True):
        of_n = [
            tile_law.share(table, n // b, of.m, t / of.gamma).mean(-1)
            for b, tables in zip(settings.tiles, log_chances(settings), strict=True)
            for t in settings.log_ratios
            for table in tables
        ]
        by_setting = np.stack(of_n).reshape(-1, len(WITHIN), *of.m.shape[:2])
        found.append(np.swapaxes(by_setting, 0, 1))
    return np.stack(found)


def fit(settings: Settings, texts: list[str]) -> np.ndarray:
    """Return the place in `WITHIN` of each head, by least squares in the longest rows of texts."""
    errors = [tile_laws(settings, x)[-1] - read(settings, x)[-1].tiles for x in texts]
    return np.argmin(np.sum(np.square(errors), axis=(0, 2)), axis=0)


@functools.cache
def law_of_keys(n: int, log_ratio: float) -> np.ndarray:
    """Return the exact share of keys below, at each of a few spreads."""
    of = f"below:{log_ratio:g}"
    return np.array(
        [float(sparsity.exact("exp", gamma=x, length=n, of=of).value) for x in _SPREADS]
    )


def near(law: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return in how many settings a law is within 0.05, [layers, heads]."""
    return (np.abs(law - share) < thresholds_verdict.CLOSE).sum(0)


def run(settings: Settings, cell: Record) -> list[Record]:
    """Compare the rows of a text with laws, whose `within` comes from the others; means of rows."""
    fitted = fit(settings, [x for x in settings.texts if x != cell["text"]])
    same = np.full_like(fitted, int(np.median(fitted)))
    by_length, laws = read(settings, cell["text"]), tile_laws(settings, cell["text"])

    def at(place: np.ndarray) -> np.ndarray:
        return np.take_along_axis(laws, place[None, None, None], axis=1)[:, 0]

    law, none, one = (at(place) for place in (fitted, np.zeros_like(fitted), same))
    last, n = by_length[-1], settings.lengths[-1]
    spread = last.gamma.mean(-1)
    found = {"within": WITHIN[fitted]}
    for length, of in zip(settings.lengths, by_length, strict=True):
        halves = dict(zip((f"half_{length}", f"half_keys_{length}"), of.half, strict=True))
        found |= {f"gamma_{length}": of.gamma.mean(-1), **halves}
    for i, length in enumerate(settings.lengths):
        found[f"near_{length}"] = near(law[i], by_length[i].tiles)
    found |= {"near_none": near(none[-1], last.tiles), "near_same": near(one[-1], last.tiles)}
    found |= {"shuffled_none": near(none[-1], last.shuffled)}
    found |= {"shuffled_within": near(law[-1], last.shuffled)}
    for t, share in zip(settings.log_ratios, last.keys, strict=True):
        found |= {f"keys_{t:g}": share, f"given_{t:g}": ndtr(last.m + t / last.gamma).mean(-1)}
        found[f"alone_{t:g}"] = np.interp(np.log(spread), np.log(_SPREADS), law_of_keys(n, t))
    steps = np.stack([t / last.gamma for t in settings.log_ratios])
    lost = [
        tile_law.mass(WITHIN[fitted][..., None], b, n // b, last.m, last.gamma, steps).mean(-1)
        for b in settings.tiles
    ]
    names = [f"{t:g}_{b}" for b in settings.tiles for t in settings.log_ratios]
    columns = {"tiles": last.tiles, "law": law[-1], "none": none[-1]}
    columns |= {"mass": last.mass, "mass_law": np.concatenate(lost)}
    for i, name in enumerate(names):
        found |= {f"{kind}_{name}": x[i] for kind, x in columns.items()}
    return [
        {"layer": i, "head": j} | {x: round(float(y[i, j]), DIGITS) for x, y in found.items()}
        for i, j in np.ndindex(fitted.shape)
    ]


EXPERIMENT = Experiment(
    name="thresholds",
    title="Which threshold skips half of the tiles of a real model, and what is lost?",
    full=Settings(),
    tiny=Settings(
        texts=("types", "formatstrings"),
        lengths=(16, 32),
        after=8,
        rows=4,
        log_ratios=(-1, -2),
        tiles=(4, 8),
        model=RANDOM,
    ),
    cells=cells,
    run=run,
    judge=thresholds_verdict.judge,
    draw=thresholds_verdict.draw,
)
