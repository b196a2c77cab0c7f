"""Every family of text models in `transformers`, tiny and random, measured against its own weights.

`models()` yields the models themselves, for other tests.
"""

import contextlib
import copy
import dataclasses
import gc
import io
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from sparsity import InputError
from sparsity.attention.library import library
from sparsity.attention.torch.models import measure_transformers

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
    **dict.fromkeys(("index_topk",), 16),  # of sparse attention: fewer keys than the text has
    "n_group": 1, "topk_group": 1, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
    "v_head_dim": 16, "embedding_size": 64, "first_k_dense_replace": 1,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "type_vocab_size": 2,
}  # fmt: skip
# Where the sizes above do not fit together, or leave a family without one of its kinds of layers.
_MIXED = {"layer_types": ["linear_attention", "full_attention"]}
OWN: dict[str, dict] = {
    "bamba": {"attn_layer_indices": [1]},
    "bailing_hybrid": {"num_hidden_layers": 4, "layer_group_size": 2},
    "canine": {"local_transformer_stride": 16, "downsampling_rate": 4},
    "codegen": {"rotary_dim": 8},
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention"]},
    "dots1": {"n_shared_experts": 1, "num_experts_per_tok": 2},
    "dots3_note_text": {"num_key_value_heads": 4},
    "esmc": {"num_key_value_heads": 4},
    "gemma3n_text": {
        "num_hidden_layers": 4, "num_kv_shared_layers": 2, "laurel_rank": 8,
        "hidden_size_per_layer_input": 16,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": _MIXED,
    "layoutlmv3": {"visual_embed": False, "coordinate_size": 10, "shape_size": 12},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "lilt": {"max_2d_position_embeddings": 64, "hidden_size": 96, "channel_shrink_ratio": 4},
    "luke": {"entity_vocab_size": 16},
    "mamba2": {"num_heads": 8, "n_groups": 1},
    "qwen3_5_moe_text": _MIXED,
    "qwen3_5_text": _MIXED,
    "qwen3_next": _MIXED,
    "qwen4_exp_text": _MIXED,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "sam3_lite_text_text_model": {"num_hidden_layers": 4},
    "reformer": {
        "is_decoder": True, "axial_pos_embds": False, "attn_layers": ["local", "lsh"],
        "num_buckets": 4, "attention_head_size": 16,
    },
    "zamba": {"num_hidden_layers": 4, "layer_types": ["mamba", "hybrid"] * 2},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"]},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
}  # fmt: skip
# Families whose logits are wide as they are: wider, weights would be 0 in single precision.
WIDE = ("cpmant", "gemma4", "embedding_gemma2", "gemma3n")


def names() -> list[str]:
    """The families that read text: language models, encoders, and the text parts of others."""
    auto = library("transformers.models.auto.modeling_auto")
    chosen = {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES}
    chosen |= {name for name in auto.MODEL_MAPPING_NAMES if name.endswith("_text")}
    return sorted((chosen | set(EXTRA)) - set(UNFIT))


# Their positions on several axes have no size that fits a tiny head.
UNFIT = ("glm4v_moe_text", "glm4v_text", "glm_image_text", "glm_ocr_text", "hunyuan_vl_text",
         "qwen2_vl_text", "qwen2_5_vl_text")  # fmt: skip
EXTRA = (
    "bros", "canine", "clip_text_model", "dpr", "fsmt", "imagegpt", "layoutlmv3", "led", "lilt",
    "llava", "longt5", "lxmert", "m2m_100", "markuplm", "mistral4", "mt5", "nllb-moe",
    "openai_privacy_filter", "pegasus_x", "sam3_lite_text_text_model", "splinter",
    "switch_transformers", "t5", "t5gemma", "t5gemma2_encoder", "tipsv2_text_model", "udop",
    "umt5", "visual_bert",
)  # fmt: skip


def config_of(kind: type, **own):
    """The smallest configuration of a class that its sizes allow."""
    fields = {field.name for field in dataclasses.fields(kind)}
    fields |= set(getattr(kind, "attribute_map", {}))
    given = {name: size for name, size in SIZES.items() if name in fields}
    if "kv_lora_rank" in fields:  # keys of all heads come from one
        given["num_key_value_heads"] = SIZES["num_attention_heads"]
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


def parts_of_llava() -> dict:
    """The configurations of its text and its images."""
    hf = library("transformers")
    images = {"image_size": 32, "patch_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4}
    seen = hf.CLIPVisionConfig(hidden_size=64, intermediate_size=128, **images)
    return {"text_config": config_of(hf.LlamaConfig), "vision_config": seen, "image_token_index": 0}


def build(name: str, implementation: str = "eager"):
    """A tiny random model in evaluation, with logits wide enough to tell keys apart.

    Raises:
        MemoryError: it is not tiny.
    """
    torch = library("torch")
    kind, model_class = class_of(name)
    own = parts_of_llava() if name == "llava" else OWN.get(name, {})
    config = config_of(kind, **own)
    config._attn_implementation = implementation
    with torch.device("meta"):
        count = sum(x.numel() for x in model_class(config).parameters())
    if count > LARGEST:
        raise MemoryError(f"{count} parameters")
    torch.manual_seed(0)
    config = config_of(kind, **own)
    config._attn_implementation = implementation
    model = model_class(config).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data *= 1 if name.startswith(WIDE) else 3
    return model


SMALL = dict(
    vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, bos_token_id=0, eos_token_id=1, pad_token_id=2,
)  # fmt: skip


def small_model(kind: str, implementation: str = "eager"):
    """A random model of one of seven kinds in evaluation, with wide logits."""
    torch, hf = library("torch"), library("transformers")
    torch.manual_seed(0)
    of_gpt = {"vocab_size": 100, "n_layer": 2, "n_head": 4}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 8}
    capped = {"head_dim": 16, "attn_logit_softcapping": 3.0, "sliding_window": 16}
    made, own = {
        "llama": (hf.LlamaForCausalLM, SMALL),
        "gpt2": (hf.GPT2LMHeadModel, of_gpt | {"n_embd": 64, "bos_token_id": 0, "eos_token_id": 1}),
        "mistral": (hf.MistralForCausalLM, SMALL | {"sliding_window": 8}),
        "bert": (hf.BertModel, {key: SMALL[key] for key in (*list(SMALL)[:5], "pad_token_id")}),
        "gemma2": (hf.Gemma2ForCausalLM, SMALL | capped),
        "gpt_oss": (hf.GptOssForCausalLM, SMALL | experts | {"head_dim": 16}),  # learned sinks
        "bloom": (hf.BloomForCausalLM, of_gpt | {"hidden_size": 64}),
    }[kind]
    model = made(made.config_class(**own))
    model.set_attn_implementation(implementation)
    for name, parameter in model.named_parameters():
        parameter.data *= 90 if kind == "gemma2" and "q_proj" in name else 3  # a cap that is felt
    return model.eval()


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
            with quiet():
                model = build(name, implementation)
            ids = ids_of(model)
        except Exception as error:  # noqa: BLE001  # whatever the code of a model raises
            model, ids = error, np.empty(0, int)
        yield name, model, ids
        del model
        gc.collect(1)  # a whole one takes as long as the model


@contextlib.contextmanager
def quiet():
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def with_eager_attention(model):
    """The model, told to attend eagerly; or its copy, built so.

    Where a model cannot be told, what it returns as weights after a change is not what it attends
    with.
    """
    if model._can_set_attn_implementation():
        model.set_attn_implementation("eager")
        return model
    config, parameters = copy.deepcopy(model.config), model.state_dict()
    built = type(model)._from_config(config, attn_implementation="eager").eval()
    built.load_state_dict(parameters)
    return built


def own_weights(model, ids) -> list[np.ndarray]:
    """What the model's own eager attention gives as its weights, [heads, T, T] in each layer.

    They are what it returns as attentions; where it puts something else there, or nothing, what
    the function `eager_attention_forward` of its file returns.
    """
    torch = library("torch")
    seen, file = [], sys.modules[type(model).__module__]
    function: Any = getattr(file, "eager_attention_forward", None)

    def noted(*given, **more):
        out = function(*given, **more)
        seen.append(out[1])
        return out

    if function is not None:
        file.eager_attention_forward = noted
    model = with_eager_attention(model)
    text = {"input_ids": torch.as_tensor(ids)[None], "use_cache": False}
    try:
        with torch.no_grad():
            try:
                out = model(**text, output_attentions=True)
            except IndexError:  # a decoder of T5's kind that has no text of an encoder to look at
                seen.clear()
                out = model(**text)
    finally:
        if function is not None:
            file.eager_attention_forward = function
    found = [x for x in out.get("attentions") or () if x is not None]
    if not found or not all(x.shape[2:] == (len(ids), len(ids)) for x in found):
        found = seen or found
    if not found:
        raise LookupError("gives no weights")
    return [x[0].double().numpy() for x in found]


def distance(data, weights) -> float:
    """The largest relative deviation of n, n_eff and S of any row from the model's own weights."""
    if data.sizes["layer"] != len(weights):
        return np.inf
    worst = 0.0
    for layer, a in enumerate(weights):
        if data.S[layer].shape != a.shape[:2]:
            return np.inf
        worst = max(worst, _deviation(data.isel(layer=layer), a))
    return worst


def _deviation(layer, a) -> float:
    """The same of a layer of weights [heads, rows, keys].

    A weight may be 0 in single precision; of all heads at once it is not.
    """
    seen = (a > 0).any(0)
    n = np.broadcast_to(seen.sum(-1), a.shape[:-1])
    some = n > 0
    found = [np.broadcast_to(layer[x].values, n.shape) for x in ("length", "n_eff", "S")]
    if not (found[0][~some] == 0).all() or not np.isnan(found[1][~some]).all():
        return np.inf  # a row that sees no key has no figures
    a, n = a[some], n[some]
    n_eff = (a.sum(-1) / np.sqrt((a * a).sum(-1))) ** 2
    off = np.stack([x[some] for x in found]) / np.stack([n, n_eff, np.sqrt(n_eff / n)])
    off = np.abs(off - 1)
    return np.inf if np.isnan(off).any() else float(off.max())


def judge(name: str, model, ids) -> tuple[str, str]:
    """(verdict, why): equal, refused, wrong, error, untold (no weights to hold it against)."""
    if isinstance(model, Exception):
        return "not built", f"{type(model).__name__}: {model}"
    with quiet():
        try:
            data = measure_transformers(model, ids)
        except InputError as refusal:
            return "refused", str(refusal)
        except Exception as error:  # noqa: BLE001
            return "error", f"{type(error).__name__}: {error}"
        try:
            weights = own_weights(model, ids)
        except Exception as error:  # noqa: BLE001
            return "untold", f"{type(error).__name__}: {error}"
    off = distance(data, weights)
    narrow = float(data.S.min())
    return ("equal" if off < TOLERANCE else "wrong"), f"{off:.1e}, least S {narrow:.2f}"
