"""CoCA, trained at 64 bytes and read to 4096: whether it reads further than RoPE, and with NTK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparsity.claims_ledger.findings import (
    TRAINED,
    Judged,
    Outcome,
    Recorded,
    core,
    instead,
    letter,
    listed,
    nothing_computed,
    read_numbers,
)
from sparsity.claims_ledger.judging import Claim

COCA = Recorded(
    name="coca",
    basis=TRAINED,
    settings="Two layers of width 64 learn bytes of Python sources in windows of 64, with RoPE, "
    "CoCA, its slack form, ALiBi or no positions, and read the same bytes with up to 4096 before "
    "them",
    runs=3,
    predictions=18,
    failed=(
        "and those with positions 0.05 below their loss with 8 bytes",
        "the first layer is within 1.5 of the law in the median, at every length",
        "the others are within 2.5",
        "the slack form loses more than exact CoCA at every multiple, in the mean",
        "and is the worst of the five at the longest",
        "dynamic NTK helps RoPE and CoCA from 4 times the length on, in the mean",
        "CoCA with it has the smallest ratio of the rotary readings at the longest",
        "n_eff grows by less than 1.5 with ALiBi",
        "the law without n is off by more than 4 with RoPE, CoCA and no positions",
    ),
    numbers=read_numbers("coca"),
)
_ROPE, _COCA, _SLACK, _ALIBI, _NONE = "RoPE", "CoCA", "CoCA slack", "ALiBi", "no positions"
_PLAIN, _NTK = "as trained", "dynamic NTK"
_BOTH = ((_COCA, _PLAIN), (_COCA, _NTK), (_ROPE, _PLAIN), (_ROPE, _NTK))


def _by_reading(found: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(row["rule"], row["reading"]): row for row in found["read"]}


def _last(row: Mapping[str, Any]) -> str:
    """Write the ratio at the longest context with its spread."""
    return f"{row['ratio'][-1]:.2f} ± {row['spread'][-1]:.2f}"


def _apart(found: Mapping[str, Any], less: Any, more: Any) -> list[int]:
    """Return the multiples at which one ratio is below another by more than both spreads."""
    columns = (less["ratio"], less["spread"], more["ratio"], more["spread"])
    pairs = zip(found["multiples"], *columns, strict=True)
    return [times for times, a, of_a, b, of_b in pairs if a + of_a < b - of_b]


def _all_below(less: Sequence[float], more: Sequence[float]) -> bool:
    return all(a < b for a, b in zip(less, more, strict=True))


def reads_further(found: Mapping[str, Any]) -> Judged:
    """Find what CoCA and RoPE lose in contexts longer than the trained one."""
    of, times, trained = _by_reading(found), found["multiples"], found["trained"]
    rope, coca, slack, alibi = (of[rule, _PLAIN] for rule in (_ROPE, _COCA, _SLACK, _ALIBI))
    near = 3  # multiples that are read before RoPE has broken down
    apart, published = _apart(found, coca, rope), found["published_at_twice"]
    findings = [
        core(
            f"in contexts of {listed(times[:near])} times the trained {trained} bytes CoCA "
            f"multiplies the perplexity by {listed(coca['ratio'][:near], '.2f')}, RoPE by "
            f"{listed(rope['ratio'][:near], '.2f')}: by less, in the mean of seeds",
            _all_below(coca["ratio"][:near], rope["ratio"][:near]),
        ),
        letter(
            "by less than RoPE at every length, beyond both standard deviations of seeds: so it is "
            f"at {listed(apart) or 'none'} times, and at {times[-1]} times {_last(coca)} and "
            f"{_last(rope)} are not told apart",
            apart == times,
        ),
        letter(
            f"at {times[-1]} times the length it loses nothing: the perplexity is within a tenth "
            "of that at the trained length",
            coca["ratio"][-1] <= 1.1,
        ),
        instead(
            f"ALiBi reads {times[-1]} times the length: its perplexity is multiplied by "
            f"{alibi['ratio'][-1]:.3f}",
            max(alibi["ratio"]) < 1.02,
        ),
        instead(
            "both break down: a byte costs "
            f"{rope['loss'][near]:.2f} nats with RoPE at {times[near - 1]} times the length, and "
            f"at {times[-1]} times {rope['loss'][-1]:.2f}, with CoCA {coca['loss'][-1]:.2f}, where "
            f"the frequency of bytes alone costs {found['unigram']:.2f}; CoCA's loss is the "
            f"smaller one in {found['seeds_ahead'][-1][1]} of {COCA.runs} seeds there",
            min(rope["loss"][near], rope["loss"][-1], coca["loss"][-1]) > found["unigram"] - 0.05,
        ),
        instead(
            f"at twice the length {rope['ratio'][0]:.2f} with RoPE and {coca['ratio'][0]:.2f} with "
            f"CoCA, where {published[_ROPE]:g} and {published[_COCA]:g} are published for 512 "
            "tokens: in the same order, and far less apart",
            1 < coca["ratio"][0] < rope["ratio"][0] < published[_ROPE] / 5,
        ),
        instead(
            f"the slack form is behind CoCA at twice the length, {slack['ratio'][0]:.2f} for "
            f"{coca['ratio'][0]:.2f}; at {times[-1]} times, with {_last(slack)}, the two are not "
            "told apart",
            times[0] in _apart(found, coca, slack)
            and times[-1] not in _apart(found, coca, slack) + _apart(found, slack, coca),
        ),
    ]
    rules = (_ROPE, _COCA, _SLACK, _ALIBI, _NONE)
    return findings, _shown(found, {rule: of[rule, _PLAIN] for rule in rules})


def with_ntk(found: Mapping[str, Any]) -> Judged:
    """Find what dynamic NTK gains for CoCA beyond the trained length."""
    of, times = _by_reading(found), found["multiples"]
    plain, scaled = of[_COCA, _PLAIN], of[_COCA, _NTK]
    rope = of[_ROPE, _NTK]
    grown = [row["n_eff"][-1] / row["n_eff"][0] for row in (scaled, plain)]
    findings = [
        core(
            f"CoCA, trained at {found['trained']} bytes and read with {listed(times)} times as "
            f"many, loses less with the rule: perplexity times {listed(scaled['ratio'], '.3f')} "
            f"for {listed(plain['ratio'], '.3f')}, in {listed(found['seeds_helped'])} of "
            f"{COCA.runs} seeds",
            _all_below(scaled["ratio"], plain["ratio"]),
        ),
        letter(
            "with it CoCA loses no more than at the trained length, to a tenth: at 4 times "
            f"{scaled['ratio'][1]:.2f}, at {times[-1]} times {_last(scaled)}",
            max(scaled["ratio"]) <= 1.1,
        ),
        instead(
            f"its heads attend to {grown[0]:.1f} times as many bytes at {times[-1]} times the "
            f"length, without the rule to {grown[1]:.1f} times as many",
            all(growth > 2 for growth in grown),
        ),
        instead(
            f"RoPE gains more by it at twice the length, {rope['ratio'][0]:.3f} for "
            f"{of[_ROPE, _PLAIN]['ratio'][0]:.3f}, and is then ahead of CoCA with it, "
            f"{scaled['ratio'][0]:.3f}; from 4 times on it is behind, in the mean",
            rope["ratio"][0] + rope["spread"][0] < scaled["ratio"][0] - scaled["spread"][0]
            and _all_below(scaled["ratio"][1:], rope["ratio"][1:]),
        ),
    ]
    readings = {f"{rule}, {angles}": of[rule, angles] for rule, angles in _BOTH}
    return findings, _shown(found, readings)


def _shown(found: Mapping[str, Any], names: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return readings as two tables with a row for each length and a column for each reading."""
    ratios = [
        {"times": times}
        | {name: f"{row['ratio'][i]:.2f} ± {row['spread'][i]:.2f}" for name, row in names.items()}
        for i, times in enumerate(found["multiples"])
    ]
    n_eff = [
        {"times": times} | {name: row["n_eff"][i] for name, row in names.items()}
        for i, times in enumerate((1, *found["multiples"]))
    ]
    return {"beyond_training": ratios, "bytes_attended": n_eff}


_LABELS = {
    "beyond_training": "Trained at 64 bytes, read with more: perplexity over that at 64, ± "
    "standard deviation of seeds",
    "bytes_attended": "Bytes that the heads attend to there, n_eff",
    "times": "times the trained length",
}
# What is found beside the judge of a claim of `claims_ledger.coca`, by its key.
OF_COCA: Mapping[str, tuple[Outcome, ...]] = {"coca-ntk": (Outcome(COCA, with_ntk, _LABELS),)}
CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="coca-reads-further",
        source="Zhu et al. (2024), Collinear Constrained Attention (CoCA), arXiv 2309.08646v3",
        statement="CoCA reads contexts far longer than it was trained with, to 60 times, without "
        "any fine-tuning, where RoPE does not.",
        formula="perplexity at n over that at the trained length",
        proof="",
        judge=nothing_computed,
        recorded=(Outcome(COCA, reads_further, _LABELS),),
    ),
)
