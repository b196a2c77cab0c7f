"""Bounds on logged numbers: a callback where one is crossed, which never ends the run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from sparsity.arguments import instance, number, text
from sparsity.errors import InputError


class Crossing(NamedTuple):
    """A number beyond its bound.

    Args:
        name: as it was logged, such as "layer3.head2/n_eff".
        value: the number.
        bound: what it crossed.
        side: "below" or "above".
        step: as it was given to `alert`; None if it was not.
    """

    name: str
    value: float
    bound: float
    side: str
    step: float | None = None

    @property
    def layer(self) -> str:
        """The name of the layer; "all" for a number of all layers."""
        return re.sub(r"\.head\d+$", "", self.name.rpartition("/")[0])

    @property
    def head(self) -> int | None:
        """The head; None for a number of a whole layer or of all."""
        found = re.search(r"\.head(\d+)$", self.name.rpartition("/")[0])
        return int(found[1]) if found else None

    @property
    def statistic(self) -> str:
        """What was logged, such as "n_eff" or "n_eff_min"."""
        return self.name.rpartition("/")[2]

    def __str__(self) -> str:
        when = "" if self.step is None else f" at step {self.step}"
        return f"{self.name} = {self.value:.4g} is {self.side} {self.bound:g}{when}"


def alert(
    numbers: Mapping[str, float],
    names: str,
    *,
    below: float | None = None,
    above: float | None = None,
    step: float | None = None,
    call: Callable[[Crossing], Any] | None = None,
) -> list[Crossing]:
    """Find the logged numbers beyond a bound, and call a function for each.

        sparsity.monitoring.alert(watch.log(heads=False), "*/n_eff_min", below=2, call=print)

    What the function raises is a warning, and the run goes on; Ctrl-C ends it as always. A call
    warns of the first failure alone, in words that do not name the number, so that Python shows
    the same failure once in a run.

    Args:
        numbers: what `log` returned; {} of a step that was not looked at crosses nothing.
        names: a pattern, in which * stands for anything: "*/n_eff", "layer0.head*/max_logit".
        below: a number under it has crossed; None for no such bound.
        above: a number over it has crossed; None for no such bound.
        step: of the training, for the `Crossing`; None where it is not known.
        call: called with each `Crossing`, in the order of `numbers`; None for none.

    Returns:
        The crossings.

    Raises:
        InputError: no mapping, no bound, a bound that is no number, or no function to call.
    """
    instance("numbers", numbers, Mapping, "give what log returned")
    text("names", names, 'give a pattern of names, such as "*/n_eff"')
    if below is None and above is None:
        raise InputError("below and above", None, "give at least one of them")
    low, high = (
        None if bound is None else number(name, bound, "give a number")
        for name, bound in (("below", below), ("above", above))
    )
    if not (call is None or callable(call)):
        raise InputError("call", call, "give a function of a Crossing")
    chosen = {name: value for name, value in numbers.items() if fnmatchcase(name, names)}
    if numbers and not chosen:
        first = next(iter(numbers))
        warnings.warn(f"alert: no name is like {names!r}; one is {first!r}", stacklevel=2)
    found = []
    for name, value in chosen.items():
        if low is not None and value < low:
            found.append(Crossing(name, value, low, "below", step))
        if high is not None and value > high:
            found.append(Crossing(name, value, high, "above", step))
    failure = None
    for crossing in found:
        if call is None:
            break
        try:
            call(crossing)
        except Exception as error:  # noqa: BLE001  a run must not end by what watches it
            failure = failure or f"{type(error).__name__}: {error}"
    if failure:
        who = getattr(call, "__qualname__", type(call).__name__)  # no address: it may change
        warnings.warn(f"alert: {who} failed: {failure}; the run goes on", stacklevel=2)
    return found
