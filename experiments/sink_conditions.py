"""The conditions under which a text runs through the model: which keys its queries do not read.

`real_sinks` runs them, `real_sinks_shown` shows them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from experiments import masks
from experiments.layerwise import Edit
from experiments.real_model import SMOLLM2


@dataclass(frozen=True)
class Settings:
    """The model by its hash, the texts, and where in them what is done."""

    model: str = SMOLLM2
    texts: tuple[str, ...] = (
        *("types", "formatstrings", "debugger", "compound"),
        *("execmodel", "import", "objects", "typesmapping"),
    )
    tokens: int = 256
    hidden_from: int = 16  # the first query that does not see what is hidden
    changed: int = 64  # the token that is another one; losses are of those after it
    apart: int = 16  # from there to the first state of which a mean is taken
    window: int = 64
    kept: int = 4  # first tokens beside the window
    head_shares: tuple[float, ...] = (0.25, 0.5)  # of heads from which the first key is hidden
    key_shares: tuple[float, ...] = (0.5, 0.75, 0.875)  # of ordinary keys that are hidden


@dataclass(frozen=True)
class Plain:
    """A layer of the text as it is: what masks are made of.

    Args:
        settings: of the experiment.
        weights: [heads, T, T].
        sinks: bool [heads, T].
        draw: (purpose) -> random numbers of the text, the layer and the purpose.
    """

    settings: Settings
    weights: np.ndarray
    sinks: np.ndarray
    draw: Callable[[str], np.random.Generator]

    @property
    def start(self) -> int:
        """Return the first query that does not see what is hidden."""
        return self.settings.hidden_from

    @property
    def first(self) -> np.ndarray:
        """Return the first key of every head, bool [heads, T]."""
        return masks.first_key(*self.sinks.shape)

    def late(self, keys: np.ndarray) -> np.ndarray:
        """Return the mask of keys from the query on from which keys are hidden."""
        return masks.from_query(self.start, keys)

    @functools.cached_property
    def equal_masses(self) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the first key and of ordinary keys of its mass."""
        return masks.equal_masses(self.weights, self.sinks, self.start, self.draw("equal mass"))

    def one_key(self) -> np.ndarray:
        """Return an ordinary key of every head, bool [heads, T]."""
        return masks.one_ordinary_key(self.sinks, self.start, self.draw("one key"))

    def of_heads(self, share: float) -> np.ndarray:
        """Return the mask of the first key in a share of the heads; a larger one has these too."""
        drawn = self.draw("heads").random(len(self.sinks)) < share
        return self.late(self.first & drawn[:, None])

    def of_keys(self, share: float) -> np.ndarray:
        """Return the mask of a share of the ordinary keys of every query, likewise."""
        drawn = self.draw("keys").random(self.weights.shape) < share
        return self.late(~self.sinks & ~self.first) & drawn

    def window(self, start: int = 0, count: int = 0) -> np.ndarray:
        """Return the mask of a window that keeps `count` keys from `start` on."""
        length = self.weights.shape[-1]
        return masks.window(length, self.settings.window, slice(start, start + count))


Make = Callable[[Plain], Edit]
AS_IS, SHORTER, BOS = "as it is", "without its first token", "BOS first"
FROM_ALL, FIRST, SINKS = "first key hidden from all", "first key hidden", "all sinks hidden"
MUTED, ONE = "first key muted", "one ordinary key hidden"
BOS_HIDDEN = "BOS first, then hidden"
# These two were added after the first run, in which a muted first key cost more than predicted.
SINKS_MUTED, ELSEWHERE_MUTED = "all sinks muted", "first key muted, where no sink"
FIRST_MATCHED, ORDINARY_MATCHED = "first key hidden, equal mass", "ordinary keys, equal mass"
WINDOW = "window"


def conditions(settings: Settings) -> dict[str, Make | None]:
    """Return how the mask of each condition is made, None for no mask."""
    kept = settings.kept
    made: dict[str, Make | None] = {
        AS_IS: None,
        SHORTER: None,
        BOS: None,
        BOS_HIDDEN: lambda plain: Edit(plain.late(plain.first)),
        FROM_ALL: lambda plain: Edit(masks.from_query(0, plain.first)),
        FIRST: lambda plain: Edit(plain.late(plain.first)),
        SINKS: lambda plain: Edit(plain.late(plain.sinks)),
        MUTED: lambda plain: Edit(muted=plain.late(plain.first)),
        SINKS_MUTED: lambda plain: Edit(muted=plain.late(plain.sinks)),
        ELSEWHERE_MUTED: lambda plain: Edit(muted=plain.late(plain.first & ~plain.sinks)),
        ONE: lambda plain: Edit(plain.late(plain.one_key())),
        FIRST_MATCHED: lambda plain: Edit(plain.equal_masses[0]),
        ORDINARY_MATCHED: lambda plain: Edit(plain.equal_masses[1]),
        WINDOW: lambda plain: Edit(plain.window()),
        f"{WINDOW}, first token kept": lambda plain: Edit(plain.window(0, 1)),
        f"{WINDOW}, first {kept} kept": lambda plain: Edit(plain.window(0, kept)),
        f"{WINDOW}, next {kept} kept": lambda plain: Edit(plain.window(kept, kept)),
    }
    for share in settings.head_shares:
        name = f"{FIRST} in {share:g} of heads"
        made[name] = lambda plain, share=share: Edit(plain.of_heads(share))
    for share in settings.key_shares:
        name = f"{share:g} of ordinary keys hidden"
        made[name] = lambda plain, share=share: Edit(plain.of_keys(share))
    return made
