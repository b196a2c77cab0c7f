"""Scores as they were measured: each one of a sample, equally likely."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sparsity import arguments
from sparsity.arguments import as_float64
from sparsity.errors import InputError
from sparsity.output import require_regular_file
from sparsity.reading import npy_file
from sparsity.rows.scores.base import Scores
from sparsity.rows.scores.mixture import standardised

MOST = 2**18  # scores of a sample


@dataclass(frozen=True, eq=False, repr=False)
class Empirical(Scores):
    """Scores from a sample, such as those of a real head: each value is equally likely.

    The sample is shifted and scaled to mean 0 and variance 1. A row that is given no β and γ takes
    the sample's own, so that its scores are the sample's.

    Args:
        sample: finite numbers, at least two that differ, at most 2¹⁸.
    """

    name: ClassVar[str] = "empirical"
    example: ClassVar[tuple[Any, ...]] = ((-1.5, -0.5, -0.25, 0.0, 0.75, 1.5),)
    normals, uniforms = 0, 1
    smooth = False

    sample: Any

    def __post_init__(self) -> None:
        fix = "give finite numbers, at least two that differ"
        x = np.array(as_float64(self.sample, "sample", fix, texts=False))
        x, shown = np.sort(x.reshape(-1)), f"array of shape {x.shape}"
        if len(x) < 2 or not np.all(np.isfinite(x)) or x[0] == x[-1]:
            raise InputError("sample", shown, fix)
        if len(x) > MOST:
            raise InputError("sample", shown, f"at most {MOST} scores; take every k-th of them")
        x.flags.writeable = False
        object.__setattr__(self, "sample", x)
        if self._standardised[0] is None:
            raise InputError("sample", shown, "is beyond float64 in its spread; scale it")

    @cached_property
    def _standardised(self) -> Any:
        values, count = np.unique(self.sample, return_counts=True)
        return standardised(count / len(self.sample), values, np.zeros(len(values)))

    @property
    def own(self) -> dict[str, float]:
        """The sample's own β and γ."""
        _, mean, spread = self._standardised
        return {"beta": mean, "gamma": spread}

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # pyright: ignore
        return self._standardised[0]

    @property
    def ends(self) -> tuple[float, float]:  # pyright: ignore
        return float(self.parts[1][0]), float(self.parts[1][-1])

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self.sample.tobytes()).hexdigest()

    # Rows are keys of caches: two samples are compared by a digest, which is made once.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Empirical) and other._digest == self._digest

    def __hash__(self) -> int:
        return hash((Empirical, self._digest))

    def __repr__(self) -> str:
        return f"Empirical(array of {len(self.sample)})"

    @property
    def formula(self) -> str:  # pyright: ignore
        return f"one of a sample of {len(self.sample)}, standardised"

    @property
    def typed(self) -> str:
        """Its size and the beginning of its digest; the sample itself is in a file."""
        return f"{self.name}[{len(self.sample)}]#{self._digest[:8]}"

    def drawn(self, u: Any, z: Any) -> Any:
        """Return the value of the sample whose share of [0, 1) u falls in."""
        xp = u.__array_namespace__()
        _, mean, spread = self._standardised
        values = xp.asarray((self.sample - mean) / spread, dtype=u.dtype)
        index = xp.floor(u[..., 0] * len(self.sample)).astype("int32")
        return values[xp.clip(index, 0, len(self.sample) - 1)]


def load(path: str | os.PathLike[str]) -> Empirical:
    """Read a sample of scores: NumPy's .npy, or text with numbers between blanks or commas.

    Raises:
        InputError: a file that cannot be read, or holds no sample.
    """
    fix = "give a .npy file of numbers, or text with numbers between blanks or commas"
    path = arguments.path("scores", path, fix)  # whole numbers are open files
    try:
        require_regular_file(Path(path), "scores")
        if str(path).endswith(".npy"):
            return Empirical(npy_file(Path(path)))
        with open(path, encoding="utf-8") as file:
            return Empirical([float(word) for word in file.read().replace(",", " ").split()])
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        raise InputError("scores", str(path), why) from None
    except InputError as error:
        raise InputError("scores", str(path), error.fix) from None
    except ValueError:  # of other arrays, and of words that are no numbers
        raise InputError("scores", str(path), fix) from None
