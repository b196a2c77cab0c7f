"""The steps of a row law: decay, ALiBi, windows, log-n scaling, sinks, keys on a sphere.

Each is a small frozen record that changes some tokens of a row; they compose in any order.
Example: `RowLaw(0.0, 1.0, (Alibi(0.1), Window(512), Sink(4.0)))`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels.parameters import DECAY, DIM
from sparsity.rows.tokens import MOST, RowLaw, Step, Tokens, every, number, whole

__all__ = [
    "ALL",
    "PUBLISHED_SCALE",
    "Alibi",
    "Decay",
    "LogScaled",
    "RowLaw",
    "Sink",
    "Spherical",
    "Step",
    "Tokens",
    "Unit",
    "Window",
    "every",
]

PUBLISHED_SCALE = 0.43  # of ln n; published, Nakanishi (2025), arXiv:2501.19399
_SMALLEST = 745.0  # e^−745 is the smallest number there is: weights below are 0


@dataclass(frozen=True)
class Decay:
    """Retention: w_j = λ^(n−j), times what it was; weights below 1e−323 are 0.

    Args:
        decay: λ in (0, 1].
    """

    decay: float

    def __post_init__(self) -> None:
        """Check λ."""
        if np.ndim(DECAY.check(self.decay)):
            raise InputError("decay", self.decay, "give one number in (0, 1]")

    def breaks(self, length: int) -> np.ndarray:
        """Every distance up to where the weight underflows."""
        if self.decay == 1:
            return np.empty(0)
        seen = math.ceil(min(length, 1 + _SMALLEST / -math.log(self.decay)))
        if seen > MOST:
            fix = f"{seen:.3g} tokens of this row differ, at most {MOST} may; shorten the row"
            raise InputError("decay", self.decay, fix)
        return np.arange(seen + 1, dtype=np.float64)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """The weights of the distances."""
        with np.errstate(under="ignore"):
            w = np.exp(tokens.distance * math.log(self.decay))
            return replace(tokens, w=tokens.w * w)


@dataclass(frozen=True)
class Alibi:
    """ALiBi: β_j is lowered by slope·(n − j).

    Args:
        slope: ≥ 0, per token.

    Source: Press et al., "Train Short, Test Long" (2022), arXiv:2108.12409.
    """

    slope: float

    def __post_init__(self) -> None:
        """Check the slope."""
        number("slope", self.slope, "give one number >= 0", lambda x: x >= 0)

    def breaks(self, length: int) -> np.ndarray:
        """Every distance."""
        return every(length) if self.slope else np.empty(0)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """The bias of the distances."""
        return replace(tokens, beta=tokens.beta - self.slope * tokens.distance)


@dataclass(frozen=True)
class Window:
    """Sliding window: only the last tokens are in sight, the others have w_j = 0.

    Args:
        size: tokens in sight, ≥ 1.
    """

    size: int

    def __post_init__(self) -> None:
        """Check the size."""
        whole("size", self.size, 1)

    def breaks(self, length: int) -> np.ndarray:
        """The edge of the window."""
        return np.array([float(self.size)])

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """Nothing beyond the edge."""
        return replace(tokens, w=np.where(tokens.distance < self.size, tokens.w, 0.0))


@dataclass(frozen=True)
class LogScaled:
    """Scalable softmax: scores so far are multiplied by scale·ln n, hence β and γ are.

    With scale = 1/ln n₀ this is the log-n scaling that changes nothing at n₀.

    Args:
        scale: > 0; the published fit is `PUBLISHED_SCALE`.

    Source: Nakanishi, "Scalable-Softmax Is Superior for Attention" (2025), arXiv:2501.19399; Su
    Jianlin (2021), kexue.fm/archives/8823.
    """

    scale: float = PUBLISHED_SCALE

    def __post_init__(self) -> None:
        """Check the scale."""
        number("scale", self.scale, "give one number > 0", lambda x: x > 0)

    def breaks(self, length: int) -> np.ndarray:
        """None: it is the same for every token."""
        return np.empty(0)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """The scaled scores."""
        factor = self.scale * math.log(length)
        return replace(tokens, beta=factor * tokens.beta, gamma=factor * tokens.gamma)


@dataclass(frozen=True)
class Unit:
    """A weight e^b beside the tokens: p_j = |a_j|/(e^b + Σ|a|).

    It takes mass and is no token. S and n_eff compare the tokens with one another, so they stay as
    they were: dividing all weights by a larger sum changes no ratio of them. What changes is the
    mass that the tokens share, E Σp_j < 1, and E Y₂ = E Σp_j².

    Args:
        logit: b. 0 is softmax "off by one", which adds 1; a learned sink logit is any number.

    Source: Miller, "Attention Is Off By One" (2023); Xiao et al. (2023), arXiv:2309.17453.
    """

    logit: float = 0.0

    def __post_init__(self) -> None:
        """Check the logit."""
        number("logit", self.logit, "give one finite number")

    def breaks(self, length: int) -> np.ndarray:
        """None: it is no token."""
        return np.empty(0)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """One more unit."""
        return replace(tokens, units=(*tokens.units, float(self.logit)))


@dataclass(frozen=True)
class Sink:
    """A sink: the first token has a score of its own, and is in sight whatever the steps before.

    Args:
        beta: its bias, for exp its logit.
        gamma: its spread ≥ 0; 0 is a fixed score.
    """

    beta: float
    gamma: float = 0.0

    def __post_init__(self) -> None:
        """Check the score."""
        number("beta", self.beta, "give one finite number")
        number("gamma", self.gamma, "give one number >= 0", lambda x: x >= 0)

    def breaks(self, length: int) -> np.ndarray:
        """The first token is alone."""
        return np.array([length - 1.0])

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """The first token's own law."""
        first = tokens.distance == length - 1
        return replace(
            tokens,
            beta=np.where(first, self.beta, tokens.beta),
            gamma=np.where(first, self.gamma, tokens.gamma),
            w=np.where(first, 1.0, tokens.w),
            sink=tokens.sink | first,
        )


@dataclass(frozen=True)
class Spherical:
    """QK-norm: keys of a fixed length in random directions, s_j = β_j + γ_j √d cos θ_j.

    In SCIENCE's terms κ = γ√d; the spread of the scores is γ, as for Gaussian keys.

    Args:
        dim: d ≥ 2.
    """

    dim: int

    def __post_init__(self) -> None:
        """Check the dimension."""
        object.__setattr__(self, "dim", whole("dim", self.dim, 2))
        DIM.check(self.dim)

    def breaks(self, length: int) -> np.ndarray:
        """None: it is the same for every token."""
        return np.empty(0)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """Directions in place of Gaussians."""
        return replace(tokens, dim=self.dim)


# One law for each kind of step, and one that combines them: what every contract test runs over.
ALL: tuple[RowLaw, ...] = (
    RowLaw(),
    RowLaw(steps=(Decay(0.9),)),
    RowLaw(steps=(Alibi(0.1),)),
    RowLaw(steps=(Window(8),)),
    RowLaw(steps=(LogScaled(),)),
    RowLaw(steps=(Unit(),)),
    RowLaw(steps=(Sink(3.0),)),
    RowLaw(steps=(Spherical(16),)),
    RowLaw(0.5, 0.8, (Decay(0.95), Alibi(0.02), Window(12), Sink(2.0, 0.5), Unit(1.0))),
)
