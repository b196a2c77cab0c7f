"""What the families of models do with scores beside what their fields say: a record for each.

A configuration has numbers; what is done with them stands in the family's code. Each record was
read from it: the classes of `transformers`, or the code that models ship with. A family without a
record is described by its fields, and no law is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparsity.attention.fields import LISTS, Fields
from sparsity.errors import InputError

# What q·k is multiplied by: of the fields, the entries of a head, and the layer.
Scale = Callable[[Fields, int, int], float]


def by_head(fields: Fields, head_dim: int, layer: int) -> float:
    """Return 1/√d."""
    return head_dim**-0.5


def unscaled(fields: Fields, head_dim: int, layer: int) -> float:
    """Return 1: q·k is not divided."""
    return 1.0


def by_half_head(fields: Fields, head_dim: int, layer: int) -> float:
    """Return (d/2)^(−½): inputs are concatenated with the embeddings."""
    return (head_dim / 2) ** -0.5


def by_query_scalar(fields: Fields, head_dim: int, layer: int) -> float:
    """Return 1/√`query_pre_attn_scalar`."""
    return fields.need("query_pre_attn_scalar") ** -0.5


def by_multiplier(fields: Fields, head_dim: int, layer: int) -> float:
    """Return `attention_multiplier`."""
    return fields.need("attention_multiplier")


def with_key_multiplier(fields: Fields, head_dim: int, layer: int) -> float:
    """Return 1/√d times `key_multiplier`."""
    return fields.get("key_multiplier", 1.0) * head_dim**-0.5


def with_latent_gains(fields: Fields, head_dim: int, layer: int) -> float:
    """Return 1/√d times the gain of queries, √(width/rank)."""
    return (fields.need("hidden_size") / fields.need("q_lora_rank")) ** 0.5 * head_dim**-0.5


def of_gpt2(fields: Fields, head_dim: int, layer: int) -> float:
    """Return 1/√d, or 1; divided by the layer's number from 1 on, if a field says so."""
    scale = head_dim**-0.5 if fields.get("scale_attn_weights", True) else 1.0
    return scale / (layer + 1) if fields.get("scale_attn_by_inverse_layer_idx") else scale


def of_mpt(fields: Fields, head_dim: int, layer: int) -> float:
    """Return `softmax_scale`, or 1/√d."""
    return fields.get("softmax_scale", head_dim**-0.5)


def by_terms(fields: Fields, head_dim: int, layer: int) -> float:
    """Return 1/√(t·d), t the terms that scores are sums of: two may be of relative positions."""
    terms = 1 + sum(kind in fields.get("pos_att_type", "") for kind in ("c2p", "p2c"))
    return (terms * head_dim) ** -0.5


@dataclass(frozen=True)
class Family:
    """What a family does with scores.

    Args:
        types: its `model_type`s.
        scale: what q·k is multiplied by.
        norm: "heads" if queries and keys of every head are normalised by themselves, "turned heads"
            if after RoPE, whose temperature is then lost, "joint" if those of all heads together.
        norm_if: the field that switches this on; empty for always.
        positions: "RoPE", "ALiBi", or in words, "learned positions".
        turning: the layers that RoPE turns: "all", those in "windows", or a field that says so.
        sliding: the layers with a window: by "types", or "all" where a window is set.
        both: whether a token sees those after it, unless fields say otherwise: half of a window is
            on either side.
        cap: the field of a soft cap on scores.
        tuned: the temperature: "llama4", "ministral", or the field of log-n scaling's length.
        sinks: which layers have learned sink logits: "all", or those in "windows".
        latent: whether the scale has the square of m(mscale_all_dim), as DeepSeek's models do.
        base: of RoPE, where no field has it.
        layers: the field that counts its layers.
        ignored: fields of its files that its code does not use.
        attends: whether it has attention at all.
        fill: the type whose class of transformers fills in what a file leaves out.
        note: what the row does not hold, in words.
        weights: why the weights are no softmax of a row, in words: no law is given.
    """

    types: str
    scale: Scale = by_head
    norm: str = ""
    norm_if: str = ""
    positions: str = "RoPE"
    turning: str = "all"
    sliding: str = "types"
    both: bool = False
    cap: str = ""
    tuned: str = ""
    sinks: str = ""
    latent: bool = False
    base: float | None = None
    layers: str = "num_hidden_layers"
    ignored: str = ""
    attends: bool = True
    fill: str = ""
    note: str = ""
    weights: str = ""


