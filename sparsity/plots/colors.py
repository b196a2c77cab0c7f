"""Colours that can be read on the user's own ground, white or dark, and told from each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import to_hex, to_rgb, to_rgba

from sparsity import plotting
from sparsity.plotting import LOOKS, Look

# Contrast of WCAG 2: its least for text, and that of the palest of the figures' colours on white.
TEXT, LINE = 4.5, 2.7
# After the first seven, those of the figures and the same lighter, each one is, of those with
# contrast 3 on white (or black) and without glare (chroma below 70), the farthest in CIELAB from
# all before it, also for who sees no green: at least 18 and 11 apart on white, 13 and 12 on black.
CURVES = (
    *(look.color for look in plotting.LOOKS),
    *("#770011", "#003399", "#888844", "#6688ff", "#443366", "#005533", "#884400", "#225555"),
    *("#aa3399", "#885544", "#dd7777", "#dd7744", "#aa88bb", "#662288", "#885566", "#0055aa"),
    "#117722",
)
CURVES_ON_DARK = (
    *("#4db3ff", "#ff8a4c", "#2fc79e", "#e29ac4", "#f0b429", "#56b4e9", "#e6e6e6", "#446600"),
    *("#3355bb", "#aa1177", "#cceeaa", "#995555", "#bb9966", "#446699", "#ffee77", "#33eeff"),
    *("#997700", "#0099aa", "#1188ee", "#9966cc", "#bb4444", "#99dd77", "#ff9999", "#778888"),
)


def luminance(color: Any) -> float:
    """Return the relative luminance of a colour, 0 for black and 1 for white."""
    c = np.array(to_rgb(color))
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def contrast(one: Any, other: Any) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def is_dark(ground: Any) -> bool:
    """Tell whether white is easier to read on a ground than black."""
    return contrast("white", ground) > contrast("black", ground)


def mix(color: Any, other: Any, share: float) -> str:
    """Return a colour with a share of another one."""
    pairs = zip(to_rgb(color), to_rgb(other), strict=True)
    red, green, blue = (float((1 - share) * a + share * b) for a, b in pairs)
    return to_hex((red, green, blue))


def readable(color: Any, ground: Any, least: float = TEXT) -> str:
    """Return a colour, mixed with black or white no more than its contrast on a ground needs."""
    end = "white" if is_dark(ground) else "black"
    mixed = (mix(color, end, share) for share in np.linspace(0, 1, 51))
    return next((shade for shade in mixed if contrast(shade, ground) >= least), end)


def curve_color(number: int, ground: Any) -> str:
    """Return the colour of a curve."""
    colors = CURVES_ON_DARK if is_dark(ground) else CURVES
    return readable(colors[number % len(colors)], ground, LINE)


class Palette(NamedTuple):
    """The colours of a chart on its ground.

    Args:
        paper: behind the axes.
        ground: inside the axes.
    """

    paper: str
    ground: str

    @classmethod
    def of(cls, paper: Any, ground: Any) -> Palette:
        """Return the palette of face colours, where what is transparent is taken for white."""
        whole = [(0, 0, 0, 0) if color is None else to_rgba(color) for color in (paper, ground)]
        under = mix("white", whole[0][:3], whole[0][3])
        return cls(under, mix(under, whole[1][:3], whole[1][3]))

    @property
    def ink(self) -> str:
        """Text."""
        return readable(plotting.INK, self.paper, 14.0)

    @property
    def soft(self) -> str:
        """Text and lines that are less than the rest, on the paper or on the ground."""
        return readable(readable(plotting.GREY, self.paper), self.ground)

    @property
    def grid(self) -> str:
        """Lines behind the curves."""
        return plotting.PALE if self.ground == "#ffffff" else mix(self.ground, self.ink, 0.2)

    @property
    def shade(self) -> str:
        """What no row can have."""
        return plotting.SHADE if self.ground == "#ffffff" else mix(self.ground, self.ink, 0.12)

    @property
    def style(self) -> dict[Any, Any]:
        """The house style in these colours."""
        if (self.paper, self.ground) == ("#ffffff", "#ffffff"):
            return plotting.STYLE
        text = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
        rules = ("axes.edgecolor", "xtick.color", "ytick.color")
        colors = dict.fromkeys(text, self.ink) | dict.fromkeys(rules, self.soft)
        return plotting.STYLE | colors | {"savefig.facecolor": "auto"}


def look_of(i: int, palette: Palette) -> Look:
    """Return the look of the i-th curve, which is solid: dashes are limits."""
    color = curve_color(i, palette.ground)
    return Look(color, "-", LOOKS[i % len(LOOKS)].marker, palette.ground)
