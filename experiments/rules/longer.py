"""Claims of the sources on sinks and on CoCA, judged by models: trained ones and a real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from experiments import recorded
from experiments import sharing as study
from experiments.recorded import interval
from sparsity.claims_ledger.findings import Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim

_ROPE, _COCA, _SLACK, _ALIBI, _NONE = "RoPE", "CoCA", "CoCA slack", "ALiBi", "no positions"
_PLAIN, _NTK = "as trained", "dynamic NTK"


def _by_reading(table: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(row["rule"], row["reading"]): row for row in table["read"]}


def _last(row: Mapping[str, Any]) -> str:
    """Write the ratio at the longest context with its spread."""
    return f"{row['ratio'][-1]:.2f} ± {row['spread'][-1]:.2f}"


def _apart(table: Mapping[str, Any], less: Any, more: Any) -> list[int]:
    """Return the multiples at which one ratio is below another by more than both spreads."""
    columns = (less["ratio"], less["spread"], more["ratio"], more["spread"])
    pairs = zip(table["multiples"], *columns, strict=True)
    return [times for times, a, of_a, b, of_b in pairs if a + of_a < b - of_b]


def _all_below(less: Sequence[float], more: Sequence[float]) -> bool:
    return all(a < b for a, b in zip(less, more, strict=True))


def reads_further(table: Mapping[str, Any], seed: int) -> Judged:
    """Find what CoCA and RoPE lose in contexts longer than the trained one."""
    of, times, trained = _by_reading(table), table["multiples"], table["trained"]
    rope, coca, slack, alibi = (of[rule, _PLAIN] for rule in (_ROPE, _COCA, _SLACK, _ALIBI))
    near = 3  # multiples that are read before RoPE has broken down
    apart, published = _apart(table, coca, rope), table["published_at_twice"]
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
            f"the frequency of bytes alone costs {table['unigram']:.2f}; CoCA's loss is the "
            f"smaller one in {table['seeds_ahead'][-1][1]} of {table['seeds']} seeds there",
            min(rope["loss"][near], rope["loss"][-1], coca["loss"][-1]) > table["unigram"] - 0.05,
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
            times[0] in _apart(table, coca, slack)
            and times[-1] not in _apart(table, coca, slack) + _apart(table, slack, coca),
        ),
    ]
    return findings, {}


def with_ntk(table: Mapping[str, Any], seed: int) -> Judged:
    """Find what dynamic NTK gains for CoCA beyond the trained length."""
    of, times = _by_reading(table), table["multiples"]
    plain, scaled = of[_COCA, _PLAIN], of[_COCA, _NTK]
    rope = of[_ROPE, _NTK]
    grown = [row["n_eff"][-1] / row["n_eff"][0] for row in (scaled, plain)]
    findings = [
        core(
            f"CoCA, trained at {table['trained']} bytes and read with {listed(times)} times as "
            f"many, loses less with the rule: perplexity times {listed(scaled['ratio'], '.3f')} "
            f"for {listed(plain['ratio'], '.3f')}, in {listed(table['seeds_helped'])} of "
            f"{table['seeds']} seeds",
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
    return findings, {}


_FIRST, _SINKS, _ONE = "first key hidden", "all sinks hidden", "one ordinary key hidden"
_MUTED, _SINKS_MUTED = "first key muted", "all sinks muted"
_ELSEWHERE = "first key muted, where no sink"
_MATCHED, _OTHERS_MATCHED = "first key hidden, equal mass", "ordinary keys, equal mass"


def _by_condition(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["condition"]: row for row in rows}


def mixing(table: Mapping[str, Any], seed: int) -> Judged:
    """Find how far a changed word moves the states of a model with its sinks and without."""
    of, texts = _by_condition(table["keys"]), table["texts"]
    first, one, muted = of[_FIRST], of[_ONE], of[_MUTED]
    matched, others = of[_MATCHED], of[_OTHERS_MATCHED]
    findings = [
        core(
            "in SmolLM2-135M a changed word moves later states "
            f"{interval(first['moved'])} times as far once the first key is hidden, further in "
            f"{table['further']} of {texts} texts; with one ordinary key hidden, a control, "
            f"{interval(one['moved'])} (95 % intervals over texts)",
            first["moved"][1] > 1 and one["moved"][2] < 1.05,
        ),
        core(
            "at equal loss, which is read off few points of each text, it moves them "
            f"{interval(table['equal_loss'])} times as far as without ordinary keys, further in "
            f"{table['equal_loss_further']} of {texts}",
            table["equal_loss"][1] > 1,
        ),
        core(
            "at equal mass too it moves them further than without ordinary keys: "
            f"{interval(matched['moved'])} and {interval(others['moved'])} times as far as with "
            "all keys (the prediction said that as much by both would refute the claim)",
            table["equal_mass"][1] > 1,
        ),
        instead(
            "equal masses exist only in rows where the first key has "
            f"{matched['mass']:.2f} of its weight of {first['mass']:.2f}, and there neither moves "
            "the states further: of rows in which a sink takes most they say nothing",
            matched["mass"] < first["mass"] / 2
            and all(row["moved"][1] < 1 < row["moved"][2] for row in (matched, others)),
        ),
        instead(
            "what counts is the weight that the sink takes: muted, with its weight kept, it costs "
            f"{interval(muted['cost'])} nats, and the word moves states "
            f"{interval(muted['moved'])} times as far, less than with it hidden in "
            f"{table['further_than_muted']} of {texts} texts",
            muted["cost"][1] > 0 and muted["moved"][2] < first["moved"][1],
        ),
    ]
    return findings, {}


def sharing(table: Mapping[str, Any], seed: int) -> Judged:
    """Find how many of their top 5 % a row shares with its neighbours, and what the law says."""
    of = {row["pair"]: row for row in table["pairs"]}
    whole, layers, queries = (of[x] for x in (study.WHOLE, study.LAYERS, study.QUERIES))
    findings = [
        core(
            "in SmolLM2-135M the mean weights of a layer’s heads share "
            f"{whole['shared']:.2f} of their top 5 % of 511 keys with those of the next layer, "
            f"more than half; shuffled keys, a control, {of[study.SHUFFLED]['shared']:.2f}",
            whole["shared"] > 0.5 and of[study.SHUFFLED]["shared"] < 0.06,
        ),
        letter(
            "70 to 100 % of them, as is reported of adjacent layers of a model with an indexer",
            whole["shared"] >= 0.7,
        ),
        letter(
            "head by head too: the same head of the next layer shares "
            f"{layers['shared']:.2f} (the query before it {queries['shared']:.2f})",
            layers["shared"] > 0.5,
        ),
        instead(
            "what is at the top is more alike than the rest: the law at the correlation of the "
            f"whole row, {whole['rho']:.2f}, says {whole['law']:.2f} of layers, and at the "
            f"{layers['rho']:.2f} of a head {layers['law']:.2f}; it ranks the heads with "
            f"{interval(table['rank'])}",
            whole["law"] < whole["shared"] and layers["law"] < layers["shared"],
        ),
    ]
    return findings, {}


def flattens(table: Mapping[str, Any], seed: int) -> Judged:
    """Find how n_eff of a real model's heads grows with the context, and what forecasts it."""
    of = {row["forecast"]: row for row in table["forecasts"]}
    far = {row["have"]: row["off"] for row in table["far_keys"]}
    (first, last), (growth, low, high) = table["lengths"], table["growth"]
    law, none = of["law"], of["none"]
    findings = [
        core(
            f"from {first:,} to {last:,} keys n_eff of SmolLM2-135M’s median head grows by "
            f"{growth:.2f} (quartiles {low:.2f} and {high:.2f}), and it grows in "
            f"{table['growing']:.0%} of the heads, more than half",
            growth > 1 and table["growing"] > 0.5,
        ),
        letter(
            "as rows of independent scores flatten: the exact law at the γ̂ of the short rows says "
            f"{law['growth']:.2f}",
            growth > law["growth"] ** 0.5,
        ),
        instead(
            f"no change, off by {none['off']:.2f} in the median head, is nearer than the law in "
            f"{law['no_change_nearer']:.0%} of the heads",
            law["no_change_nearer"] > 0.5,
        ),
        instead(
            "far keys score lower: independent normal keys with the mean of their distance give "
            f"n_eff to {far['mean']:.2f} in the median head, with the mean of near ones to "
            f"{far['as_near']:.2f}",
            far["mean"] - 1 < (far["as_near"] - 1) / 2,
        ),
    ]
    return findings, {}


