"""What keeps scores in bounds: the soft cap, and QK-norm, whose keys have a fixed length."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import sympy

from sparsity.checks import check_number, check_vector, check_whole, keep_checked
from sparsity.errors import InputError
from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.parameters import DIM
from sparsity.kernels.symbols import s
from sparsity.rows.score_laws import Scores
from sparsity.rows.tokens import AlikeStep, Step, Tokens

# Lengths at which `refuse_after_cap` tries a step: a temperature changes nothing in short rows.
_PROBED = (2, 10**12)


@dataclass(frozen=True)
class CappedKernel(Kernel):
    """A kernel of capped scores, f(c·tanh(s/c)).

    Args:
        uncapped: the kernel f.
    """

    uncapped: Kernel

    def __hash__(self) -> int:
        return super().__hash__()


@dataclass(frozen=True)
class SoftCap(AlikeStep):
    """Soft cap: scores so far become cap·tanh(s/cap), between −cap and cap.

    It changes the kernel of the row to f(cap·tanh(s/cap)). What changes scores stands before it, as
    in the models that have one: the temperature, then the cap, then the mask.

    Args:
        cap: c > 0; 50 in Gemma 2, 30 in Grok.

    Source: Gemma Team (2024), arXiv:2408.00118, `attn_logit_softcapping`.
    """

    name: ClassVar[str] = "soft-cap"
    example: ClassVar[tuple[Any, ...]] = (2.0,)

    cap: float

    def __post_init__(self) -> None:
        keep_checked(self, "cap", check_number, "give one number > 0", lambda x: x > 0)

    def capped(self, kernel: Any) -> CappedKernel:
        """Return the kernel of a row with this step; a capped kernel is first uncapped.

        Raises:
            InputError: the kernel is no function of a score.
        """
        bare = getattr(kernel, "uncapped", kernel)
        if bare.law is not Law.SCORE:
            raise InputError("steps", (self,), f"{bare.name} has no scores to cap; leave it out")
        # A rational cap: the weight stays a formula without floats, the same for the same cap.
        cap = sympy.nsimplify(self.cap, rational=True)
        weight = bare.weight.subs(s, cap * sympy.tanh(s / cap))
        name = f"{bare.name} capped at {self.cap:g}"
        return CappedKernel(name, name, bare.law, weight, bare.parameters, bare.source, bare)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """Return the tokens as they are: their scores β + γx are those under the cap."""
        return tokens


def refuse_after_cap(steps: tuple[Step, ...]) -> None:
    """Refuse what changes scores after a soft cap, where they are β + γx no more.

    Raises:
        InputError: such a step.
    """
    caps = [i for i, step in enumerate(steps) if isinstance(step, SoftCap)]
    for step in steps[caps[0] + 1 :] if caps else ():
        if any(_changes_scores(step, length) for length in _PROBED):
            fix = "changes scores after the soft cap; put it before, or write the kernel with tanh"
            raise InputError("steps", step, fix)


def _changes_scores(step: Step, length: int) -> bool:
    """Return whether a token at an end, or where the step begins, has another β or γ after it."""
    # The step is tried rather than asked: users' own steps need not say what they change. Neither a
    # factor nor a shift leaves β = 0.3 and γ = 0.7 as they are.
    try:
        tokens = np.unique([0.0, length - 1.0, *step.breaks(length)[:2]])
        one = np.ones(len(tokens))
        before = Tokens(tokens, one, 0.3 * one, 0.7 * one, one, one == 0, one == 0)
        after = step(before, length)
    except InputError:  # a row that the step is not for
        return False
    return bool(np.any(after.beta != before.beta) or np.any(after.gamma != before.gamma))


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
        keep_checked(self, "dim", check_whole, 2)
        DIM.check(self.dim)
        for name in ("gamma", "bound"):
            given = getattr(self, name)
            if given is not None:
                given = check_number(name, given, "give one number > 0, or None", lambda x: x > 0)
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
        q = check_vector("g_q", g_q, "give a finite vector, one gain for each entry of a head")
        k = check_vector("g_k", g_k, f"give a finite vector of shape {q.shape}, as g_q")
        if k.shape != q.shape:
            fix = f"give one gain for each entry, {q.shape}, as g_q"
            raise InputError("g_k", f"array of shape {k.shape}", fix)
        c = q.size**-0.5
        if scale is not None:
            c = float(check_number("scale", scale, "give one number > 0, or None", lambda x: x > 0))
        # Σ_i (c g_q g_k)_i q̂_i k̂_i: only the products of the gains count, c in them.
        gains = c * q * k
        if not np.any(gains):
            raise InputError("g_k", f"array of shape {k.shape}", "all g_q·g_k are 0")
        bound = q.size * float(np.max(np.abs(gains)))
        if query is not None:
            vector = check_vector("query", query, f"give a finite vector of shape {q.shape}")
            if vector.shape != q.shape or not np.any(vector * gains):
                fix = f"give one query of shape {q.shape} that its gains do not take to 0"
                raise InputError("query", f"array of shape {vector.shape}", fix)
            gains = gains * vector / np.sqrt(np.mean(vector * vector))
            bound = float(np.linalg.norm(gains)) * math.sqrt(q.size)
        return cls(q.size, float(np.linalg.norm(gains)), bound)

    @property
    def defaults(self) -> dict[str, float]:
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
