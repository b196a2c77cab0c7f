"""How far does a token reach, and which heads rest on the sink? Derivatives of a real model.

Forward derivatives of all states by the embedding of one token, with the first key and without it;
and the weight that each head puts on the first key, query by query.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from experiments import statistics
from experiments.frame import RESULTS, Experiment, Record, read_table
from experiments.real_model import RANDOM, SMOLLM2, hash_of, open_model, text_of
from sparsity import plotting
from sparsity.attention.library import library

AS_IS, FIRST, ORDINARY = "as it is", "first key hidden", "one ordinary key hidden"
RESTS, ACTIVE, OFTEN = 0.8, 0.2, 0.1  # weight on the first key; share of the queries
FAR = 16  # distance from which the derivatives of conditions are compared


@dataclass(frozen=True)
class Settings:
    """What is read: the heads of every text, derivatives by the embedding of one token of some."""

    texts: tuple[str, ...] = (
        *("types", "formatstrings", "debugger", "compound"),
        *("execmodel", "import", "objects", "typesmapping"),
    )
    derivatives_of: tuple[str, ...] = ("types", "compound")
    tokens: int = 256
    hidden_from: int = 16  # the first query that does not see what is hidden
    ordinary: int = 8  # the key that is hidden as a control
    moved: int = 64  # the token whose embedding moves
    directions: int = 2
    seed: int = 0
    model: str = SMOLLM2


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each text."""
    return [{"text": name, "sha256": hash_of(name)} for name in settings.texts]


# --- a text --------------------------------------------------------------------------------------


def weights_of(settings: Settings, ids: np.ndarray) -> np.ndarray:
    """Return the weights of all heads, [layers, heads, T, T]."""
    torch = library("torch")
    llama = open_model(settings.model).llama
    known = llama.config._attn_implementation
    llama.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            asked = {"use_cache": False, "output_attentions": True}
            whole = llama.model(input_ids=torch.as_tensor(ids)[None], **asked)
        return np.stack([w[0].numpy() for w in whole.attentions])
    finally:
        llama.set_attn_implementation(known)


def derivatives(settings: Settings, ids: np.ndarray, hidden: int | None) -> np.ndarray:
    """Return how far the states of later tokens move, [layers, T].

    Args:
        settings: of the experiment.
        ids: of the text.
        hidden: the key that later queries do not see, or None.
    """
    torch = library("torch")
    llama = open_model(settings.model).llama
    seen = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    if hidden is not None:
        seen[settings.hidden_from :, hidden] = False
    mask = torch.zeros(len(ids), len(ids)).masked_fill(~seen, torch.finfo(torch.float32).min)
    known = llama.config._attn_implementation
    llama.set_attn_implementation("eager")
    forward = torch.autograd.forward_ad
    try:
        with torch.no_grad(), forward.dual_level(), warnings.catch_warnings():
            # PyTorch makes its forward derivatives by a part of itself that is to go.
            warnings.simplefilter("ignore", DeprecationWarning)
            x = llama.model.embed_tokens(torch.as_tensor(ids)[None])
            u = np.random.default_rng(settings.seed).normal(size=(settings.directions, x.shape[-1]))
            u *= float(x[0, settings.moved].norm()) / np.linalg.norm(u, axis=-1, keepdims=True)
            tangent = torch.zeros(len(u), *x.shape[1:])
            tangent[:, settings.moved] = torch.as_tensor(u, dtype=torch.float32)
            whole = llama.model(
                inputs_embeds=forward.make_dual(x.repeat(len(u), 1, 1), tangent),
                attention_mask=mask[None, None],
                use_cache=False,
                output_hidden_states=True,
            )
            moves = []
            for state in whole.hidden_states[1:]:
                at, moved = forward.unpack_dual(state)
                moves.append((moved.norm(dim=-1) / at.norm(dim=-1)).square().mean(0).sqrt())
        return np.stack([x.numpy() for x in moves])
    finally:
        llama.set_attn_implementation(known)


