"""What a kernel is: one SymPy definition of the attention weight, and what is random in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import sympy

from sparsity import checks
from sparsity.checks import check_number
from sparsity.errors import InputError
from sparsity.kernels import symbols
from sparsity.kernels import text as texts
from sparsity.kernels.formulas import refuse_uncomputable
from sparsity.kernels.parameters import (
    BETA,
    DECAY,
    DIM,
    GAMMA,
    LENGTH,
    Parameter,
    bound_by_name,
    one_of_each,
)


class Law(Enum):
    """What the average E in S = E|a| / √(E a²) runs over."""

    SCORE = "score s ~ N(β, γ²)"
    FEATURES = "features k̃ with mean μ̃ and covariance Σ̃"
    POSITION = "position j uniform on 1…n"
    ROW = "rows of scores s_j ~ N(β, γ²)"


# The symbols a definition may use: what the law draws, and (POSITION) the length.
_DRAWN: Mapping[Law, frozenset[Any]] = {
    Law.SCORE: frozenset({symbols.s}),
    Law.FEATURES: frozenset[Any]([symbols.q, symbols.k, symbols.i, symbols.d]),
    Law.POSITION: frozenset({symbols.j, symbols.n}),
}


@dataclass(frozen=True)
class Kernel:
    """An attention kernel: the unnormalised weight a of one key, as a SymPy expression.

    Args:
        name: identifier, as used on the command line.
        title: the name a reader knows it by.
        law: what is random in the weight.
        weight: a, in the symbols of `sparsity.kernels.symbols`.
        parameters: the parameters of S, in the order of the command line.
        source: where the kernel's sparsity is stated.

    Raises:
        InputError: the weight uses an unknown symbol, is real nowhere as far as SymPy knows, or
            vanishes identically. What is not real at some scores, instruments refuse there.
    """

    name: str
    title: str
    law: Law
    weight: Any  # a SymPy Expr, which SymPy's own annotations often call Basic
    parameters: tuple[Parameter, ...]
    source: str

    @property
    def random(self) -> str:
        """What is random in the weight, in words."""
        return self.law.value

    def __post_init__(self) -> None:
        """Check the definition against its own law."""
        if self.law not in _DRAWN:
            raise InputError("law", self.law.name, "is for weights of whole rows; make a RowMap")
        if not _is_scalar(self.weight):
            raise InputError("weight", self.weight, "give a SymPy expression")
        known = _DRAWN[self.law] | {p.symbol for p in self.parameters}
        unknown = {x for x in self.weight.free_symbols if x not in known and not x.is_Indexed} - {
            x.label for x in known if isinstance(x, (sympy.IndexedBase, sympy.Idx))
        }
        if unknown:
            raise InputError("weight", self.weight, _unknown(self.law, known, unknown))
        if self.weight == 0:
            raise InputError(
                "weight", self.weight, "is 0 at every score, so S is undefined; give another"
            )
        if self.law is Law.SCORE:
            self._check_score()

    def _check_score(self) -> None:
        held = ", ".join(sorted(str(x) for x in self.weight.free_symbols - {symbols.s}))
        if held:
            fix = f"uses {held}, which belongs to the law of the score s; write it with s alone"
            raise InputError("weight", self.weight, fix)
        refuse_uncomputable(self.weight)
        if self.weight.is_real is False:
            raise InputError("weight", self.weight, "must be real for every real score s")

    @classmethod
    def parse(cls, text: str, name: str | None = None) -> Kernel:
        """The kernel a = f(s) that a text writes: "log(1 + exp(s))", "where(s > 1, s, 0)".

        Args:
            text: a formula of the score s; nothing in it is run. See `sparsity.kernels.text.parse`.
            name: identifier; defaults to the text.

        Raises:
            InputError: not a formula, with a caret at the place; or as `score_kernel`.
        """
        checks.check_text("kernel", text, "give a formula of the score s")
        name = " ".join(text.split()) if name is None else name
        return score_kernel(name, text, source="typed")

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, {self.weight})"

    def __hash__(self) -> int:
        """As equality demands, by two of the fields: caches and compiled samplers look it up."""
        return hash((self.name, self.weight))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled by name where it has one, so that it is the same object in a worker."""
        from sparsity import kernels

        known = any(self is kernel for kernel in kernels.known())
        return (kernels.named, (self.name,)) if known else super().__reduce_ex__(protocol)

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Check a kernel's parameters by name and fill in defaults.

        Args:
            given: values by parameter name, scalars or mutually broadcastable arrays.

        Returns:
            name -> float64 array (the query family: its name), in the order of `parameters`.

        Raises:
            InputError: a parameter the kernel does not take, a missing one, a bad value.
        """
        return bound_by_name(self.name, self.parameters, given)

    def bind_row(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Check one value of each parameter; of score kernels `length`, `dim` and `decay` too.

        Args:
            given: values by parameter name.

        Returns:
            The kernel's own parameters as `bind` has them, and of the other three those given.

        Raises:
            InputError: as `bind`; more than one value; a decay without a length.
        """
        more = (LENGTH, DIM, DECAY) if self.law is Law.SCORE else ()
        bound, extra = one_of_each(self.name, self.parameters, more, given)
        if "decay" in extra and "length" not in extra:
            fix = "applies to rows only; give length as well"
            raise InputError("decay", given["decay"], fix)
        return bound, extra


