"""Names and floats for loggers: what a monitor saw beside the exact law; and alerts on them.

An alert calls a function where a logged number is beyond a bound, and never ends the run.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from sparsity.attention.largest_logit import COARSE, expected_largest
from sparsity.attention.measurement import row_laws
from sparsity.checks import (
    as_float64,
    check_choice,
    check_flag,
    check_instance,
    check_number,
    check_reals,
    check_several,
    check_text,
)
from sparsity.errors import InputError

# Of these the largest over rows, heads and layers is logged, as one logit is enough to overflow; of
# bad rows the number, and of all others the mean.
_BY_MAXIMUM = ("max_logit", "max_logit_exact")
_BAD = "bad_rows"
_LEAST_KEYS = {"gamma": 2, "gamma_ratio": 2}  # that a row must see to have a value; else 1
_ENDS = {"min": 0.0, "max": 1.0}  # of heads
_QUANTILES = {"q10": 0.1, "median": 0.5, "q90": 0.9}


def n_eff_exact(length: Any, gamma: Any) -> np.ndarray:
    """Return the mean n_eff of rows of n Gaussian logits of spread γ̂, by the exact law.

    Args:
        length: n, as `sparsity.stream` gives it.
        gamma: γ̂, broadcasts with `length`.

    Returns:
        float64, to a relative error of 2e-6; 1 for one key, NaN for none or for γ̂ beyond 200.
    """
    n = as_float64(length, "length", "give row lengths", texts=False)
    n = np.where((n >= 1) & (n <= 2**53), n, np.nan)  # beyond, float64 does not have all n
    return n * row_laws.exact_law(n, as_float64(gamma, "gamma", "give spreads", texts=False)) ** 2


def log(
    seen: Any, *, heads: bool = True, of: str | Sequence[str] | None = None, last: bool = False
) -> dict[str, float]:
    """Return what `monitor` saw as a flat dict of names and floats, for any logger that takes one.

    Names are "layer.head/statistic", "layer/statistic" over its heads and "all/statistic" over all.
    Values are means over batch and rows, but of max_logit the largest. Where there are length and
    gamma, `n_eff_exact` is what the exact law says of the same rows: far above n_eff where a few
    keys stand out, such as a sink. Where there is beta as well, `max_logit_exact` is the mean of
    the largest of so many Gaussian logits, of the n, β̂ and γ̂ of the rows of a head; of a layer,
    that of the head where it is largest. What has no value is left out: a step that was not looked
    at, and rows that see no key, such as those of padding. NaN or infinity in any other row is no
    gap: `bad_rows` is the number of such rows, and a mean over one of them is NaN. Which rows see
    a key is told by their length; without it, a row is left out where no head has a value.

    Args:
        seen: a dict of arrays [..., heads, rows] for each layer, in lists or dicts of any depth.
        heads: whether each head has names of its own. Without them every layer has the least and
            the largest value of its heads beside the mean, "layer/statistic_min" and "_max", and
            "all" has those, "_q10", "_median" and "_q90" of all heads.
        of: the statistics to name, such as "n_eff" and "n_eff_exact"; None for all.
        last: whether to take only the rows with a full context, those that see as many keys as any
            row of their layer.

    Raises:
        InputError: anything else, a statistic that is not there, or `last` without `length`.
    """
    heads, last = check_flag("heads", heads), check_flag("last", last)
    parts = dict(_walk_layers(seen, ""))
    known = list(dict.fromkeys(x for part in parts.values() for x in _statistics(part)))
    names = [of] if isinstance(of, str) else of
    names = check_several("of", known if of is None else names, "give names such as n_eff")
    wanted = {check_choice("of", name, known) for name in names}
    layers = {name: _by_head(name, part, wanted, last) for name, part in parts.items()}
    named: dict[str, float] = {}
    every: dict[str, list[tuple[np.ndarray, list[float]]]] = {}
    for name, values in layers.items():
        for statistic, x in values.items():
            by_head = {i: _summarised(statistic, row.compressed()) for i, row in enumerate(x)
                       if row.count()}  # fmt: skip
            if not by_head:
                continue
            every.setdefault(statistic, []).append((x.compressed(), [*by_head.values()]))
            if heads:
                named |= {f"{name}.head{i}/{statistic}": value for i, value in by_head.items()}
            named[f"{name}/{statistic}"] = _summarised(statistic, x.compressed())
            if not heads:
                named |= _spread(f"{name}/{statistic}", [*by_head.values()], _ENDS)
    for statistic, measured in every.items():
        rows, values = (list(part) for part in zip(*measured, strict=True))
        named[f"all/{statistic}"] = _summarised(statistic, np.concatenate(rows))
        if not heads:
            named |= _spread(f"all/{statistic}", [*itertools.chain(*values)], _ENDS | _QUANTILES)
    return named


def _spread(name: str, heads: list[float], quantiles: Mapping[str, float]) -> dict[str, float]:
    """Return quantiles of a statistic over heads; NaN where one of them is not finite."""
    with np.errstate(invalid="ignore"):
        return {f"{name}_{word}": float(np.quantile(heads, q)) for word, q in quantiles.items()}


def _statistics(values: Mapping[str, Any]) -> list[str]:
    """Return the names of what can be said of a layer: its statistics, and the laws of its rows."""
    names = [*map(str, values), _BAD]
    if {"length", "gamma"} <= set(names):
        names.append("n_eff_exact")
        names += ["max_logit_exact"] if "beta" in names else []
    return names


def _walk_layers(seen: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Iterate over dicts of arrays with their names: keys by dots; in lists layer0, layer1, …."""
    if isinstance(seen, Mapping) and seen:
        if not any(isinstance(x, Mapping | list | tuple) for x in seen.values()):
            yield name or "layer0", seen
            return
        parts = {str(key): x for key, x in seen.items()}
    elif isinstance(seen, Sequence) and not isinstance(seen, str):
        parts = {f"layer{i}": x for i, x in enumerate(seen)}
    else:
        fix = "give what monitor returned, in lists or dicts"
        raise InputError("seen", type(seen).__name__, fix)
    for key, part in parts.items():
        yield from _walk_layers(part, f"{name}.{key}" if name else key)