def explained(x: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return the adjusted share of the variance of x [..., T] that the tokens explain.

    Args:
        x: numbers of queries.
        tokens: theirs; those that occur once are left out.
    """
    _, group, count = np.unique(tokens, return_inverse=True, return_counts=True)
    kept = count[group] > 1
    _, group = np.unique(group[kept], return_inverse=True)
    x, groups = x[..., kept], group.max() + 1
    member = np.eye(groups)[group]
    means = x @ (member / member.sum(0)) @ member.T
    rest = ((x - means) ** 2).sum(-1) / (x.shape[-1] - groups)
    return 1 - rest / np.maximum(x.var(-1, ddof=1), 1e-12)


def run(settings: Settings, cell: Record) -> list[Record]:
    """Take the derivatives of a text under each condition, and look at its heads."""
    ids = np.asarray(open_model(settings.model).encode(text_of(cell["text"])))[: settings.tokens]
    records = []

    def note(condition: str, quantity: str, layer: int, at: int, value: Any) -> None:
        kept = {"condition": condition, "quantity": quantity, "layer": layer, "at": at}
        records.append({**kept, "value": float(value)})

    conditions = ((AS_IS, None), (FIRST, 0), (ORDINARY, settings.ordinary))
    for name, hidden in conditions if cell["text"] in settings.derivatives_of else ():
        for layer, of_layer in enumerate(derivatives(settings, ids, hidden)):
            low, later = 1, of_layer[settings.moved :]
            while low < len(later):
                note(name, "reach", layer, low, later[low : 2 * low].mean())
                low *= 2
    mass = weights_of(settings, ids)[:, :, settings.moved :, 0]
    tokens = ids[settings.moved :]
    mixed = np.random.default_rng(settings.seed).permutation(tokens)
    columns = {
        "mass": mass.mean(-1),
        "rests": (mass > RESTS).mean(-1),
        "active": (mass < ACTIVE).mean(-1),
        "by_token": explained(mass, tokens),
        "by_mixed": explained(mass, mixed),
    }
    for quantity, x in columns.items():
        for layer, head in np.ndindex(x.shape):
            note(AS_IS, quantity, layer, head, x[layer, head])
    return records


# --- what came out of it -------------------------------------------------------------------------


def arrays(records: list[Record], condition: str, quantity: str) -> np.ndarray:
    """Return a quantity, [texts, layers, octaves or heads]."""
    mine = [x for x in records if (x["condition"], x["quantity"]) == (condition, quantity)]
    texts, layers = (len({x[name] for x in mine}) for name in ("text", "layer"))
    return np.array([x["value"] for x in mine], float).reshape(texts, layers, -1)


def of_words(condition: str, texts: set[str], shape: tuple[int, ...]) -> np.ndarray | None:
    """Return what a changed word moves, by `real_sinks`, or None if that is of another shape."""
    mine = [
        x["value"]
        for x in read_table(RESULTS / "real_sinks.csv")
        if (x["condition"], x["quantity"]) == (condition, "moved_at") and x["text"] in texts
    ]
    return np.array(mine).reshape(shape) if len(mine) == np.prod(shape) else None


class Measured(NamedTuple):
    """What derivatives and heads are, in numbers.

    Args:
        ranks: of each condition how derivatives rank with what a changed word moves.
        larger: derivatives over those as it is, geometric means, by condition.
        texts_larger: in how many texts they are larger with the first key hidden.
        share: of heads that switch, in the mean of texts.
        again: of those that do in a text, the share that do in three quarters of the texts.
        by_token: the variance that the token explains in the median of those heads.
        by_mixed: the same of mixed tokens.
    """

    ranks: dict[str, statistics.Interval]
    larger: dict[str, float]
    texts_larger: int
    share: float
    again: float
    by_token: float
    by_mixed: float


def measured(records: list[Record]) -> Measured:
    """Return what derivatives and heads are, in numbers."""
    reach = {name: arrays(records, name, "reach") for name in (AS_IS, FIRST, ORDINARY)}
    ranks, moved = {}, {x["text"] for x in records if x["quantity"] == "reach"}
    for name in (AS_IS, FIRST):
        words = of_words(name, moved, reach[name].shape)
        if words is None:  # a tiny run has no twin
            words = reach[AS_IS]
        x, y = (np.exp(np.log(each).mean(0)).ravel() for each in (reach[name], words))
        ranks[name] = statistics.rank_correlation(x, y)
    octaves = 2 ** np.arange(reach[AS_IS].shape[-1])
    far = octaves >= min(FAR, octaves[-1])
    ratio = {
        name: np.exp(np.log(reach[name] / reach[AS_IS])[..., far].mean((1, 2)))
        for name in (FIRST, ORDINARY)
    }
    middle = {name: float(np.exp(np.log(x).mean())) for name, x in ratio.items()}
    rests, active, by_token, by_mixed = (
        arrays(records, AS_IS, x) for x in ("rests", "active", "by_token", "by_mixed")
    )
    switches = (rests >= OFTEN) & (active >= OFTEN)
    times = switches.sum(0)
    again = float(np.mean(times[times > 0] >= 0.75 * len(switches))) if times.any() else 0.0
    explained_by = (
        float(np.median(x[switches])) if switches.any() else np.nan for x in (by_token, by_mixed)
    )
    texts_larger = int((ratio[FIRST] > 1).sum())
    return Measured(ranks, middle, texts_larger, float(switches.mean()), again, *explained_by)


def judge(records: list[Record]) -> str:
    """Return maps by layer and distance, heads that switch, and what held of the prediction."""
    ranks, middle, texts_larger, share, again, of_switching, mixed = measured(records)
    moved = {x["text"] for x in records if x["quantity"] == "reach"}
    held = {
        **{
            f"1: {name}, derivatives rank as what a word moves by {x}, 0.8 or more": x.value >= 0.8
            for name, x in ranks.items()
        },
        f"2: with the first key hidden they are {middle[FIRST]:.2f} times as large, 1.3 or more, "
        f"and larger in {texts_larger} of {len(moved)} texts": (
            middle[FIRST] >= 1.3 and texts_larger == len(moved)
        ),
        f"2: with an ordinary key hidden {middle[ORDINARY]:.3f}, within 5 %": (
            abs(middle[ORDINARY] - 1) <= 0.05
        ),
        f"3: {share:.1%} of heads switch, a tenth or more": share >= 0.1,
        f"3: of those that do in a text {again:.0%} do in three quarters of the texts, half or "
        "more": again >= 0.5,
        f"4: the token explains {of_switching:.2f} of the variance in the median head that "
        "switches, 0.3 or more": of_switching >= 0.3,
        f"control: mixed tokens explain {mixed:+.3f}, within 0.05 of none": abs(mixed) <= 0.05,
    }
    met = {
        f"derivatives rank by {min(x.value for x in ranks.values()):.2f}, below 0.5": (
            min(x.value for x in ranks.values()) < 0.5
        ),
        f"derivatives are no larger without the first key, {middle[FIRST]:.2f}": middle[FIRST] <= 1,
        f"{share:.1%} of heads switch, fewer than 2 %": share < 0.02,
    }
    reach = {name: arrays(records, name, "reach") for name in (AS_IS, FIRST, ORDINARY)}
    octaves = 2 ** np.arange(reach[AS_IS].shape[-1])
    rests, active, mass, by_token = (
        arrays(records, AS_IS, x) for x in ("rests", "active", "mass", "by_token")
    )
    times, texts = ((rests >= OFTEN) & (active >= OFTEN)).sum(0), len(rests)
    lines = [
        "",
        "Share of a state's norm that it moves by when token i moves by its own length: geometric "
        "means of texts and layers.",
        "",
        "| distance | " + " | ".join(f"{x}–{2 * x - 1}" for x in octaves) + " |",
        "|---" * (len(octaves) + 1) + "|",
    ]
    for name, x in reach.items():
        shown = " | ".join(f"{y:.3f}" for y in np.exp(np.log(x).mean((0, 1))))
        lines.append(f"| {name} | {shown} |")
    score = np.minimum(rests, active).mean(0)
    lines += [
        "",
        "The heads that switch most, means of texts:",
        "",
        "| layer, head | rests at | active at | weight on the first key | R² of the token | in |",
        "|---|---|---|---|---|---|",
    ]
    for at in np.argsort(-score.ravel())[:8]:
        layer, head = np.unravel_index(at, score.shape)
        shown = (f"{x.mean(0)[layer, head]:.0%}" for x in (rests, active))
        told = (f"{x.mean(0)[layer, head]:.2f}" for x in (mass, by_token))
        row = " | ".join([*shown, *told])
        lines.append(f"| {layer}, {head} | {row} | {times[layer, head]} of {texts} |")
    return "\n".join([*statistics.verdicts(held), *statistics.refutations(met), *lines])


def draw(records: list[Record], figure: Figure) -> None:
    """Draw derivatives by layer and distance, with the first key and without, and the heads."""
    axes = figure.subplots(1, 3, width_ratios=(1, 1.15, 1))
    low, high = (np.quantile(arrays(records, AS_IS, "reach"), x) for x in (0.01, 0.99))
    for ax, name in zip(axes, (AS_IS, FIRST), strict=False):
        x = np.exp(np.log(arrays(records, name, "reach")).mean(0))
        image = ax.imshow(
            x, origin="lower", aspect="auto", cmap="viridis", norm=LogNorm(low, high, clip=True)
        )
        ax.set_xticks(range(x.shape[1]), [f"{2**k}" for k in range(x.shape[1])])
        ax.set(xlabel="distance, from", ylabel="layer", title=f"‖J_ij‖, {name}")
        ax.grid(visible=False)
    figure.colorbar(image, ax=axes[1], label="share of the state's norm")
    rests, active, by_token = (
        arrays(records, AS_IS, x).mean(0).ravel() for x in ("rests", "active", "by_token")
    )
    dots = axes[2].scatter(rests, active, c=by_token, s=12, cmap="viridis", vmin=0, vmax=1)
    figure.colorbar(dots, ax=axes[2], label="R² of the query's token")
    for line in (axes[2].axhline, axes[2].axvline):
        line(OFTEN, color=plotting.GREY, ls=":", lw=1)
    axes[2].set(xlabel="share of queries at which it rests", ylabel="at which it is active")
    axes[2].set_title("Heads: right and above the lines they switch")
    far = np.log(arrays(records, FIRST, "reach") / arrays(records, AS_IS, "reach")).mean()
    figure.suptitle(
        f"Without the first key a token moves later states {np.exp(far):.2f} times as far; whether "
        "a head rests, the query's token tells in part"
    )


EXPERIMENT = Experiment(
    name="sink_map",
    title="How far does a token reach, and which heads rest on the sink?",
    full=Settings(),
    tiny=Settings(
        texts=("types", "import"),
        derivatives_of=("types",),
        tokens=40,
        hidden_from=4,
        ordinary=2,
        moved=8,
        directions=2,
        model=RANDOM,
    ),
    cells=cells,
    run=run,
    judge=judge,
    draw=draw,
    size=(14.0, 4.8),
)
