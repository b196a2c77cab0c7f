"""The weight of a kernel as JavaScript, with the places between which it is smooth."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import sympy
from sympy.codegen.rewriting import optimize, optims_c99
from sympy.printing.jscode import JavascriptCodePrinter

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.symbols import s

# What front/law.js has closed forms of, by definition as in `limit.closed_form`.
_CLOSED = {
    kernels.exp.weight: "exp",
    kernels.relu2.weight: "relu2",
    kernels.identity.weight: "identity",
    kernels.zoo.absolute.weight: "identity",  # S takes |a|
}
_OTHER_LAWS = {kernels.nonnegative.weight: "features", kernels.decayed.weight: "position"}
_FUNCTIONS = {"erf": "erf", "erfc": "erfc", "expm1": "Math.expm1", "log1p": "Math.log1p"}
_FUNCTIONS |= {name: f"Math.{name}" for name in ("sinh", "cosh", "tanh", "sign", "floor", "atan")}


class Port(NamedTuple):
    """A kernel as a page has it.

    Args:
        record: name, law, kinks and words, in JSON's types.
        weight: f(s), as a JavaScript expression of s.
    """

    record: dict[str, Any]
    weight: str


def port(kernel: Kernel | RowMap) -> Port:
    """Return a kernel as a page has it.

    Raises:
        InputError: it is a map of whole rows, or uses a function that JavaScript does not have.
    """
    if not isinstance(kernel, Kernel):
        _refuse(kernel)
    law = "score" if kernel.law is Law.SCORE else _OTHER_LAWS.get(kernel.weight)
    if law is None:
        _refuse(kernel)
    own = kernels.in_python(kernel) == kernel.name  # a bare name, which nobody else knows
    record: dict[str, Any] = {
        "name": kernel.name,
        "title": kernel.title,
        "formula": f"a = {kernel.weight}",
        "python": str(kernel.weight) if own else kernel.name,
        "law": law,
        "closed": _CLOSED.get(kernel.weight),
        "kinks": [],
    }
    if law != "score":
        return Port(record, "NaN")
    return Port(record | {"kinks": list(definition(kernel).roots)}, _in_javascript(kernel))


def _in_javascript(kernel: Kernel) -> str:
    """Return the weight as JavaScript, in forms that keep their digits."""
    x = sympy.Wild("x")
    kept = kernel.weight.replace(1 + sympy.erf(x), lambda x: sympy.erfc(-x))
    printer = JavascriptCodePrinter({"user_functions": _FUNCTIONS, "strict": True})
    try:
        text = printer.doprint(optimize(kept, optims_c99))
    except Exception:  # noqa: BLE001 - SymPy raises what it likes of a formula that it cannot print
        _refuse(kernel)
    # A name that the printer does not know would stand as it is.
    return " ".join(text.split())


def _refuse(kernel: Kernel | RowMap) -> NoReturn:
    fix = (
        "has no port to a page; a page shows the kernels of `sparsity list` up to the maps of whole "
        "rows, and formulas of s from exp, log, sqrt, abs, erf, tanh, max and the like"
    )
    raise InputError("kernel", kernel.name, fix)


__all__ = ["Port", "port", "s"]
