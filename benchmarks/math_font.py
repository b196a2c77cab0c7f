"""Make the report's font of mathematics: the part of STIX Two Math that its formulas use.

The font is in the wheel of ziamath; WOFF2 needs brotli. Neither is needed to use the package:

    pip install ziamath==0.13 fonttools==4.68.0 brotli==1.2.1
    python -m benchmarks.math_font

The same versions give the same bytes. The licence (SIL OFL 1.1) stands beside the font.
"""

from __future__ import annotations

import io
from importlib import resources
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

HOME = Path(__file__).resolve().parents[1] / "sparsity" / "report" / "fonts"
SOURCE = ("ziamath", "fonts/STIXTwoMath-Regular.ttf")  # package, file
FAMILY = "Report Math"  # a modified version has a name of its own
LIMIT = 60 * 1024

GREEK = "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθικλμνξπρσςτυφχψωϕϵϑ"
OPERATORS = (
    "−±×÷·∘/=≠<>≤≥≪≫≈∼∝∞∂∇∈∑∏∫√→←↔↦|‖‘’′″…()[]{}⟨⟩⌊⌋⌈⌉,;:.!½¼¾°†"
    "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿ₀₁₂₃₄₅₆₇₈₉₊₋\u0302\u0303\u0304\u00a0\u2009\u202f\u2061\u2062"
)


def italic(letter: str) -> str:
    """The mathematical italic of a letter, which a browser sets for a one-letter name."""
    if letter == "h":
        return "ℎ"
    for first, start, count in (("A", 0x1D434, 26), ("a", 0x1D44E, 26), ("Α", 0x1D6E2, 25),
                                ("α", 0x1D6FC, 25)):  # fmt: skip
        at = ord(letter) - ord(first)
        if 0 <= at < count:
            return chr(start + at)
    return {"ϵ": "𝜖", "ϑ": "𝜗", "ϕ": "𝜙"}.get(letter, letter)


def characters() -> set[str]:
    """Every character that formulas may use."""
    latin = {chr(code) for code in range(0x21, 0x7F)}
    letters = {x for x in latin | set(GREEK) if x.isalpha()}
    return latin | set(GREEK) | set(OPERATORS) | {italic(x) for x in letters} | {" "}


def make() -> bytes:
    """The subset as WOFF2."""
    options = subset.Options(
        layout_features=[],
        drop_tables=["DSIG", "GDEF", "GPOS", "GSUB"],
        hinting=False,
        name_IDs=[0, 1, 2, 3, 4, 5, 6, 13, 14],
        notdef_outline=True,
        recalc_timestamp=False,
    )
    package, name = SOURCE
    font = TTFont(io.BytesIO((resources.files(package) / name).read_bytes()), recalcTimestamp=False)
    tool = subset.Subsetter(options)
    tool.populate(unicodes=[ord(x) for x in characters()])
    tool.subset(font)
    for record in font["name"].names:
        if record.nameID in (1, 3, 4, 6):
            family = FAMILY.replace(" ", "") if record.nameID == 6 else FAMILY
            record.string = family.encode(record.getEncoding())
    font.flavor = "woff2"
    out = io.BytesIO()
    font.save(out)
    return out.getvalue()


if __name__ == "__main__":
    content = make()
    if len(content) > LIMIT:
        raise SystemExit(f"{len(content)} bytes; at most {LIMIT}")
    (HOME / "math.woff2").write_bytes(content)
    print(f"{HOME / 'math.woff2'}: {len(content)} bytes")
