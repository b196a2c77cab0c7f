"""What does a sink do in a trained model? Keys hidden and muted in SmolLM2-135M.

Each text runs through the model under every condition of `sink_conditions`, and again with one
word changed and the same keys hidden: what differs between the two runs is what that word moves.
All runs of a text pass a layer together, so that masks are made of the weights that the text, as it
is, has there. `real_model` opens the model, `masks` makes the masks, `real_sinks_shown` the
page and `real_sinks_figure` the figure.
"""

from __future__ import annotations

import functools
from collections import defaultdict

import numpy as np

import sparsity
from experiments import real_sinks_figure, real_sinks_shown
from experiments.frame import Experiment, Record
from experiments.layerwise import Edit, Inside, run_layers, token_losses
from experiments.real_model import RANDOM, Model, hash_of, open_model, text_of
from experiments.sink_conditions import (
    AS_IS,
    BOS,
    BOS_HIDDEN,
    FIRST,
    FROM_ALL,
    SHORTER,
    SINKS,
    WINDOW,
    Plain,
    Settings,
    conditions,
)
from sparsity.attention.measurement.sinks import MIN_SINK_WEIGHT, find_sinks
from sparsity.attention.stacks.sinks import importance

SHIFT = {SHORTER: -1, BOS: 1, BOS_HIDDEN: 1}  # of the text's tokens, where another begins it
MEDIANS = ("n_eff", "n_eff_without_sinks", "alike", "alike_others")  # of all heads
BY_HEAD, BY_DISTANCE = (AS_IS, SINKS), (AS_IS, FIRST)  # conditions of which more is kept


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each text."""
    return [{"text": name, "sha256": hash_of(name)} for name in settings.texts]


# --- what is measured of states and weights ------------------------------------------------------


def moved(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the change of each state over its norm, [T]."""
    return np.linalg.norm(after - before, axis=-1) / np.linalg.norm(before, axis=-1)


