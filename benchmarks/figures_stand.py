"""Do the figures' numbers stand? Compares the CSV files of two folders of figures.

    python -m benchmarks.figures_stand OLD NEW [--tolerance 1e-12] [--z 5]

Theory is compared by relative difference, its logarithm by absolute difference. The files print 12
digits, so numbers that differ by rounding alone may be a unit of the last digit apart: the columns
show the largest difference as printed, and what of it is more than that unit, which is judged.
Estimates are compared against both standard errors. Exit 1 if a file is missing, rows do not match,
or a difference is over its limit.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from pathlib import Path
from typing import NamedTuple

THEORY = {"x": False, "theory": False, "log": True}  # column -> is a logarithm


DIGITS = 12  # that the files print


class Worst(NamedTuple):
    """The worst differences of one file.

    theory: relative, as printed.
    beyond: of it, what is more than a unit of the last digit.
    z: of estimates.
    rows: compared.
    fault: why the files cannot be compared.
    """

    theory: float = 0.0
    beyond: float = 0.0
    z: float = 0.0
    rows: int = 0
    fault: str = ""


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def apart(old: str, new: str, is_log: bool) -> tuple[float, float]:
    """Relative difference, and what is more than a unit of the last digit of it."""
    a, b = float(old), float(new)
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0, 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf, math.inf
    size = max(abs(a), abs(b))
    unit = 10.0 ** (math.floor(math.log10(size)) + 1 - DIGITS) * (1 + 1e-3)
    scale = 1.0 if is_log else size
    return abs(a - b) / scale, max(abs(a - b) - unit, 0.0) / scale


def compare(old: Path, new: Path) -> Worst:
    a, b = read(old), read(new)
    if len(a) != len(b):
        return Worst(fault=f"{len(a)} rows before, {len(b)} now")
    theory = beyond = z = 0.0
    for i, (one, two) in enumerate(zip(a, b, strict=True), 2):
        if one.keys() != two.keys() or one["series"] != two["series"]:
            return Worst(fault=f"line {i}: other columns or another series")
        for column, is_log in THEORY.items():
            found = apart(one[column], two[column], is_log)
            theory, beyond = max(theory, found[0]), max(beyond, found[1])
        if bool(one["estimate"]) != bool(two["estimate"]):
            return Worst(fault=f"line {i}: an estimate in one of them only")
        if one["estimate"]:
            error = math.hypot(float(one["stderr"]), float(two["stderr"]))
            gap = abs(float(one["estimate"]) - float(two["estimate"]))
            z = max(z, (gap / error if error else math.inf) if gap else 0.0)
    return Worst(theory, beyond, z, len(a))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-12, help="of the theory, relative")
    parser.add_argument("--z", type=float, default=5.0, help="of the estimates")
    given = parser.parse_args()
    names = sorted({path.name for path in (*given.old.glob("*.csv"), *given.new.glob("*.csv"))})
    failed = not names
    print(f"{'file':<18} {'rows':>5} {'theory':>9} {'beyond':>9} {'worst z':>8}")
    for name in names:
        missing = [str(at) for at in (given.old, given.new) if not (at / name).exists()]
        found = Worst(fault=f"missing in {missing[0]}") if missing else None
        found = found or compare(given.old / name, given.new / name)
        bad = bool(found.fault) or found.beyond > given.tolerance or found.z > given.z
        verdict = found.fault or ("differs" if bad else "stands")
        numbers = f"{found.theory:>9.1e} {found.beyond:>9.1e} {found.z:>8.2f}"
        print(f"{name:<18} {found.rows:>5} {numbers}  {verdict}")
        failed |= bad
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