def no_op(table: Mapping[str, Any], seed: int) -> Judged:
    """Find how large the values of sinks are, and what is lost with them."""
    of, texts = _by_condition(table["keys"]), table["texts"]
    norms, cosines = table["norms"], table["cosines"]
    less, fewer = table["less_when_muted"], table["texts_less"]
    first, muted = of[_FIRST]["cost"], of[_MUTED]["cost"]
    constant, neighbours = cosines["alike"], cosines["alike_others"]
    findings = [
        core(
            "where the first key of SmolLM2-135M is a sink, its value is small: ‖v‖ is "
            f"{norms['value_norm']:.2f} and ‖W_O v‖ {norms['written_norm']:.2f} of the median "
            "key’s, median over layers and texts",
            max(norms.values()) < 0.5,
        ),
        instead(
            "all sinks (a condition added after the first run, predicted by nobody) cost less "
            f"muted than hidden: {interval(of[_SINKS_MUTED]['cost'])} and "
            f"{interval(of[_SINKS]['cost'])} nats, less in {fewer['sinks']} of {texts} texts "
            "(95 % intervals over texts)",
            less["sinks"][1] > 0,
        ),
        letter(
            "what it writes is hardly needed: muted, the first key costs less than a fifth of what "
            f"it costs hidden; {interval(muted)} and {interval(first)} nats, less in "
            f"{fewer['first']} of {texts} texts, by {interval(less['first'])}",
            muted[0] < first[0] / 5,
        ),
        instead(
            "what it writes carries next to nothing of the text, yet the model needs it (measured "
            "after the first run): of BOS and of the "
            "text’s own first token heads write the same direction, cosine "
            f"{constant[0]:.3f} (of neighbours in the text, a control, {neighbours[0]:.3f} ± "
            f"{neighbours[1]:.3f})",
            constant[0] > 0.95 and neighbours[0] + neighbours[1] < 0.95 and muted[1] > 0,
        ),
        instead(
            "control: muted in the heads where it is no sink, the first key costs "
            f"{of[_ELSEWHERE]['cost'][0]:.3f} nats",
            of[_ELSEWHERE]["cost"][2] < 0.05,
        ),
    ]
    return findings, {}


