"""Every family of text models in `transformers`, tiny and random, measured against its own weights.

`python tests/families.py` prints a row for each family and the totals; names as arguments choose.
`models()` yields the models themselves, for other tests.
"""

import contextlib
import dataclasses
import gc
import io
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator

import numpy as np

from sparsity.errors import InputError
from sparsity.measurement.hugging_face import measure_transformers
from sparsity.models.checkpoint import library

T, VOCABULARY, TOLERANCE = 40, 128, 1e-3
LARGEST = 30_000_000  # parameters of a model that is still tiny

# Fields of configurations and their sizes; a configuration takes those that it has.
SIZES = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "model_dim"), 64),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner",
         "ffn_hidden_size", "hidden_dim", "d_inner", "feed_forward_size", "filter_size",
         "moe_intermediate_size", "shared_expert_intermediate_size", "mlp_hidden_size",
         "dense_intermediate_size", "expert_ffn_hidden_size", "shared_intermediate_size"),
        128,
    ),
    **dict.fromkeys(
        ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "num_blocks",
         "decoder_layers", "num_encoder_layers", "num_decoder_layers", "depth"),
        2,
    ),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads",
         "decoder_attention_heads", "num_encoder_attention_heads", "num_decoder_attention_heads"),
        4,
    ),
    **dict.fromkeys(("num_key_value_heads", "n_kv_head", "num_kv_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_dim", "global_head_dim"), 16),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 256),
    **dict.fromkeys(
        ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4
    ),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "moe_topk"), 2),
    **dict.fromkeys(("sliding_window", "window_size"), 16),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "o_lora_rank"), 32),
    "n_group": 1, "topk_group": 1, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
    "v_head_dim": 16, "embedding_size": 64, "first_k_dense_replace": 1,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "type_vocab_size": 2,
}  # fmt: skip
# Where the sizes above do not fit together; found by what the models themselves say.
OWN: dict[str, dict] = {}


def names() -> list[str]:
    """The families that read text: those with a language model, or a model of token ids."""
    auto = library("transformers.models.auto.modeling_auto")
    masked = auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return sorted({*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *masked, *EXTRA})


# Encoders and parts of models of images or sound that read token ids as well.
EXTRA = (
    "bros", "clip_text_model", "dpr", "fsmt", "imagegpt", "layoutlmv3", "led", "lilt", "llava",
    "longt5", "m2m_100", "markuplm", "mt5", "nllb-moe", "pegasus_x", "splinter",
    "switch_transformers", "t5", "t5gemma", "udop", "umt5", "visual_bert", "lxmert", "canine",
)  # fmt: skip


def config_of(kind: type, **own):
    """The smallest configuration of a class that its sizes allow."""
    fields = {field.name for field in dataclasses.fields(kind)}
    fields |= set(getattr(kind, "attribute_map", {}))
    given = {name: size for name, size in SIZES.items() if name in fields}
    for name in ("rope_parameters", "layer_types", "mlp_layer_types"):
        if name in fields and name in own:
            given[name] = own.pop(name)
    inner = {}
    for name, part in (kind.sub_configs or {}).items():
        if dataclasses.is_dataclass(part) and name not in own:
            inner[name] = config_of(part)
    return kind(**(given | inner | own))


def class_of(name: str):
    """(class of the configuration, class of the model) of a family."""
    hf = library("transformers")
    auto = library("transformers.models.auto.modeling_auto")
    configs = library("transformers.models.auto.configuration_auto")
    kind = getattr(hf, configs.CONFIG_MAPPING_NAMES[name])
    for mapping in ("CAUSAL_LM", "MASKED_LM"):
        found = getattr(auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").get(name)
        if found is not None:
            return kind, getattr(hf, found)
    found = auto.MODEL_MAPPING_NAMES[name]
    return kind, getattr(hf, found if isinstance(found, str) else found[0])


def build(name: str, implementation: str = "eager"):
    """A tiny random model in evaluation, with logits wide enough to tell keys apart.

    Raises:
        MemoryError: it is not tiny.
    """
    torch = library("torch")
    kind, model_class = class_of(name)
    config = config_of(kind, **OWN.get(name, {}))
    config._attn_implementation = implementation
    with torch.device("meta"):
        count = sum(x.numel() for x in model_class(config).parameters())
    if count > LARGEST:
        raise MemoryError(f"{count} parameters")
    torch.manual_seed(0)
    config = config_of(kind, **OWN.get(name, {}))
    config._attn_implementation = implementation
    model = model_class(config).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data *= 3
    return model


def ids_of(model) -> np.ndarray:
    """Random token ids."""
    return np.random.default_rng(0).integers(3, VOCABULARY, T)


def models(
    chosen: list[str] | None = None, implementation: str = "eager"
) -> Iterator[tuple[str, object, np.ndarray]]:
    """(family, model, ids) of all families that can be built; a model is freed after its turn.

    In the place of a model that cannot be built stands the exception.
    """
    for name in names() if chosen is None else chosen:
        try:
            with _quiet():
                model = build(name, implementation)
            ids = ids_of(model)
        except Exception as error:
            model, ids = error, np.empty(0, int)
        yield name, model, ids
        del model
        gc.collect()


@contextlib.contextmanager
def _quiet():
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def own_weights(model, ids) -> list[np.ndarray]:
    """What the model itself returns as its weights, [heads, T, T] in each layer."""
    torch = library("torch")
    with torch.no_grad():
        out = model(
            input_ids=torch.as_tensor(ids)[None], use_cache=False, output_attentions=True
        )
    found = out.get("attentions")
    if found is None:
        raise LookupError("returns no attentions")
    return [x[0].double().numpy() for x in found if x is not None]


def distance(data, weights) -> float:
    """The largest relative deviation of n, n_eff and S of any row from the model's own weights."""
    if data.sizes["layer"] != len(weights):
        return np.inf
    worst = 0.0
    for layer, a in enumerate(weights):
        if data.S[layer].shape != a.shape[:2]:
            return np.inf
        n, l1, l2 = (a > 0).sum(-1), a.sum(-1), np.sqrt((a * a).sum(-1))
        n_eff = (l1 / l2) ** 2
        for name, own in (("length", n), ("n_eff", n_eff), ("S", np.sqrt(n_eff / n))):
            off = np.abs(data[name].values[layer] / own - 1)
            worst = max(worst, np.inf if np.isnan(off).any() else float(off.max()))
    return worst


def judge(name: str, model, ids) -> tuple[str, str]:
    """(verdict, why): equal, refused, wrong, error, untold (no weights to hold it against)."""
    if isinstance(model, Exception):
        return "not built", f"{type(model).__name__}: {model}"
    with _quiet():
        try:
            data = measure_transformers(model, ids)
        except InputError as refusal:
            return "refused", str(refusal)
        except Exception as error:
            return "error", f"{type(error).__name__}: {error}"
        try:
            weights = own_weights(model, ids)
        except Exception as error:
            return "untold", f"{type(error).__name__}: {error}"
    off = distance(data, weights)
    narrow = float(data.S.min())
    return ("equal" if off < TOLERANCE else "wrong"), f"{off:.1e}, least S {narrow:.2f}"


def main(chosen: list[str]) -> None:
    """Print the table."""
    totals = Counter()
    for name, model, ids in models(chosen or None):
        verdict, why = judge(name, model, ids)
        totals[verdict] += 1
        print(f"{name:28} {verdict:10} {' '.join(why.split())[:200]}", flush=True)
    print(dict(totals))


if __name__ == "__main__":
    main(sys.argv[1:])
