"""The laws of scores beyond the Gaussian: each a short record, and the explicit tuple of all."""

from __future__ import annotations

from typing import Any

from sparsity import arguments, reading
from sparsity.errors import InputError
from sparsity.rows.score_laws.laws import Empirical, Mixture, Scores, StudentT, Uniform, load

__all__ = ["ALL", "Empirical", "Mixture", "Scores", "StudentT", "Uniform", "load", "parse"]

ALL: tuple[type[Any], ...] = (Uniform, StudentT, Mixture, Empirical)

_FILES = (".npy", ".txt", ".csv")
_TYPED = "uniform, t:DEGREES, mixture:SHARE,MEAN,DEVIATION;…, or a file that ends in " + ", ".join(
    _FILES
)


def known(text: str) -> bool:
    """Return whether a text writes a law of scores."""
    return text.partition(":")[0].strip() in {each.name for each in ALL} or text.endswith(_FILES)


def parse(text: str) -> Scores:
    """Return the law of scores that a text writes.

    Args:
        text: "uniform", "t:5", "mixture:0.9,0,1;0.1,3,0.5", or the path of a sample of scores.

    Raises:
        InputError: an unknown name, numbers that the law does not take, or a bad file.
    """
    arguments.text("scores", text, f"give {_TYPED}")
    if text.endswith(_FILES):
        return load(text)
    name, _, rest = text.partition(":")
    groups = [_numbers(part, text) for part in rest.split(";") if part.strip()]
    try:
        if name.strip() == Uniform.name and not groups:
            return Uniform()
        if name.strip() == StudentT.name and len(groups) == 1 and len(groups[0]) == 1:
            return StudentT(groups[0][0])
        if name.strip() == Mixture.name and groups:
            return Mixture(tuple(groups))  # type: ignore[arg-type]
    except InputError as error:
        raise InputError("scores", text, f"{error.argument}: {error.fix}") from None
    raise InputError("scores", text, f"give {_TYPED}")


def _numbers(part: str, text: str) -> tuple[float, ...]:
    try:
        fix = f"give {_TYPED}"
        return tuple(reading.parse_number(item, "scores", fix) for item in part.split(","))
    except InputError as error:
        raise InputError("scores", text, error.fix) from None


def __dir__() -> list[str]:
    return sorted(__all__)
