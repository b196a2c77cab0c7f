"""QK-norm: keys of a fixed length in random directions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import keep_checked, number, vector, whole
from sparsity.errors import InputError
from sparsity.kernels.parameters import DIM
from sparsity.rows.scores.laws import Scores


@dataclass(frozen=True)
class QKNorm(Scores):
    """QK-norm: keys have a fixed length and random directions, s_j = β_j + γ_j √d cos θ_j.

    The scores are κ cos θ_j with κ = γ√d; their spread is γ, as for Gaussian keys. They are not
    Gaussian: none is beyond γ√d, and only as d → ∞ does the law tend to the normal one.

    Args:
        dim: d ≥ 2.
        gamma: γ of a row that gives none, such as that of gains (`from_gains`).
        bound: the largest |s| that the gains allow for any query; None is γ√d.
    """

    name: ClassVar[str] = "qk-norm"
    example: ClassVar[tuple[Any, ...]] = (16,)

    dim: int
    # The law of x is that of d alone: γ is a parameter of the row.
    gamma: float | None = field(default=None, compare=False)
    bound: float | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        keep_checked(self, "dim", whole, 2)
        DIM.check(self.dim)
        for name in ("gamma", "bound"):
            given = getattr(self, name)
            if given is not None:
                given = number(name, given, "give one number > 0, or None", lambda x: x > 0)
                object.__setattr__(self, name, float(given))

    @classmethod
    def from_gains(
        cls, g_q: Any, g_k: Any, scale: float | None = None, *, query: Any = None
    ) -> QKNorm:
        """Return the law of c·Σ_i (g_q q̂)_i (g_k k̂)_i of RMS-normalised q and k with learned gains.

        For a query q̂ and keys of random direction it is exact: the keys lie on a sphere of radius
        √d, so that the score is √d‖v‖cos θ with v = c·g_q∘g_k∘q̂: this law at γ = ‖v‖, whatever the
        gains. Queries of random direction have γ = c·√Σ(g_q g_k)² in the root mean square, and the
        law is a mixture over their γ: none of them if all g_q g_k are of one size. The largest |s|
        of any query and key is c·d·max|g_q g_k|.

        Rotary positions keep the law, and γ where both entries of each plane have one gain g_k.

        Args:
            g_q: gains of the queries, [d]; the gain itself, 1 + w in models that store w.
            g_k: gains of the keys, likewise.
            scale: c, what q·k is multiplied by; None is 1/√d.
            query: one query before its norm, [d], for its own γ; None is that of random directions.

        Returns:
            The law with this γ, which a row takes if it gives none, and with the bound on |s|.

        Raises:
            InputError: gains that do not fit each other, are all 0, or a scale that is not > 0.
        """
        q = vector("g_q", g_q, "give a finite vector, one gain for each entry of a head")
        k = vector("g_k", g_k, f"give a finite vector of shape {q.shape}, as g_q")
        if k.shape != q.shape:
            fix = f"give one gain for each entry, {q.shape}, as g_q"
            raise InputError("g_k", f"array of shape {k.shape}", fix)
        c = q.size**-0.5
        if scale is not None:
            c = float(number("scale", scale, "give one number > 0, or None", lambda x: x > 0))
        # Σ_i (c g_q g_k)_i q̂_i k̂_i: only the products of the gains count, c in them.
        gains = c * q * k
        if not np.any(gains):
            raise InputError("g_k", f"array of shape {k.shape}", "all g_q·g_k are 0")
        bound = q.size * float(np.max(np.abs(gains)))
        if query is not None:
            own = vector("query", query, f"give a finite vector of shape {q.shape}")
            if own.shape != q.shape or not np.any(own * gains):
                fix = f"give one query of shape {q.shape} that its gains do not take to 0"
                raise InputError("query", f"array of shape {own.shape}", fix)
            gains = gains * own / np.sqrt(np.mean(own * own))
            bound = float(np.linalg.norm(gains)) * math.sqrt(q.size)
        return cls(q.size, float(np.linalg.norm(gains)), bound)

    @property
    def own(self) -> dict[str, float]:
        """The γ of rows that give none."""
        return {} if self.gamma is None else {"gamma": self.gamma}

    @property
    def formula(self) -> str:  # pyright: ignore
        return f"√{self.dim} times the first entry of a random direction"

    @property
    def typed(self) -> str:
        return f"{self.name}:{self.dim}"

    @property
    def ends(self) -> tuple[float, float]:  # pyright: ignore
        return -(self.dim**0.5), self.dim**0.5

    @property
    def normals(self) -> int:  # pyright: ignore
        return self.dim

    def drawn(self, u: Any, z: Any) -> Any:
        """Return √d times the first entry of a random direction."""
        xp = z.__array_namespace__()
        return self.dim**0.5 * (z[..., 0] / xp.sqrt((z * z).sum(axis=-1)))