def check_scored(kernel: Kernel) -> Kernel:
    """Return a kernel that is a function of the score.

    Raises:
        InputError: it is not.
    """
    if kernel.law is not Law.SCORE:
        raise InputError("kernel", kernel.name, "needs a kernel that is a function of the score")
    return kernel


def _is_scalar(weight: Any) -> bool:
    """Whether it is an expression of numbers: no matrix, function or operator."""
    odd = (sympy.MatrixExpr, sympy.Lambda)
    scalar = isinstance(weight, sympy.Expr) and not weight.has(*odd)
    return scalar and weight.is_commutative is not False


def _unknown(law: Law, known: Any, unknown: set[Any]) -> str:
    """What is wrong with the unknown symbols of a weight."""
    names = ", ".join(sorted(map(str, unknown)))
    allowed = {str(x) for x in known if x is not None}
    twins = sorted(allowed & {str(x) for x in unknown})
    if twins:
        it = twins[0]
        return f"unknown symbol {names}; for {it} take sparsity.kernels.symbols.{it}"
    if law is not Law.SCORE:
        return f"unknown symbol {names}; use {', '.join(sorted(allowed))}"
    return f"unknown symbol {names}; a weight has one symbol, the score; write others as numbers"


def score_kernel(
    name: str, weight: Any, *, title: str | None = None, source: str = "user-defined"
) -> Kernel:
    """A kernel a = f(s) of a Gaussian score s ~ N(β, γ²), from a formula of the score.

    Args:
        name: identifier.
        weight: f(s) as text, "log(1 + exp(s))"; or a SymPy expression of one symbol, which may use
            Abs, Max, Min, Piecewise, Heaviside and any SymPy function.
        title: the name a reader knows it by; defaults to `name`.
        source: where it is defined.

    Returns:
        The kernel, taking `beta` and `gamma`.

    Raises:
        InputError: as `Kernel`.
    """
    if isinstance(weight, str):
        weight = texts.parse(weight)
    if _is_scalar(weight):
        expression = weight
    else:
        fix = "give a formula of the score s as text, such as 's**2', or a SymPy expression"
        expression = sympy.sympify(check_number("weight", weight, fix))
    free = expression.free_symbols
    named = [x for x in free if str(x) == "s"]  # among several symbols this is the score
    if len(free) == 1 or len(named) == 1:  # a user's own score symbol
        score: Any = named[0] if named else free.pop()
        if score in (p.symbol for p in (BETA, GAMMA)) or score.is_extended_nonnegative is not None:
            # An assumed sign would already have simplified Max(s, 0) to s.
            raise InputError(
                "weight", weight, f"the score {score} takes both signs: use Symbol('s')"
            )
        expression = expression.xreplace({score: symbols.s})
    if expression.has(sympy.sinh) and expression.has(sympy.cosh):
        # cosh s − sinh s is e^(−s): as two that cancel, no rule would resolve it far out.
        plain = sympy.expand(expression.rewrite(sympy.exp))
        expression = min(plain, expression, key=sympy.count_ops)
    return Kernel(
        name, name if title is None else title, Law.SCORE, expression, (BETA, GAMMA), source
    )
