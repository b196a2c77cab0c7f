"""How the public functions are called: mistaken keywords get their reason, NumPy its own settings.

The words that people type instead of ours stand here alone, for Python, formulas and the prompt.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from sparsity.errors import InputError, WrongType

# Words of other libraries and papers, which spelling alone would not lead to ours; and, where our
# keyword has another sense, what to write. Of several lines the first that fits is meant.
_OTHER_WORDS = (
    ("n l len seq_len seqlen sequence_length context tokens", "length", ""),
    ("neff ess", "n_eff", ""),
    ("b bias mu offset", "beta", ""),
    ("g sigma std spread", "gamma", ""),
    (
        "t temp temperature tau",
        "gamma",
        "gamma/T, or a rule in steps, such as Temperature.llama4()",
    ),
    ("length n", "scores", "exact(…, length=…)"),  # the limit and a row have none
    ("d head_dim d_head", "dim", ""),
    ("lam lambda_", "decay", ""),
    ("quantity metric name", "of", ""),
    ("query q", "queries", ""),
    ("key k", "keys", ""),
    ("dim", "axis", ""),
    ("gamma beta length", "axis", "exact(kernel, …), as this takes weights"),
    ("mc samples", "montecarlo", ""),
    ("samples n_samples draws", "max_samples", ""),
    ("tol rtol", "rel_error", ""),
    ("log logx", "xscale", 'xscale="log"'),
    ("logy", "yscale", 'yscale="log"'),
    ("save savefig file filename output o", "out", ""),
    ("save savefig out path filename", "figsize", "plot(…).figure.savefig(…)"),
    ("color c label legend", "labels", ""),
    ("window slope alibi sink rope", "steps", "steps, such as (sparsity.Window(64),)"),
)


def did_you_mean(name: str, among: Collection[str]) -> str:
    """Return "did you mean gamma? ", or nothing where no name is near.

    Args:
        name: as it was typed.
        among: the names that are known there.
    """
    for words, meant, written in _OTHER_WORDS:
        if name.casefold() in words.split() and meant in among:
            return f"did you mean {written or meant}? "
    near = {known.casefold(): known for known in among if known != name}
    close = difflib.get_close_matches(name.casefold(), near, n=1)
    return f"did you mean {near[close[0]]}? " if close else ""


class NotTaken(InputError):
    """An argument that a kernel or a row does not take; says which was meant, or what it takes."""

    def __init__(
        self, argument: str, value: Any, owner: str, takes: Collection[str], others: Any = ()
    ) -> None:
        if shape := getattr(value, "shape", ()):
            value = f"array of shape {tuple(shape)}"
        value = "None" if value is None else value  # it was given, and is not missing
        self.given = argument, value, owner, (*takes,), (*others,)
        near = did_you_mean(argument, takes) or did_you_mean(argument, others)
        near = near.rstrip() or f"it takes {', '.join(takes)}"
        super().__init__(argument, value, f"{owner} does not take it; {near}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Return its own arguments, as `InputError` does."""
        return type(self), self.given


_Function = TypeVar("_Function", bound=Callable[..., Any])


def public(function: _Function, names: Collection[str] = ()) -> _Function:
    """Give a public function reasons for mistaken arguments, and NumPy's own settings.

    Under a caller's `np.seterr(all="raise")` too, an exponential that is 0 is the answer here and
    not an error.

    Args:
        function: what a user calls.
        names: of keywords that it takes besides those in its signature.
    """
    signature = inspect.signature(function)
    named = [x.name for x in signature.parameters.values() if x.kind is not x.VAR_KEYWORD]
    known = [name for name in dict.fromkeys((*named, *names)) if name != "self"]

    @functools.wraps(function)
    def called(*args: Any, **given: Any) -> Any:
        import numpy as np  # the command line, which asks what was meant, is up before NumPy is

        try:
            # What a caller raises warns, and what a caller ignores stays ignored.
            kept: dict[str, Any] = {
                kind: "ignore" if how == "ignore" else "warn" for kind, how in np.geterr().items()
            }
            with np.errstate(**{**kept, "under": "ignore"}):
                return function(*args, **given)
        except NotTaken as error:
            if error.argument not in given:
                raise
            raise NotTaken(*error.given[:-1], known) from None
        except TypeError as error:
            try:
                signature.bind(*args, **given)
            except TypeError:  # the call itself is wrong, and nothing has run
                raise _explained(error, function.__name__, known, given) from None
            raise

    return called  # type: ignore[return-value]


def _explained(error: TypeError, owner: str, known: list[str], given: dict[str, Any]) -> Exception:
    """Return the one line for a call that Python refuses: the keyword that was meant, or all."""
    for name in given:
        if name not in known:
            return NotTaken(name, given[name], owner, known)
    return WrongType(f"{error}; by name it takes {', '.join(known)}")