def _by_head(
    name: str, values: Mapping[str, Any], wanted: set[str], last: bool
) -> dict[str, np.ma.MaskedArray]:
    """Return arrays [heads, batch · rows] in float64 with the laws of their rows added.

    What has no value is masked: whole numbers below 0, as `monitor` marks steps that it did not
    look at, and rows that see too few keys.

    Args:
        name: of the layer.
        values: its statistics.
        wanted: the statistics to return, where they are there.
        last: whether to return only rows that see as many keys as any.
    """
    rows: dict[str, np.ndarray] = {}
    for statistic, x in values.items():
        x = np.asarray(check_reals(f"{name}/{statistic}", x))
        if x.ndim < 2 or not x.size or (x.dtype.kind not in "fiu" and str(x.dtype) != "bfloat16"):
            fix = "must be numbers [..., heads, rows]"
            raise InputError(f"{name}/{statistic}", f"array of {x.dtype}, shape {x.shape}", fix)
        wide = np.where(x < 0, np.nan, x) if x.dtype.kind in "iu" else x.astype(np.float64)
        rows[str(statistic)] = np.moveaxis(wide, -2, 0).reshape(x.shape[-2], -1)
    if len({x.shape for x in rows.values()}) > 1:
        raise InputError(name, [x.shape for x in rows.values()], "give statistics of one shape")
    length = rows.get("length")
    absent = {
        statistic: (np.isnan(x) | (x == -np.inf)).all(0) | np.zeros_like(x, bool)
        if length is None
        else ~(length >= _LEAST_KEYS.get(statistic, 1))
        for statistic, x in rows.items()
    }
    if last:
        if length is None:
            raise InputError("last", True, f"{name} has no length; let it be measured as well")
        full = length == np.nanmax(length, initial=0.0)
        absent = {statistic: x | ~full for statistic, x in absent.items()}
    bad = [~absent[statistic] & ~np.isfinite(x) for statistic, x in rows.items()]
    rows[_BAD], absent[_BAD] = np.any(bad, 0).astype(np.float64), np.all([*absent.values()], 0)
    # Laws that nobody asks for are not computed: that of the largest logit takes the longest.
    laws = wanted & set(_statistics(values))
    if "n_eff_exact" in laws:
        law = n_eff_exact(rows["length"], rows["gamma"])
        beyond = np.isnan(law) & np.isfinite(rows["gamma"])  # of the table, and no NaN of the row
        rows["n_eff_exact"], absent["n_eff_exact"] = law, absent["length"] | beyond
    if "max_logit_exact" in laws:
        absent["max_logit_exact"] = absent["length"].all(-1, keepdims=True)
        given = absent["length"], rows["length"], rows["gamma"], rows["beta"]
        rows["max_logit_exact"] = _expected_largest(*given)
    return {x: np.ma.array(rows[x], mask=absent[x]) for x in rows if x in wanted}


