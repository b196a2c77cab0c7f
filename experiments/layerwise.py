"""The layers of a Llama of transformers, one after the other: what they compute, and interventions.

`run_layers(model, texts, edit=…, show=…)` asks `edit(layer, text)` for an `Edit` before it runs a
layer of a text, and gives `show(layer, text, inside)` an `Inside` after it. The layers are the
model's own; their attention is the function below, under a name in transformers' table.

A key that is hidden is not there for a query: the others share its weight. A key that is muted
keeps its weight, and what is read of it is zero. The two tell what a key does by its weight from
what it does by its value.

Hiding the first key from all later queries in every head removes no sink: where positions are
relative, as here, that is the text without its first token, and the second is then the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparsity.attention.library import library
from sparsity.errors import InputError

NAME = "layerwise"


@dataclass(frozen=True)
class Edit:
    """What the queries of a layer do not read.

    Args:
        hidden: keys that are not there, bool [heads, T, T] (head, query, key) or a shape that
            broadcasts to it.
        muted: keys that keep their weight, but whose values are read as zero, likewise.
    """

    hidden: Any = False
    muted: Any = False

    def masks(self, heads: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return both as bool [heads, T, T].

        Raises:
            InputError: an array that is not of bool: it may hold positions of keys.
        """
        for name, given in (("hidden", self.hidden), ("muted", self.muted)):
            if np.asarray(given).dtype != bool:
                raise InputError(name, f"{np.asarray(given).dtype} array", "must be bool")
        shape = heads, length, length
        return np.broadcast_to(self.hidden, shape), np.broadcast_to(self.muted, shape)


class Inside(NamedTuple):
    """What a layer computed of a text.

    Args:
        before: the hidden states that entered the layer, [T, dim].
        after: the hidden states that left it, [T, dim].
        queries: [heads, T, d], rotary positions applied.
        keys: [kv heads, T, d], likewise; consecutive query heads share one.
        values: [kv heads, T, d].
        weights: [heads, T, T]; muted keys have theirs, hidden ones none.
        outputs: what each head read, Σ_j a_ij v_j, [heads, T, d].
        output_weights: W_O, [dim, heads·d]: the layer adds `outputs`, head after head, times it.
        edit: what the queries did not read, or None.
    """

    before: np.ndarray
    after: np.ndarray
    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    outputs: np.ndarray
    output_weights: np.ndarray
    edit: Edit | None

    def written(self) -> np.ndarray:
        """Return W_O v of every key as each head would add it to a state, [heads, T, dim]."""
        heads, _, dim = self.queries.shape
        v = np.repeat(self.values, heads // len(self.values), 0)
        w = self.output_weights.reshape(-1, heads, dim)
        return v @ w.transpose(1, 2, 0)


def _attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float, **_: Any
) -> tuple[Any, None]:
    """Attend to the past without what `module.edited` hides, and keep what was computed there."""
    torch = library("torch")
    heads, length = query.shape[1:3]
    k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (key, value))
    seen, muted = torch.ones(length, length, dtype=torch.bool).tril(), None
    if module.edited is not None:
        hidden, muted = map(torch.tensor, module.edited.masks(heads, length))
        seen = seen & ~hidden
    weights = torch.softmax((query @ k.mT * scaling).masked_fill(~seen, -torch.inf), -1)
    weights = torch.nan_to_num(weights)  # a query that sees no key reads nothing
    out = (weights if muted is None else weights.masked_fill(muted, 0)) @ v
    module.inside = tuple(x[0].numpy() for x in (query, key, value, weights, out))
    return out.transpose(1, 2), None


def run_layers(
    model: Any,
    texts: Sequence[np.ndarray],
    *,
    edit: Callable[[int, int], Edit | None] = lambda layer, text: None,
    show: Callable[[int, int, Inside], None] = lambda layer, text, inside: None,
    stop: int | None = None,
) -> list[Any]:
    """Run texts through the layers of a Llama.

    All texts pass a layer before the next one begins: `edit` of a text may ask for what `show` has
    just been given of the texts before it, at the same layer.

    Args:
        model: a `LlamaForCausalLM` in evaluation.
        texts: token ids [T] of each.
        edit: (layer, text) -> what its queries do not read, or None.
        show: called with (layer, text, what the layer computed).
        stop: the layer before which to end; None for all.

    Returns:
        The state of each text after the last of them, [1, T, dim].
    """
    torch = library("torch")
    library("transformers").AttentionInterface.register(NAME, _attend)
    inner = model.model
    implementation = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        with torch.no_grad():
            states = [inner.embed_tokens(torch.as_tensor(ids)[None]) for ids in texts]
            places = [torch.arange(len(ids))[None] for ids in texts]
            turns = [inner.rotary_emb(*x) for x in zip(states, places, strict=True)]
            for number, layer in enumerate(inner.layers[:stop]):
                attention = layer.self_attn
                own = attention.o_proj.weight.detach().numpy()
                for i, state in enumerate(states):
                    attention.edited = edit(number, i)
                    states[i] = layer(state, position_ids=places[i], position_embeddings=turns[i])
                    before, after = state[0].numpy(), states[i][0].numpy()
                    q, k, v, weights, out = attention.inside
                    show(
                        number, i,
                        Inside(before, after, q, k, v, weights, out, own, attention.edited),
                    )  # fmt: skip
    finally:
        model.set_attn_implementation(implementation)
    return states


def token_losses(model: Any, state: Any, ids: np.ndarray) -> np.ndarray:
    """Return the loss of each next token in nats, [T − 1], from the last state of a text."""
    torch = library("torch")
    with torch.no_grad():
        logits = model.lm_head(model.model.norm(state))[0, :-1]
        following = torch.as_tensor(ids)[1:]
        return torch.nn.functional.cross_entropy(logits, following, reduction="none").numpy()