@dataclass(frozen=True)
class Model:
    """A configuration as it was read.

    Args:
        type: its `model_type`.
        family: what its code does; an empty record where it is not known.
        fields: with what the class filled in.
        source: who filled them in, in words.
        lawless: why no law can be given; empty where one can.
        notes: of the reading.
    """

    type: str
    family: Family
    fields: Fields
    source: str
    lawless: str
    notes: tuple[str, ...] = ()

    @property
    def context(self) -> int | None:
        """The longest row that the model takes, of pictures their patches and a token; or None."""
        picture, patch = self.fields.get("image_size"), self.fields.get("patch_size")
        if picture and patch:
            return (picture // patch) ** 2 + 1
        return self.fields.get("max_position_embeddings")

    @property
    def layer_types(self) -> list[str]:
        """The type of every layer, as the field of that name names them.

        Raises:
            InputError: a list that does not name every layer.
        """
        listed = next((self.fields.get(x) for x in LISTS if self.fields.get(x)), None)
        count = self.fields.need(self.family.layers)
        if listed is not None and len(listed) != count:
            raise InputError("layer_types", len(listed), f"must name all {count} layers")
        return listed or ["full_attention" if self.family.attends else "recurrent"] * count


_LEARNED, _NOWHERE = "learned positions", "no positions"
_ONE_SIDE_MAMBA = "beside the attention of a layer stands a state-space model: not in the row"
# fmt: off
FAMILIES = (
    # RoPE in every layer, scores q·k/√d
    Family("llama arcee aria_text bitnet emu3_text_model ernie4_5 ernie4_5_moe exaone gemma glm "
           "glm4 helium internlm3 iquestcoder jais2 nemotron olmo seed_oss solar_open cwm dbrx "
           "gpt_neox_japanese qwen2 qwen2_moe ministral csm smollm3 qwen2_vl_text qwen2_5_vl_text "
           "bamba modernbert-decoder"),
    Family("internlm2 deepseek", fill="llama"),
    Family("eurobert modernbert", both=True),
    Family("mistral mixtral starcoder2 phi3 minimax recurrent_gemma", sliding="all"),
    Family("minimax_text_01", sliding="all", fill="minimax", ignored="attn_type_list"),
    Family("gptj codegen gpt_neox", base=1e4, ignored="rotary scale_attn_weights"),
    Family("qwen", tuned="seq_length", fill="llama"),
    Family("gpt_oss", sinks="all"),
    Family("mimo_v2_flash", sinks="windows"),
    # RoPE in some layers
    Family("cohere2", turning="windows"),
    Family("llama4_text", norm="turned heads", norm_if="use_qk_norm", tuned="llama4"),
    Family("exaone4 exaone_moe afmoe", norm="heads", turning="windows"),
    Family("ministral3", sliding="all", tuned="ministral"),
    # normalised queries and keys
    Family("hunyuan_v1_dense hunyuan_v1_moe nanochat", norm="turned heads", ignored="use_qk_norm"),
    Family("qwen3 dots1 hy_v3 mellum lfm2 qwen3_next qwen3_5_text qwen3_5_moe_text qwen3_vl_text "
           "qwen3_vl_moe_text", norm="heads"),
    Family("apertus", norm="heads", ignored="qk_norm"),
    Family("qwen3_moe", norm="heads", sliding="all"),
    Family("glm4_moe cohere sarvam_moe", norm="heads", norm_if="use_qk_norm"),
    Family("phi persimmon stablelm", norm="heads", norm_if="qk_layernorm"),
    Family("olmo2 olmo3 olmo_hybrid flex_olmo minimax_m2 olmoe", norm="joint"),
    Family("gemma3_text", by_query_scalar, norm="heads"),
    Family("gemma3n_text", unscaled, norm="heads", ignored="query_pre_attn_scalar"),
    # a scale of their own
    Family("gemma2 vaultgemma", by_query_scalar, cap="attn_logit_softcapping",
           ignored="sliding_window_size"),
    Family("granite granitemoe granitemoeshared hyperclovax", by_multiplier),
    # latent attention
    Family("deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa youtu minicpm3 axk1 "
           "sarvam_mla", latent=True),
    Family("kimi_k2", latent=True, fill="deepseek_v3"),
    Family("mistral4", latent=True, tuned="ministral"),
    Family("longcat_flash", with_latent_gains, latent=True, layers="num_layers",
           ignored="mla_scale_q_lora mla_scale_kv_lora",
           note="two blocks of attention a layer; keys without RoPE are also multiplied by "
                "√(width/rank), which the scale does not have"),
    Family("kimi_linear", positions=_NOWHERE, ignored="mla_use_nope"),
    # layers of other kinds among those of attention
    Family("jamba nemotron_h", positions=_NOWHERE),
    Family("falcon_h1", with_key_multiplier, note=_ONE_SIDE_MAMBA),
    Family("granitemoehybrid", by_multiplier, turning="position_embedding_type"),
    Family("zamba", by_half_head, positions=_NOWHERE),
    Family("zamba2", by_half_head, turning="use_mem_rope", ignored="attention_hidden_size"),
    Family("mamba mamba2 falcon_mamba rwkv xlstm fnet", attends=False),
    # biases and positions that are learned
    Family("bloom", positions="ALiBi"),
    Family("mpt", of_mpt, positions="learned positions or ALiBi"),
    Family("falcon", positions="RoPE or ALiBi"),
    Family("gpt2 gpt-sw3 gpt_bigcode", of_gpt2, positions=_LEARNED),
    Family("gpt_neo", unscaled, positions=_LEARNED),
    Family("opt biogpt openai-gpt clip_text_model", positions=_LEARNED),
    Family("xglm ctrl", positions="sinusoids"),
    Family("bert roberta xlm-roberta xlm-roberta-xl camembert electra ernie distilbert albert "
           "data2vec-text roberta-prelayernorm megatron-bert layoutlm vit deit",
           positions=_LEARNED, both=True),
    Family("deberta-v2 deberta", by_terms, positions="relative positions", both=True,
           note="scores may have terms of learned relative positions: γ is that of the sum"),
    # weights that are no softmax of a row
    Family("diffllama", weights="differential attention: a difference of two softmaxes"),
    Family("doge", weights="dynamic masks: a learned gate picks the keys"),
    Family("deepseek_v4", weights="compressed attention: keys are pooled over blocks"),
    Family("big_bird bigbird_pegasus", weights="block-sparse attention with random blocks"),
    Family("longformer led", weights="windows with global tokens"),
    Family("reformer", weights="hashed attention"),
    Family("minimax_m3_vl_text qwen4_exp_text", weights="block-sparse attention by an indexer"),
    Family("nystromformer yoso mra", weights="an approximation of softmax"),
    Family("xlnet", weights="relative attention in two streams"),
)
# fmt: on
UNKNOWN = Family("")  # the record of a family that is not here
BY_TYPE = {name: family for family in FAMILIES for name in family.types.split()}
# Fields that only the code of these types reads, and fields that all but theirs reads.
_READ_BY = {
    "partial_rotary_factor": "bamba glm glm4 glm4_moe gpt_neox gpt_neox_japanese mellum "
    "mimo_v2_flash minimax_m2 nemotron persimmon phi phi3 qwen3_5_text qwen3_5_moe_text qwen3_next "
    "recurrent_gemma sarvam_moe solar_open stablelm",
    "alpha": "hunyuan_v1_dense hunyuan_v1_moe",
    "clip_qkv": "olmo dbrx olmoe mpt",
}
_PASSED_BY = {
    "head_dim": "gptj codegen gpt_neox bloom mpt gpt2 gpt-sw3 gpt_bigcode gpt_neo opt biogpt "
    "openai-gpt clip_text_model xglm ctrl bert roberta xlm-roberta xlm-roberta-xl camembert "
    "electra ernie distilbert albert data2vec-text roberta-prelayernorm megatron-bert layoutlm "
    "deberta-v2 deberta",
    "is_causal": "openai-gpt gpt_neo",
    "use_bidirectional_attention": "gemma gemma2",  # of eager attention; others may see both ways
}


def passed_over(kind: str) -> frozenset[str]:
    """Return the fields that the code of a type does not read, whatever its class has."""
    unread = {field for field, kinds in _READ_BY.items() if kind not in kinds.split()}
    return frozenset(unread.union(x for x, kinds in _PASSED_BY.items() if kind in kinds.split()))
