"""How sharply can this attention mechanism focus?

S = E|a| / √(E a²) of attention weights a_j = f(q·k_j): derived, evaluated, estimated, verified.
JAX and SymPy load on first use; `__init__.pyi` says what there is, and where it is from.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

from sparsity._version import __version__ as __version__


# The stub that type checkers and editors read is the one list of public names, as in SPEC 1 of
# Scientific Python. Nothing in it is imported before it is asked for: `import sparsity` stays under
# a tenth of a second, and a script that only evaluates never loads JAX.
def _read_stub() -> dict[str, tuple[str, str]]:
    """Return the module of each public name, and what it is called there."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    return {str(x.asname): (str(line.module), x.name) for line in lines for x in line.names}


# A package must not be called like a public function: once imported, it would replace the function
# as an attribute of `sparsity`. Hence `claims_ledger` for `claims`.
_HOME = _read_stub()
__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name in _HOME:
        home, called = _HOME[name]
        module = importlib.import_module(home)
        if called in vars(module):
            return vars(module)[called]
        return importlib.import_module(f"{home}.{called}")
    from sparsity.calls import did_you_mean
    from sparsity.errors import WrongAttribute

    hint = did_you_mean(name, __all__)
    raise WrongAttribute(f"module 'sparsity' has no attribute {name!r}; {hint}".rstrip("; "))


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
