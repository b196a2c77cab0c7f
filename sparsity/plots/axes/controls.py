"""The panel's parameters: their range, their slider stops and their place on an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from sparsity import rounding
from sparsity.kernels.parameters import ALL, OF_MAPS, Parameter
from sparsity.output import length_label, power_of_ten, powers_of_two
from sparsity.rows import steps as row_steps

POINTS = 400  # of a curve
_STEPS = 240  # of a slider
_LONGEST = 64  # characters of a number field: what is longer is cut before it is read


class Scale(NamedTuple):
    """A coordinate in which a parameter is spread evenly: from value to coordinate, and back.

    The panel knows it by its name (`valueAt` in panel/front/hover.js).
    """

    to: Callable[[np.ndarray], np.ndarray]
    back: Callable[[np.ndarray], np.ndarray]
    name: str


# A decay of 0.9, 0.99 or 0.999 remembers 10, 100 or 1000 tokens: what counts is 1 − λ, by decades.
def _nines(x: np.ndarray) -> np.ndarray:
    return -np.log10(np.maximum(1 - x, 1e-300))


LINEAR = Scale(lambda x: x, lambda t: t, "linear")
LOG = Scale(np.log10, lambda t: 10.0**t, "log")
NINES = Scale(_nines, lambda t: 1 - 10.0**-t, "nines")  # 0.9, 0.99, 0.999 … evenly


@dataclass(frozen=True)
class Control:
    """One parameter as a slider, a number field and an axis.

    Args:
        parameter: its name, meaning and domain.
        word: what it is called beside the slider, before its symbol; may be empty.
        symbol: as in the names of curves.
        low: left end of the slider and of the axis.
        high: right end.
        start: value after a reset.
        scale: what is even along the slider.
        ticks: values named on the axis.
    """

    parameter: Parameter
    word: str
    symbol: str
    low: float
    high: float
    start: float
    scale: Scale
    ticks: tuple[float, ...]

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def label(self) -> str:
        return f"{self.word} {self.symbol}".strip()

    def check(self, given: object) -> float:
        """Return one number inside the domain, from text or a number.

        Raises:
            InputError: anything else.
        """
        if isinstance(given, str):
            given = given.strip().replace("−", "-")[:_LONGEST]
        return float(self.parameter.one(given))

    def ends(self, value: float) -> tuple[float, float]:
        """Return the ends of slider and axis, moved by whole decades to include `value`."""
        # Whole decades, so that the axis does not move with every digit that is typed.
        low, high = self.low, self.high
        if self.scale is LOG:
            if value < low:
                low = 10.0 ** math.floor(math.log10(value))
            if value > high:
                high = 10.0 ** math.ceil(math.log10(value))
        elif self.scale is LINEAR:
            while value < low:
                low *= 10
            while value > high:
                high *= 10
        return low, high

    def spread(self, value: float, count: int) -> np.ndarray:
        """Return `count` values spread evenly from end to end; fewer where they must be whole."""
        low, high = self.scale.to(np.array(self.ends(value)))
        x = self.scale.back(np.linspace(low, high, count))
        x[[0, -1]] = self.ends(value)  # to the last bit
        if not self.parameter.integer:
            return x
        whole = np.unique(np.round(x))
        if self.parameter.name == "dim":  # rotary positions pair the entries of a head
            whole = whole[(whole < 8) | (whole % 2 == 0)]
        return whole

    def stops(self, value: float) -> list[float]:
        """Return the values that the slider takes, ascending, with few digits."""
        x = self.spread(value, _STEPS + 1)
        # Rounded for people; decays by the digits that 1 − λ has, or 0.999 and 1 would be one stop.
        if self.scale is NINES:
            short = {round(v, 2 + int(_nines(np.array(v)))) for v in x.tolist()} | {1.0}
        else:
            few = rounding.column(x, None if self.scale is LINEAR else 0.0, digits=3)
            short = set(np.where(np.abs(x) < 1e3, few, x).tolist())
        return sorted(short)

    def place(self, x: np.ndarray, value: float) -> np.ndarray:
        """Return where values lie along the axis, 0 at its left end and 1 at its right."""
        low, high = self.scale.to(np.array(self.ends(value)))
        return np.clip((self.scale.to(np.asarray(x, dtype=np.float64)) - low) / (high - low), 0, 1)

    def marks(self, value: float) -> list[tuple[float, str]]:
        """Return the ticks as (place, label)."""
        low, high = self.ends(value)
        # The ticks of the record are chosen by hand for its own ends; moved ends have even ones, at
        # most about seven.
        ticks = list(self.ticks)
        if (low, high) != (self.low, self.high):
            if self.name == "length":
                ticks = powers_of_two(low, high)
            elif self.scale is LOG:
                decades = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
                ticks = [10.0**k for k in decades][:: max(1, len(decades) // 7)]
            else:
                ticks = np.linspace(low, high, 5).tolist()
        places = self.place(np.array(ticks), value)
        word = length_label if self.name == "length" else _short
        return [(float(p), word(t)) for p, t in zip(places, ticks, strict=True)]


def _short(value: float) -> str:
    """Return a tick's label, with a true minus and powers of ten from a million on."""
    if value >= 1e4 and math.log10(value).is_integer():
        return power_of_ten(int(math.log10(value)))
    return f"{value:.6g}".replace("-", "−")