def _expected_largest(
    absent: np.ndarray, n: np.ndarray, gamma: np.ndarray, beta: np.ndarray
) -> np.ndarray:
    """Return E max of all logits of the rows of each head, [heads, 1], by the law of each row."""
    gamma = np.where(n == 1, 0.0, gamma)  # a single logit has no spread: γ̂ is NaN there
    expected = np.full((len(n), 1), np.nan)
    for head, seen in enumerate(~absent):
        one, spread, mean = (x[head, seen] for x in (n, gamma, beta))
        if seen.any() and np.all(np.isfinite(spread) & np.isfinite(mean)):
            expected[head] = expected_largest(one, spread, mean, COARSE)[0]
    return expected


def _summarised(statistic: str, x: np.ndarray) -> float:
    """Return the number, the largest or the mean of a statistic of some rows."""
    if statistic == _BAD:
        return float(x.sum())
    with np.errstate(invalid="ignore"):  # of ∞ − ∞
        return float(x.max() if statistic in _BY_MAXIMUM else x.mean())


class Crossing(NamedTuple):
    """A number beyond its bound.

    Args:
        name: as it was logged, such as "layer3.head2/n_eff": of which layer, head and statistic.
        value: the number.
        bound: what it crossed.
        side: "below" or "above"; "beyond" of NaN, which is within no bound.
        step: as it was given to `alert`; None if it was not.
    """

    name: str
    value: float
    bound: float
    side: str
    step: float | None = None

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
    """Find the logged numbers beyond a bound, NaN among them, and call a function for each.

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
    check_instance("numbers", numbers, Mapping, "give what log returned")
    check_text("names", names, 'give a pattern of names, such as "*/n_eff"')
    if below is None and above is None:
        raise InputError("below and above", None, "give at least one of them")
    low, high = (
        None if bound is None else check_number(name, bound, "give a number")
        for name, bound in (("below", below), ("above", above))
    )
    if not (call is None or callable(call)):
        raise InputError("call", call, "give a function of a Crossing")
    chosen = {name: value for name, value in numbers.items() if fnmatchcase(name, names)}
    if numbers and not chosen:
        first = next(iter(numbers))
        warnings.warn(f"alert: no name is like {names!r}; one is {first!r}", stacklevel=2)
    crossings = []
    for name, value in chosen.items():
        given = as_float64(value, name, "give a number", texts=False)
        if given.ndim:
            raise InputError(name, f"array of shape {given.shape}", "give a number")
        value = float(given)
        if value != value:
            bound = low if high is None else high
            crossings.append(Crossing(name, value, bound, "beyond", step))  # pyright: ignore
        if low is not None and value < low:
            crossings.append(Crossing(name, value, low, "below", step))
        if high is not None and value > high:
            crossings.append(Crossing(name, value, high, "above", step))
    failure = None
    for crossing in crossings:
        if call is None:
            break
        try:
            call(crossing)
        except Exception as error:  # noqa: BLE001  a run must not end by what watches it
            failure = failure or f"{type(error).__name__}: {error}"
    if failure:
        who = getattr(call, "__qualname__", type(call).__name__)  # no address: it may change
        warnings.warn(f"alert: {who} failed: {failure}; the run goes on", stacklevel=2)
    return crossings
