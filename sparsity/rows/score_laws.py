"""The laws of x in s_j = β_j + γ_j x_j: bounded, with heavy tails, of several kinds, or measured.

`Scores` says what a law is; a row without one has x ~ N(0, 1). `ALL` are the laws beyond the
Gaussian.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sparsity import checks, parsing
from sparsity.checks import as_float64, check_number
from sparsity.errors import InputError
from sparsity.output import npy_file, require_regular_file
from sparsity.rows.tokens import AlikeStep, Tokens


class Scores(AlikeStep):
    """The law of x in s_j = β_j + γ_j x_j: of mean 0 and variance 1, for every token alike.

    Frozen, hashable, validated where it is made. A row without one has x ~ N(0, 1), and no row has
    two.

    Attributes:
        name: as typed on the command line, before its numbers: "t:5".
        example: its fields in the contract tests.
        formula: the law in a line of text, after "x".
        normals: normal numbers that one x is drawn from.
        uniforms: uniform numbers in [0, 1), likewise.
        parts: of a sum of normal laws and points its shares, means and deviations; else None.
        ends: what x lies between.
        smooth: whether what depends on β and γ is analytic in them whatever the weight.
    """

    name: ClassVar[str]
    example: ClassVar[tuple[Any, ...]]
    formula: str
    normals: int = 1
    uniforms: int = 0
    parts: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    ends: tuple[float, float] = (-math.inf, math.inf)
    smooth: bool = True

    def drawn(self, u: Any, z: Any) -> Any:
        """Return the definition: x from random numbers along the last axis, NumPy's or JAX's.

        Args:
            u: uniform numbers, [..., uniforms].
            z: normal numbers, [..., normals].
        """
        raise NotImplementedError

    @property
    def typed(self) -> str:
        """As typed on the command line."""
        return self.name

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, scores=self)


def refined(u: Any) -> Any:
    """Return one uniform number of (0, 1] out of two, whose digits do not end where it is small.

    Args:
        u: uniform numbers in [0, 1), [..., 2].
    """
    # In float32 a uniform number is a multiple of 2⁻²³, and the smallest ones, which make the tail,
    # would be few values far apart. Here u₀ gives the first 22 bits, and u₁ the digits below.
    xp = u.__array_namespace__()
    fine = (xp.floor(u[..., 0] * 2.0**22) + u[..., 1]) * 2.0**-22
    return xp.maximum(fine, xp.full_like(fine, 2.0**-46))


END = math.sqrt(3)  # uniform x is in ±END, of variance END²/3 = 1


@dataclass(frozen=True)
class Uniform(Scores):
    """Bounded scores: s uniform on [β − c, β + c], c = √3 γ.

    The spread γ is the standard deviation, as for Gaussian scores: for the ends ±c give γ = c/√3.
    """

    name: ClassVar[str] = "uniform"
    example: ClassVar[tuple[Any, ...]] = ()
    formula: ClassVar[str] = "uniform on [−√3, √3]"  # pyright: ignore
    normals, uniforms = 0, 1
    ends = (-END, END)
    smooth = False  # an end may meet a kink of the weight

    def drawn(self, u: Any, z: Any) -> Any:
        """Return √3 (2u − 1)."""
        return END * (2 * u[..., 0] - 1)


@dataclass(frozen=True)
class StudentT(Scores):
    """Heavy tails: x√(ν/(ν − 2)) is Student-t with ν degrees of freedom.

    E|x|^p exists for p < ν. So E a² does for weights that grow slower than |s|^(ν/2), and for exp
    no moment does.

    Args:
        degrees: ν > 2, up to 1e6; the standard deviation γ exists from there on.
    """

    name: ClassVar[str] = "t"
    example: ClassVar[tuple[Any, ...]] = (12.0,)
    normals, uniforms = 0, 3

    degrees: float

    def __post_init__(self) -> None:
        fix = "must be > 2, at most 1e6: no standard deviation exists at 2 or below"
        degrees = check_number("degrees", self.degrees, fix, lambda x: 2 < x <= 1e6)
        object.__setattr__(self, "degrees", float(degrees))

    @property
    def formula(self) -> str:  # pyright: ignore
        return f"Student-t with {self.degrees:g} degrees of freedom over its standard deviation"

    @property
    def typed(self) -> str:
        return f"{self.name}:{self.degrees:g}"

    def drawn(self, u: Any, z: Any) -> Any:
        """Return √(ν − 2) √(u^(−2/ν) − 1) cos 2πv, of independent uniform u and v.

        Source: Bailey, "Polar generation of random variates with the t-distribution" (1994).
        """
        # Of many degrees u^(−2/ν) is next to 1, and the difference has its digits by `expm1` only.
        xp, nu = u.__array_namespace__(), self.degrees
        square = (nu - 2) * xp.expm1(-2 / nu * xp.log(refined(u[..., :2])))
        return xp.sqrt(xp.maximum(square, 0 * square)) * xp.cos(2 * math.pi * u[..., 2])


def standardised(share: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> Any:
    """Return the parts of a law moved and scaled to mean 0 and variance 1, and by how much."""
    # By the law of total variance: that of the means of the kinds, and the mean of their own.
    share = share / share.sum()
    centre = float(share @ mean)
    spread = float(np.sqrt(share @ ((mean - centre) ** 2 + deviation**2)))
    if not 0 < spread < np.inf:
        return None, centre, spread
    return (share, (mean - centre) / spread, deviation / spread), centre, spread


class _Standardised(Scores):
    """A sum of normal laws and points, moved and scaled to mean 0 and variance 1."""

    _standardised: Any  # its parts so, and the mean and the deviation that they had

    @property
    def defaults(self) -> dict[str, float]:
        """The β and γ of rows that give none: those before it was moved and scaled."""
        _, mean, spread = self._standardised
        return {"beta": mean, "gamma": spread}

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # pyright: ignore
        return self._standardised[0]

    @property
    def ends(self) -> tuple[float, float]:  # pyright: ignore
        _, mean, deviation = self.parts
        return (-np.inf, np.inf) if deviation.any() else (float(mean.min()), float(mean.max()))

    @property
    def smooth(self) -> bool:  # pyright: ignore
        return bool(np.all(self.parts[2] > 0))


@dataclass(frozen=True)
class Mixture(_Standardised):
    """Several kinds of keys: a key is of kind i with probability π_i, and its score is then normal.

    The law Σ π_i N(m_i, d_i²) is shifted and scaled to mean 0 and variance 1, so that β and γ keep
    their meaning: in a row that is given them only the differences between the kinds matter. A row
    that is given no γ takes the law's own β and γ, so that its scores are those of the kinds.

    Args:
        kinds: (π_i, m_i, d_i) of each kind, π_i > 0 up to a common factor, d_i ≥ 0; 0 is a fixed
            score.
    """

    name: ClassVar[str] = "mixture"
    example: ClassVar[tuple[Any, ...]] = (((0.9, 0.0, 1.0), (0.1, 3.0, 0.5)),)
    uniforms = 1

    kinds: Any

    def __post_init__(self) -> None:
        fix = "give (share > 0, mean, deviation >= 0) of each, such as ((0.9, 0, 1), (0.1, 3, 1))"
        kinds = as_float64(self.kinds, "kinds", fix, texts=False)
        if kinds.ndim != 2 or kinds.shape[1] != 3 or not np.all(np.isfinite(kinds)):
            raise InputError("kinds", self.kinds, fix)
        if not (np.all(kinds[:, 0] > 0) and np.all(kinds[:, 2] >= 0)):
            raise InputError("kinds", self.kinds, fix)
        if standardised(*kinds.T)[0] is None:
            raise InputError("kinds", self.kinds, "all scores are the same; give them a spread")
        object.__setattr__(self, "kinds", tuple(tuple(kind) for kind in kinds.tolist()))

    @cached_property
    def _standardised(self) -> Any:
        return standardised(*np.array(self.kinds).T)

    @property
    def formula(self) -> str:  # pyright: ignore
        terms = [f"{p:g}·N({m:g}, {d:g}²)" for p, m, d in self.kinds]
        return f"of the law {' + '.join(terms)}, standardised"

    @property
    def typed(self) -> str:
        return f"{self.name}:" + ";".join(",".join(f"{x:g}" for x in kind) for kind in self.kinds)

    def drawn(self, u: Any, z: Any) -> Any:
        """Return m_i + d_i z, i the kind in whose share of [0, 1) u falls."""
        xp = u.__array_namespace__()
        share, mean, deviation = self.parts
        kinds = np.stack([np.cumsum(share), mean, deviation], axis=1).tolist()
        *_, (_, m, d) = kinds
        x = m + d * z[..., 0]
        for end, m, d in kinds[-2::-1]:
            x = xp.where(u[..., 0] < end, m + d * z[..., 0], x)
        return x


def with_defaults(given: dict[str, Any], steps: tuple[Any, ...]) -> dict[str, Any]:
    """Return parameters of a row with those that its steps bring where others are not given."""
    for step in steps:
        # A γ that is given says the scale of a mixture, whose own mean would be of another.
        if not (isinstance(step, Mixture) and given.get("gamma") is not None):
            given = getattr(step, "defaults", {}) | given
    return given


MOST = 2**18  # scores of a sample


@dataclass(frozen=True, eq=False, repr=False)
class Empirical(_Standardised):
    """Scores from a sample, such as those of a real head: each value is equally likely.

    The sample is shifted and scaled to mean 0 and variance 1. A row that is given no β and γ takes
    the sample's own, so that its scores are the sample's.

    Args:
        sample: finite numbers, at least two that differ, at most 2¹⁸.
    """

    name: ClassVar[str] = "empirical"
    example: ClassVar[tuple[Any, ...]] = ((-1.5, -0.5, -0.25, 0.0, 0.75, 1.5),)
    normals, uniforms = 0, 1

    sample: Any

    def __post_init__(self) -> None:
        fix = "give finite numbers, at least two that differ"
        x = np.array(as_float64(self.sample, "sample", fix, texts=False))
        x, shown = np.sort(x.ravel()), f"array of shape {x.shape}"
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
    path = checks.check_path("scores", path, fix)  # whole numbers are open files
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


ALL: tuple[type[Any], ...] = (Uniform, StudentT, Mixture, Empirical)

_FILES = (".npy", ".txt", ".csv")
_TYPED = "uniform, t:DEGREES, mixture:SHARE,MEAN,DEVIATION;…, or a file that ends in " + ", ".join(
    _FILES
)


def known(text: str) -> bool:
    """Return whether a text writes a law of scores."""
    return text.partition(":")[0].strip() in {law.name for law in ALL} or text.endswith(_FILES)


def parse(text: str) -> Scores:
    """Return the law of scores that a text writes.

    Args:
        text: "uniform", "t:5", "mixture:0.9,0,1;0.1,3,0.5", or the path of a sample of scores.

    Raises:
        InputError: an unknown name, numbers that the law does not take, or a bad file.
    """
    checks.check_text("scores", text, f"give {_TYPED}")
    if text.endswith(_FILES):
        return load(text)
    name, _, rest = text.partition(":")
    groups = [_numbers(part, text) for part in rest.split(";") if part.strip()]
    try:
        if name.strip() == Uniform.name and not groups:
            return Uniform()
        if name.strip() == StudentT.name and len(groups) == 1 and len(groups[0]) == 1:
            return StudentT(groups[0][0])
        if name.strip() == Mixture.name and groups:
            return Mixture(tuple(groups))  # type: ignore[arg-type]
    except InputError as error:
        raise InputError("scores", text, f"{error.argument}: {error.fix}") from None
    raise InputError("scores", text, f"give {_TYPED}")


def _numbers(part: str, text: str) -> tuple[float, ...]:
    try:
        fix = f"give {_TYPED}"
        return tuple(parsing.parse_number(item, "scores", fix) for item in part.split(","))
    except InputError as error:
        raise InputError("scores", text, error.fix) from None
