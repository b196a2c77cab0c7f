"""Soft cap: scores pressed into a range, s → c·tanh(s/c)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import sympy

from sparsity.arguments import keep_checked, number
from sparsity.errors import InputError
from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.symbols import s
from sparsity.rows.tokens import AlikeStep, Step, Tokens

_PROBED = (2, 10**12)  # lengths: a temperature acts from the trained length on


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
        keep_checked(self, "cap", number, "give one number > 0", lambda x: x > 0)

    def capped(self, kernel: Any) -> CappedKernel:
        """Return the kernel of a row with this step; a capped kernel is first uncapped.

        Raises:
            InputError: the kernel is no function of a score.
        """
        own = getattr(kernel, "uncapped", kernel)
        if own.law is not Law.SCORE:
            raise InputError("steps", (self,), f"{own.name} has no scores to cap; leave it out")
        # A rational cap: the weight stays a formula without floats, the same for the same cap.
        cap = sympy.nsimplify(self.cap, rational=True)
        weight = own.weight.subs(s, cap * sympy.tanh(s / cap))
        name = f"{own.name} capped at {self.cap:g}"
        return CappedKernel(name, name, own.law, weight, own.parameters, own.source, own)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """Return the tokens as they are: their scores β + γx are those under the cap."""
        return tokens


def refuse_after_cap(steps: tuple[Step, ...]) -> None:
    """Refuse what changes scores after a soft cap, where they are β + γx no more.

    Raises:
        InputError: such a step, or two caps.
    """
    caps = [i for i, step in enumerate(steps) if isinstance(step, SoftCap)]
    if len(caps) > 1:
        raise InputError("steps", steps, "a row has one soft cap; leave the others out")
    for step in steps[caps[0] + 1 :] if caps else ():
        if any(_changes_scores(step, length) for length in _PROBED):
            fix = "changes scores after the soft cap; put it before, or write the kernel with tanh"
            raise InputError("steps", step, fix)


def _changes_scores(step: Step, length: int) -> bool:
    """Return whether the first or the last token of a row has another β or γ after the step."""
    # The step is tried rather than asked: users' own steps need not say what they change. Neither a
    # factor nor a shift leaves β = 0.3 and γ = 0.7 as they are.
    one = np.ones(2)
    ends = np.array([0.0, length - 1.0])
    before = Tokens(ends, one, 0.3 * one, 0.7 * one, one, one == 0, one == 0)
    after = step(before, length)
    return bool(np.any(after.beta != before.beta) or np.any(after.gamma != before.gamma))