def window(table: Mapping[str, Any], seed: int) -> Judged:
    """Find what a window of keys costs with the first tokens and without."""
    none, one, _, _ = table["windows"]
    kept, next_kept = table["window_recovered"]
    findings = [
        core(
            "with 64 keys SmolLM2-135M loses "
            f"{interval(none['cost'])} nats more than with all, {interval(one['cost'])} with the "
            "first token kept, which "
            f"saves {kept:.0%} of what four of them do; the next four, a control, save "
            f"{next_kept:.0%} (how strong a sink is was not measured against the length)",
            kept > 0.8 and next_kept < 0.2 and one["cost"][2] < none["cost"][1],
        )
    ]
    return findings, {}


_sink_claim = partial(
    Claim,
    source="Barbero et al. (2025), Why do LLMs attend to the first token?, arXiv 2504.02732",
    proof="",
    routes=partial(recorded.numbers, "real_sinks"),
)
_coca_claim = partial(
    Claim,
    source="Zhu et al. (2024), Collinear Constrained Attention (CoCA), arXiv 2309.08646v3",
    proof="",
    routes=partial(recorded.numbers, "coca"),
)
# Of the sources whose claims `sparsity claims` computes, and of one: what models say of them.
CLAIMS: tuple[Claim, ...] = (
    _coca_claim(
        key="coca-reads-further",
        statement="CoCA reads contexts far longer than it was trained with, to 60 times, without "
        "any fine-tuning, where RoPE does not.",
        formula="perplexity at n over that at the trained length",
        judge=reads_further,
    ),
    _coca_claim(
        key="coca-ntk-trained",
        statement="With dynamic NTK a trained CoCA extends its context.",
        formula="perplexity at n over that at the trained length",
        judge=with_ntk,
    ),
    _sink_claim(
        key="sinks-mix-less-measured",
        statement="In a real model attention sinks reduce the mixing of information between "
        "tokens.",
        formula="how far a changed word moves later states, over that with all keys",
        judge=mixing,
    ),
    _sink_claim(
        key="no-op-measured",
        statement="In a real model attending to a sink is an approximate no-op: its value has a "
        "small norm.",
        formula="‖v‖ of the sink over that of the median key",
        judge=no_op,
    ),
    _sink_claim(
        key="window-needs-sink",
        source="Xiao et al. (2023), Efficient streaming language models with attention sinks, "
        "arXiv 2309.17453",
        statement="A context beyond its window needs its sink.",
        formula="nats lost with a window of keys, with its first tokens and without",
        judge=window,
    ),
    Claim(
        key="layers-share-an-index",
        source="Bai et al. (2026), IndexCache, arXiv 2603.12201",
        statement="The top-k keys of sparse attention are highly similar across consecutive "
        "layers, so that one layer may choose them for the next.",
        formula="|T ∩ T′|/k → P(Z > z, Z′ > z)/q, z = Φ⁻¹(1 − q)",
        proof="",
        judge=sharing,
        routes=partial(recorded.numbers, "sharing"),
    ),
    Claim(
        key="longer-context-flattens",
        source="Nakanishi (2025), Scalable-Softmax, arXiv 2501.19399",
        statement="As the context grows, the attention of a model with softmax flattens.",
        formula="n_eff of n keys over n_eff of n₀",
        proof="",
        judge=flattens,
        routes=partial(recorded.numbers, "dilution"),
    ),
)