_OF_STEPS = {
    "slope": "ALiBi slope per token",
    "window": "tokens in sight",
    "score": "score of the needle",
    "logit": "score of the sink",
    "scale": "scale s of s·ln n",
    "offset": "bias per ln n",
}
_PARAMETERS = {parameter.name: parameter for parameter in (*ALL, *OF_MAPS)} | {
    name: Parameter(name, meaning, "", np.isfinite, integer=name == "window")
    for name, meaning in _OF_STEPS.items()
}


def _control(name: str, within: tuple[float, float] | None, *shown: Any) -> Control:
    """Return the control of a parameter as far as the panel goes; None is its own domain."""
    parameter = _PARAMETERS[name]
    if within is not None:
        low, high = within
        ends = f"from {low:g} to {high:g}".replace("e+0", "e").replace("e-0", "e-")
        parameter = replace(parameter, domain=ends, admits=lambda x: (x >= low) & (x <= high))
    return Control(parameter, *shown)


_WIDE, _SIZES, _SIGNED = (1e-6, 1e6), (1, 1e6), (-1e3, 1e3)  # of scales, whole numbers, scores
_DECADES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
_SPREADS, _SMALL_SPREADS = (0.1, 0.3, 1, 3, 10), (0.01, 0.03, 0.1, 0.3)
_LENGTHS = (2, 16, 256, 4096, 65536)
_DECAYS = (0.5, 0.9, 0.99, 0.999, 0.9999)