def median_n_eff(weights: np.ndarray) -> np.ndarray:
    """Return the median n_eff of each head over the rows of the last half, [heads]."""
    rows = weights[:, weights.shape[1] // 2 :].astype(float)
    return np.median(sparsity.n_eff(rows), axis=1)


def without(weights: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return weights without some keys [heads, T], whose share the others take."""
    left = np.where(keys[:, None, :], 0, weights)
    return left / np.maximum(left.sum(-1, keepdims=True), 1e-30)


def sinks_of(weights: np.ndarray) -> np.ndarray:
    """Return which keys are sinks, [heads, T], of those that a quarter of the queries see."""
    sinks = find_sinks(np.asarray(importance(weights)))
    sinks[:, -(weights.shape[-1] // 4) :] = False
    return sinks


def norms_of_sinks(inside: Inside, sinks: np.ndarray) -> dict[str, float]:
    """Return ‖v‖ and ‖W_O v‖ of the first key over the median key's, the median of its heads.

    Those heads are meant in which it is a sink; nothing is returned where there are none.
    """
    of = np.flatnonzero(sinks[:, 0])
    group = len(sinks) // len(inside.values)
    v = np.linalg.norm(inside.values, axis=-1)[of // group]
    written = np.linalg.norm(inside.written(), axis=-1)[of]
    each = {"value_norm": v, "written_norm": written} if of.size else {}
    return {k: float(np.median(x[:, 0] / np.median(x[:, 1:], axis=1))) for k, x in each.items()}


def cosines(inside: Inside, other: Inside, key: int, key_of_other: int) -> np.ndarray:
    """Return the cosines between what a head writes of two keys, W_O v of one and of the other."""
    one, two = inside.written()[:, key], other.written()[:, key_of_other]
    norms = np.linalg.norm(one, axis=-1) * np.linalg.norm(two, axis=-1)
    return (one * two).sum(-1) / norms


# --- the runs of a text --------------------------------------------------------------------------


class Runs:
    """All runs of one text, and what they show as they pass the layers.

    Args:
        settings: of the experiment.
        model: which is run.
        text: its name.
    """

    plain: Plain  # of the text as it is, at the layer that is run
    edit_now: Edit  # of the run with the changed word too
    state: np.ndarray  # after the layer, before the word was changed

    def __init__(self, settings: Settings, model: Model, text: str) -> None:
        self.settings, self.model = settings, model
        self.seed = settings.texts.index(text)
        self.make = conditions(settings)
        self.records: list[Record] = []
        self.parts = defaultdict[tuple[str, str], list[float]](list)  # of means over layers
        length = settings.tokens
        ids = np.asarray(model.encode(text_of(text)))
        other = next(word for word in ids[length + 1 :] if word != ids[settings.changed])
        begun = np.concatenate([[model.bos], ids])
        # The shorter text has a token more at its end, to be as long as the others: no state
        # depends on a later token. `run` leaves its loss out.
        starts = {SHORTER: ids[1:], BOS: begun, BOS_HIDDEN: begun}
        self.runs: list[tuple[str, bool]] = []
        self.texts: list[np.ndarray] = []
        for name in self.make:
            own = starts.get(name, ids)[:length]
            self.runs.append((name, False))
            self.texts.append(own)
            if name != SHORTER and not name.startswith(WINDOW):
                self.runs.append((name, True))
                self.texts.append(np.where(np.arange(length) == self.place(name), other, own))

    def place(self, name: str) -> int:
        """Return where the changed word stands."""
        return self.settings.changed + SHIFT.get(name, 0)

    def note(self, name: str, quantity: str, value: float, layer: int = -1, at: int = -1) -> None:
        """Keep a number; −1 stands for all layers, and for no head and no distance."""
        kept = {"condition": name, "quantity": quantity, "layer": layer, "at": at}
        self.records.append({**kept, "value": float(value)})

    def draw(self, layer: int, purpose: str) -> np.random.Generator:
        """Return random numbers that depend on the text, the layer and the purpose alone."""
        return np.random.default_rng([self.seed, layer, *purpose.encode()])

    def edit(self, layer: int, run: int) -> Edit | None:
        """Return what the queries of a run do not read."""
        name, changed = self.runs[run]
        make = self.make[name]
        if make is not None and not changed:
            self.edit_now = make(self.plain)
        return None if make is None else self.edit_now

    def show(self, layer: int, run: int, inside: Inside) -> None:
        """Measure a layer of a run."""
        name, changed = self.runs[run]
        after = inside.after
        if changed:
            self.measure_change(name, layer, moved(self.state, after))
            return
        self.state = after
        weights = inside.weights
        if name == AS_IS:
            self.measure_plain(layer, weights, inside)
        self.measure_weights(name, layer, weights, inside.edit)
        if name == BOS:  # its first token is another one
            self.measure_sameness(inside)
        if name == SHORTER:
            self.shorter = after
            self.parts[AS_IS, "gap"].append(moved(after[:-1], self.whole[1:]).max())
        if name == FROM_ALL:
            self.parts[name, "gap"].append(moved(self.shorter[:-1], after[1:]).max())

    def measure_plain(self, layer: int, weights: np.ndarray, inside: Inside) -> None:
        """Measure the text as it is, of which masks are made."""
        sinks = sinks_of(weights)
        draw = functools.partial(self.draw, layer)
        self.plain = Plain(self.settings, weights, sinks, draw)
        self.whole, self.inside = self.state, inside
        self.parts[AS_IS, "n_eff_without_sinks"].extend(median_n_eff(without(weights, sinks)))
        self.note(AS_IS, "first_mass", weights[:, self.settings.changed :, 0].mean(), layer)
        for quantity, value in norms_of_sinks(inside, sinks).items():
            self.note(AS_IS, quantity, value, layer)

    def measure_sameness(self, inside: Inside) -> None:
        """Measure how alike what is written of BOS and of the text's first token is, as sinks.

        The control are two tokens within the text as it is, in the same heads.
        """
        is_sink, middle = self.plain.sinks[:, 0], self.settings.tokens // 2
        for quantity, found in {
            "alike": cosines(self.inside, inside, 0, 0),
            "alike_others": cosines(self.inside, self.inside, middle, middle - 1),
        }.items():
            self.parts[AS_IS, quantity].extend(found[is_sink])

    def measure_weights(
        self, name: str, layer: int, weights: np.ndarray, edit: Edit | None
    ) -> None:
        """Measure n_eff by head, which heads have a sink, and how much mass an edit takes."""
        n_eff, place = median_n_eff(weights), self.place(name)
        self.parts[name, "n_eff"].extend(n_eff)
        for head, value in enumerate(n_eff if name in BY_HEAD else ()):
            self.note(name, "n_eff_of_head", value, layer, head)
        # Of the queries from the changed word on, and the keys that they all see.
        to_key = weights[:, place:, : place + 1].mean(1)
        self.parts[name, "sink_heads"].extend((to_key > MIN_SINK_WEIGHT).any(1))
        if edit is not None and name not in SHIFT:
            hidden, muted = edit.masks(*weights.shape[:2])
            mass = np.where(hidden | muted, self.plain.weights, 0)[:, place:].sum(-1)
            self.parts[name, "mass"].append(mass.mean())

    def measure_change(self, name: str, layer: int, change: np.ndarray) -> None:
        """Measure how far the changed word moved the states after a layer."""
        change = change[self.place(name) :]
        self.parts[name, "moved"].append(change[self.settings.apart :].mean())
        low = 1
        while name in BY_DISTANCE and low < len(change):
            self.note(name, "moved_at", change[low : 2 * low].mean(), layer, low)
            low *= 2

    def run(self) -> list[Record]:
        """Run all and return the records, losses among them."""
        llama = self.model.llama
        states = run_layers(llama, self.texts, edit=self.edit, show=self.show)
        whole = [i for i, (_, changed) in enumerate(self.runs) if not changed]
        # Of the same tokens under all conditions: behind BOS the text's last token is cut off.
        same = self.settings.tokens - self.settings.changed - 2
        for i in whole:
            name = self.runs[i][0]
            losses = token_losses(llama, states[i], self.texts[i])[self.place(name) :][:same]
            assert len(losses) == same
            self.note(name, "loss", float(losses.mean()))
        for (name, quantity), values in self.parts.items():
            reduce = np.max if quantity == "gap" else np.median if quantity in MEDIANS else np.mean
            self.note(name, quantity, float(reduce(values)))
        return self.records


def run(settings: Settings, cell: Record) -> list[Record]:
    """Run a text under all conditions."""
    return Runs(settings, open_model(settings.model), cell["text"]).run()


EXPERIMENT = Experiment(
    name="real_sinks",
    title="What does a sink do in a trained model?",
    full=Settings(),
    tiny=Settings(
        model=RANDOM, texts=("types", "import"), tokens=40, hidden_from=4, changed=10, apart=4,
        window=10, kept=2, head_shares=(0.5,), key_shares=(0.5,),
    ),
    cells=cells,
    run=run,
    judge=real_sinks_shown.judge,
    draw=real_sinks_figure.draw,
    size=(13.0, 8.4),
)  # fmt: skip
