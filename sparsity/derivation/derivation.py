"""What a derivation is, and how it is written for a reader: as text or as LaTeX."""

# SymPy annotates most results as Basic; what they are here is known, not inferred.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Expr

from sparsity.kernels import Kernel, name_with_title

_MOST_SHOWN = 150  # characters of a derivation in one line

z = sympy.Symbol("z", real=True)  # z = β/γ, for kernels whose S depends on nothing else


@dataclass(frozen=True)
class Limit:
    """How S (or n·S²) behaves as one variable tends to a point.

    Args:
        variable: the symbol that moves.
        point: where it goes.
        condition: what the other parameters must satisfy, a SymPy Boolean (`sympy.true` for no
            condition) or words.
        value: the limit.
        leading: the leading asymptotic term; where the limit is not 0, the limit with its first
            correction (if that is not exponentially small), so `leading`/S → 1 either way.
        quantity: what is meant, "S" or "n·S²" (the effective number of tokens).
    """

    variable: Expr
    point: Expr
    condition: Any
    value: Expr
    leading: Expr
    quantity: str = "S"


@dataclass(frozen=True)
class Case:
    """The result under a further assumption (or without one the main result makes).

    Args:
        name: a few words.
        assumption: the assumption in words.
        first_moment: E|a|.
        second_moment: E a².
        S: the sparsity.
    """

    name: str
    assumption: str
    first_moment: Expr
    second_moment: Expr
    S: Expr


@dataclass(frozen=True, repr=False)
class Derivation:
    """The moments and the sparsity of a kernel, derived from its definition.

    Args:
        kernel: the kernel.
        first_moment: m₁ = E|a|.
        second_moment: m₂ = E a².
        S: m₁/√m₂, in the symbols of `sparsity.kernels.symbols`.
        assumptions: what was assumed, in words.
        limits: the limits that could be derived; one that could not is absent, not guessed.
        cases: the result under other assumptions.
        reduced: S as a function of z = β/γ alone, if it is one.
        note: what else is known of its rows, a sentence.
    """

    kernel: Kernel
    first_moment: Expr
    second_moment: Expr
    S: Expr
    assumptions: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    cases: tuple[Case, ...] = ()
    reduced: Expr | None = None
    note: str = ""

    def text(self) -> str:
        """Write the derivation as plain text, formulas in Unicode art."""
        out = [name_with_title(self.kernel), ""]
        out += _block("a", self.kernel.weight)
        out += [f"Assumes: {assumption}" for assumption in self.assumptions] + [""]
        for name, value in (("E|a|", self.first_moment), ("E a²", self.second_moment)):
            out += _block(name, value)
        out += _block("S", self.S)
        if self.reduced is not None:
            out += ["With z = β/γ:", *_block("S", self.reduced)]
        for case in self.cases:
            out += [f"{case.name} ({case.assumption}):", *_block("S", case.S)]
        for limit in self.limits:
            out += [_arrow(limit), *_block(f"  {limit.quantity}", limit.value, "→")]
            if limit.leading != limit.value:
                out += _block(f"  {limit.quantity}", limit.leading, "~")
        out += [self.note] if self.note else []
        return "\n".join(line.rstrip() for line in out).rstrip() + "\n"

    def __repr__(self) -> str:
        shown = f"Derivation({self.kernel.name}: S = {self.S})"
        if len(shown) <= _MOST_SHOWN:
            return shown
        limits = f"{len(self.limits)} limits"
        return f"Derivation({self.kernel.name}: S in closed form, {limits}; see .text())"

    def _repr_latex_(self) -> str:
        """Write displayed mathematics for a notebook, which MathJax sets."""
        return "$$\n" + self.latex().strip().replace("{align*}", "{aligned}") + "\n$$"

    def latex(self) -> str:
        """Write the derivation as one LaTeX `align*` environment (needs amsmath)."""
        rows = [
            ("a", "=", self.kernel.weight, ""),
            (r"\mathbb{E}|a|", "=", self.first_moment, ""),
            (r"\mathbb{E}a^2", "=", self.second_moment, ""),
            ("S", "=", self.S, ""),
        ]
        if self.reduced is not None:
            rows.append(("S", "=", self.reduced, r"z = \beta/\gamma"))
        rows += [("S", "=", case.S, rf"\text{{{case.name}}}") for case in self.cases]
        for limit in self.limits:
            where = rf"{sympy.latex(limit.variable)} \to {sympy.latex(limit.point)}"
            if limit.condition != sympy.true:
                where += rf",\ {_latex(limit.condition)}"
            quantity = r"n S^2" if limit.quantity != "S" else "S"
            rows.append((quantity, r"\to", limit.value, where))
            if limit.leading != limit.value:
                rows.append((quantity, r"\sim", limit.leading, where))
        lines = [
            rf"  {left} &{relation} {_latex(right)}" + (rf" && ({note})" if note else "")
            for left, relation, right, note in rows
        ]
        return "\\begin{align*}\n" + " \\\\\n".join(lines) + "\n\\end{align*}\n"


def _written(value: Any) -> Any:
    """Return indexed features as plain symbols, μ[i] as μ_i, which both printers set well."""
    if not isinstance(value, sympy.Basic):
        return value
    flat = {
        x: sympy.Symbol("_".join(map(str, (x.base, *(index.name for index in x.indices)))))
        for x in value.atoms(sympy.Indexed)
    }
    labels = {index: index.label for index in value.atoms(sympy.Idx)}
    return value.xreplace(flat).xreplace(labels)


def _latex(value: Any) -> str:
    """Return LaTeX of a formula, or of a condition in words."""
    return rf"\text{{{value}}}" if isinstance(value, str) else sympy.latex(_written(value))


def _block(name: str, value: Any, relation: str = "=") -> list[str]:
    """Return `name = value` with the value typeset over several lines, and a blank line after."""
    equation = sympy.Eq(sympy.Symbol(name), _written(value), evaluate=False)
    lines = sympy.pretty(equation, use_unicode=True, wrap_line=False).split("\n")
    # SymPy sets an equation over several lines only with "="; the arrow is put in afterwards.
    head = f"{name} ="
    return [
        line.replace(head, f"{name} {relation}", 1) if line.startswith(head) else line
        for line in lines
    ] + [""]


def _arrow(limit: Limit) -> str:
    """Return "As γ → 0, β > 0:", the line above a limit."""
    where = f"As {sympy.pretty(limit.variable)} → {sympy.pretty(limit.point)}"
    if limit.condition == sympy.true:
        return where + ":"
    words = isinstance(limit.condition, str)
    return where + f", {limit.condition if words else sympy.pretty(limit.condition)}:"