_COMMON: tuple[Control, ...] = (
    _control("beta", (-1e6, 1e6), "bias", "β", -6.0, 6.0, -1.0, LINEAR, (-6, -4, -2, 0, 2, 4, 6)),
    _control("gamma", _WIDE, "spread", "γ", 0.05, 20, 1.0, LOG, _SPREADS),
    # One token is no row to focus in.
    _control("length", (2, 1e12), "length", "n", 2, 1e6, 1024, LOG, _LENGTHS),
    _control("decay", None, "decay", "λ", 0.1, 0.99999, 0.99, NINES, _DECAYS),
    _control("ratio", _WIDE, "ratio", "σ̃/μ̃", 0.01, 100, 1.0, LOG, (0.01, 0.1, 1, 10, 100)),
    _control("dim", _SIZES, "dimension", "d", 1, 1e4, 64, LOG, (1, 10, 100, 1000, 1e4)),
    _control("slope", (1e-6, 1e3), "", "slope", 1e-4, 1, 0.02, LOG, (1e-4, 1e-3, 0.01, 0.1, 1)),
    _control("window", (1, 1e12), "window", "w", 1, 1e5, 64, LOG, _DECADES[:-1]),
    _control("score", _SIGNED, "needle", "m", -5.0, 20.0, 4.0, LINEAR, (-5, 0, 5, 10, 15, 20)),
    _control("logit", _SIGNED, "sink", "b", -5.0, 20.0, 4.0, LINEAR, (-5, 0, 5, 10, 15, 20)),
    _control("scale", (1e-3, 1e3), "scale", "s", 0.03, 3, 0.43, LOG, (0.03, 0.1, 0.3, 1, 3)),
    _control("offset", _SIGNED, "bias", "b/ln n", -2.0, 2.0, -1.0, LINEAR, (-2, -1, 0, 1, 2)),
    _control("gamma2", _WIDE, "spread", "γ₂", 0.05, 20, 1.0, LOG, _SPREADS),
    _control("rho", None, "correlation", "ρ", -1.0, 1.0, 0.0, LINEAR, (-1, -0.5, 0, 0.5, 1)),
    _control("mix", (0, 1e3), "", "mix λ", 0.0, 1.0, 0.8, LINEAR, (0, 0.2, 0.4, 0.6, 0.8, 1)),
    _control("gate", _SIGNED, "", "gate b", -4.0, 8.0, 3.0, LINEAR, (-4, -2, 0, 2, 4, 6, 8)),
    _control("gate_spread", (0, 1e3), "", "gate c", 0.0, 3.0, 1.0, LINEAR, (0, 1, 2, 3)),
    _control("sigma", (1e-6, 0.707), "key spread", "σ", 0.01, 0.7, 0.125, LOG, _SMALL_SPREADS),
    _control("features", _SIZES, "features", "m", 1, 1e4, 64, LOG, (1, 10, 100, 1000, 1e4)),
    _control("within", None, "correlation", "c", 0.0, 1.0, 0.3, LINEAR, (0, 0.25, 0.5, 0.75, 1)),
)

# The control of the first field of a step, where it is one of these: the same slider moves the
# slope of ALiBi and of whatever has a slope. Every other step has a control of its own.
_BY_STEP = {
    "decay": "decay",
    "alibi": "slope",
    "window": "window",
    "scalable-softmax": "scale",
    "length-bias": "offset",
    "sink": "logit",
    "sink-logit": "logit",
    "needle": "score",
    "needle-above": "score",
    "qk-norm": "dim",
}


def around(step: type[Any]) -> Control:
    """Return a control for the first field of a step, around its example.

    Of a step that is not known here nothing but the example tells what numbers are usual: two
    decades on either side of a positive one, ten times its size about 0 for any other.
    """
    name, at = fields(step)[0].name, step.example[0]
    whole = isinstance(at, int)
    key, text = f"{step.name}-{name}", f"{name} of {step.name}"
    parameter = Parameter(key, text, "as the step takes it", np.isfinite, None, whole)
    if at > 0:
        low, high = at / 100, at * 100
        low = max(1.0, round(low)) if whole else low
        return Control(parameter, "", name, low, high, at, LOG, (low, at, high))
    reach = 10 * max(1.0, abs(at))
    return Control(parameter, "", name, -reach, reach, at, LINEAR, (-reach, at, reach))


def control_of_step(step: type[Any]) -> Control:
    """Return the control of the first field of a step."""
    name = _BY_STEP.get(step.name)
    return around(step) if name is None else next(c for c in _COMMON if c.name == name)


def controls_of(steps: tuple[type[Any], ...]) -> dict[str, Control]:
    """Return every control by name, given the steps that there are: those of parameters first."""
    of_steps = map(control_of_step, row_steps.typed(steps).values())
    return {control.name: control for control in (*_COMMON, *of_steps)}


CONTROLS = controls_of(row_steps.ALL)
