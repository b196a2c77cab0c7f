"""The reference of a question: which computation without the library answers it."""

from __future__ import annotations

from typing import Any

from benchmarks.campaign.limits import NoReference
from benchmarks.recorded import few_tokens, row_laws, score_laws
from benchmarks.recorded.cells import Cell
from benchmarks.recorded.row_laws import digits
from benchmarks.recorded.score_laws import shown

_LIMITS_OF_MAPS = {
    "differential": score_laws.differential,
    "forgetting": score_laws.forgetting,
    "performer": score_laws.performer,
}


def reference(cell: Cell) -> str:
    """Return the decimal of a question, to 30 digits or more; "" where there is none.

    Raises:
        What the campaign's reference raises of integrals that are infinite.
    """
    asked = dict(cell.asked)
    call, kernel = asked.pop("call"), asked.pop("kernel")
    if call == "laplace":
        try:
            return score_laws.transform(kernel, **asked)
        except NoReference:  # of a kernel beyond any number far out
            return row_laws.transform(kernel, **asked)
    return _limit(kernel, asked) if call == "evaluate" else _row(kernel, asked)


def _limit(kernel: str, asked: dict[str, Any]) -> str:
    asked.pop("method", None)
    steps = asked.pop("steps", [])
    if kernel in _LIMITS_OF_MAPS:
        return shown(_LIMITS_OF_MAPS[kernel](**asked))
    if "of" in asked:
        asked.pop("beta", None)
        if steps:
            return shown(score_laws.of_one_fixed(**asked, place=steps[0][1][0]))
        return shown(score_laws.of_softmax(**asked))
    if steps:
        return shown(score_laws.alibi(**asked, slope=steps[0][1][0]))
    if kernel == "decayed":
        return shown(score_laws.decayed(**asked))
    if kernel == "nonnegative":
        return shown(score_laws.nonnegative(**asked))
    return score_laws.log_sparsity(kernel, **asked)


def _row(kernel: str, asked: dict[str, Any]) -> str:
    of, n = asked.pop("of"), asked.pop("length")
    beta, gamma = asked.pop("beta", 0.0), asked.pop("gamma", 1.0)
    steps = dict(asked.pop("steps", []))
    name, _, number = of.partition(":")
    if kernel not in score_laws.WEIGHTS:
        return shown(_map(kernel, of, n, gamma, asked))
    if "coca" in steps:
        return shown(few_tokens.of_two_collinear(*steps["coca"]))
    place: Any = next(iter(steps.values()))[0] if steps else None
    if "alibi" in steps:
        return shown(few_tokens.of_two_apart(place, gamma, of))
    if name in ("needle_odds_above", "needle_snr_above", "sink_mass_above"):
        x = float(number)
        ratio = x / (1 - x) if name == "sink_mass_above" else x
        if name == "needle_snr_above":
            return shown(few_tokens.outweighed(place, gamma, ratio**2, 2, n))
        return shown(few_tokens.outweighed(place, gamma, ratio, 1, n))
    if name == "needle_largest":
        return shown(few_tokens.needle_largest(place, gamma, n))
    if name == "needle_recall":
        return shown(few_tokens.recall_of_two_values(place, gamma))
    if name in ("overlap", "top_k_overlap"):
        *keys, rho = (float(x) for x in number.split(","))
        return shown(few_tokens.overlap_of_two(gamma, rho, len(keys)))
    if "below" in name:
        return shown(few_tokens.below_of_two(gamma, of))
    if name == "keys_for_mass":
        return shown(few_tokens.fewest_of_two(gamma, float(number)))
    if name in ("abs_sum", "square_sum"):
        return shown(score_laws.of_sums(of, beta, gamma, n))
    if name in ("max_weight", "gini", "top_k_mass", "varentropy"):
        if kernel == "exp":
            found = (
                few_tokens.of_two("exp", gamma, of) if n == 2 else few_tokens.of_three(gamma, of)
            )
            return shown(found)
        degree, sides = row_laws.POWERS[kernel]
        return shown(few_tokens.of_half_lines(degree, len(sides) == 2, of))
    unit = place if "sink-logit" in steps else None
    fixed = place if unit is None else None
    return digits(row_laws.mean(of, kernel, beta, gamma, n, unit, fixed))


def _map(kernel: str, of: str, n: int, gamma: float, own: dict[str, Any]) -> Any:
    family, _, number = kernel.partition(":")
    if family == "decayed":
        return score_laws.of_decayed(own["decay"], n, of)
    if family == "tile-softmax":
        return few_tokens.below_of_two(gamma, of, own["within"])
    if family == "topk":
        return few_tokens.of_top_two(gamma, n, of)
    if family == "router" and number == "2":
        return few_tokens.routed_pairs(gamma, own["rho"], n, of)
    if family == "router":
        return few_tokens.router_of_two(gamma, own["rho"], of)
    return few_tokens.of_two(kernel, gamma, of)
