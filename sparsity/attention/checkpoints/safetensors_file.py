"""Llama models in safetensors files, with config.json and tokenizer.json beside them.

What is plain is what `LlamaForCausalLM` of transformers computes from these files. The settings
have no list of their own: config.json may hold anything, so that names are sorted by the words in
them into those of the forward pass, which must be known here, and others, which do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.attention.checkpoints.checkpoint import (
    ONLY_PLAIN,
    Checkpoint,
    Metadata,
    library,
    refusal,
)
from sparsity.attention.checkpoints.tokens import from_file
from sparsity.attention.settings import Rotation, scaling_rule, yarn_amplitude
from sparsity.errors import InputError, printable
from sparsity.output import require_regular_file
from sparsity.reading import json_file
from sparsity.rows import rope_planes

_OUTER = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
# Buffers of older files: the angles of RoPE, which follow from `rope_theta`.
_INV_FREQ = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")

_SIZES = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "dim": "hidden_size",
    "head_dim": "head_dim",
    "inner": "intermediate_size",
    "context": "max_position_embeddings",
    "eps": "rms_norm_eps",
    "bos": "bos_token_id",
}
_LLAMA3 = ("low_freq_factor", "high_freq_factor")
_YARN = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
_TRAINED = "original_max_position_embeddings"
_SETTINGS_OF_RULE = {  # the settings that each rule of RoPE's angles has
    "default": ("factor", *_LLAMA3, _TRAINED),  # older files keep them, without effect
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", *_LLAMA3, _TRAINED),
    "yarn": ("factor", *_YARN, "truncate", _TRAINED),
}
_TYPES = ("F64", "F32", "F16", "BF16")  # others hold quantised weights, whose scales lie elsewhere
_SINGLE = "model.safetensors"
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")

# Settings whose names sound like the forward pass and that a plain Llama may have: they are read
# or checked here, or leave attention as it is. None and False do so too, of any name.
_PLAIN = {
    "_attn_implementation", "_attn_implementation_internal", "_attn_implementation_autoset",
    "attn_implementation", "attention_dropout", "output_attentions", "output_hidden_states",
    "is_decoder", "rope_parameters", "rope_scaling", "rope_theta", "attention_bias", "mlp_bias",
    "partial_rotary_factor", "quantization_config", "layer_types", "is_causal", "pruned_heads",
    "original_max_position_embeddings", "max_window_layers",
}  # fmt: skip
_WORDS_OF_THE_PASS = re.compile(  # words in the names of settings that other families compute with
    "attn|attention|rope|rotary|position|window|softcap|cap$|scal|multiplier|norm|bias|expert|moe"
    "|alibi|qk|sink|clip|chunk|residual|parallel|causal|directional|layer|skip|adapter|lora|prun"
    "|sparse|mask|head|quant|yarn"
)
_SETTINGS_OF_ROPE = ("rope_theta", "rope_type", "type", "partial_rotary_factor")


def _metadata(path: Path, content: Any) -> Metadata:
    if not isinstance(content, dict):
        raise InputError("model", path, "does not have the structure expected; download it again")
    return Metadata(path, content)


def _read_json(path: Path) -> Any:
    try:
        return json_file(require_regular_file(path, "model"))
    except InputError:  # which is a ValueError too
        raise
    except (OSError, ValueError) as error:
        raise refusal(path, error) from None


def _refuse_unread(given: Metadata) -> None:
    """Refuse settings of other families, which the forward pass would not honour."""
    given("model_type")  # it must be there
    given.one_of("model_type", "llama")
    given.one_of("hidden_act", "silu")
    given.one_of("quantization_config", None)
    given.one_of("is_causal", True)
    given.one_of("pruned_heads", {}, None)
    for name in ("attention_bias", "mlp_bias"):
        given.one_of(name, False)
    kinds = given("layer_types", None)
    plain = kinds is None or (
        isinstance(kinds, list) and set(map(str, kinds)) == {"full_attention"}
    )
    if not plain:
        raise given.refuse("layer_types", kinds, ONLY_PLAIN)
    known = {*_SIZES.values(), *_PLAIN}
    for name, value in given.content.items():
        plain = value is None or value is False or name in known
        if not plain and _WORDS_OF_THE_PASS.search(name.lower()):
            raise given.refuse(name, value, ONLY_PLAIN)


def _rotation(given: Metadata) -> Callable[[int, int], Rotation]:
    """Return the rotary position embedding by (head_dim, context), from the settings of RoPE.

    They stand in `rope_parameters` (transformers from 5.0 on), in `rope_scaling`, or in both, as
    files do that serve both; the base may stand there or beside them.

    Raises:
        InputError: another rule than those of `_SETTINGS_OF_RULE`, a setting that its rule does not
            have, or rotation of a part of a head: the Llama of transformers turns whole heads under
            the default rule, whatever the file says, and fails under the others.
    """
    names = ("rope_parameters", "rope_scaling")
    said = [(name, x) for name in names if (x := given(name, None)) not in (None, {})]
    if len(said) > 1 and said[0][1] != said[1][1]:
        raise given.refuse(*said[1], f"its {said[0][0]} says otherwise; remove one")
    rope = said[0][1] if said else {}
    inner = _metadata(given.path, rope)
    for each in (given, inner):
        each.one_of("partial_rotary_factor", None, 1, 1.0)
    kind = inner("rope_type", inner("type", "default"))
    if not isinstance(kind, str) or kind not in _SETTINGS_OF_RULE:
        raise inner.refuse("rope_type", kind, ONLY_PLAIN)
    # A setting that the rule does not have shows that another one may be meant: it is refused
    # rather than ignored.
    set_here = {name for name, value in rope.items() if value is not None}
    if others := sorted(set_here.difference(_SETTINGS_OF_ROPE, _SETTINGS_OF_RULE[kind])):
        raise inner.refuse(others[0], rope[others[0]], ONLY_PLAIN)
    if kind == "default":
        inner.one_of("factor", None, 1, 1.0)
    if kind == "yarn":
        inner.one_of("truncate", True, False)

    def rotation(head_dim: int, context: int) -> Rotation:
        base = (inner if "rope_theta" in rope else given).real("rope_theta", rope_planes.BASE, 1.0)
        if kind == "default":
            return Rotation(base, head_dim)
        needed = ("factor", *(_LLAMA3 if kind == "llama3" else ()))
        numbers: dict[str, Any] = {name: inner.real(name) for name in needed}
        numbers |= {name: inner.real(name) for name in _YARN if rope.get(name) is not None}
        numbers["truncate"] = inner("truncate", True)
        scaling = scaling_rule(kind, numbers, _trained(given, inner, kind, context))
        grows = yarn_amplitude(numbers, numbers["factor"]) if kind == "yarn" else 1.0
        return Rotation(base, head_dim, scaling, grows)

    return rotation


def _trained(given: Metadata, inner: Metadata, kind: str, context: int) -> int:
    """Return the trained length of a rule; where none is given that of the model."""
    if kind == "dynamic":  # it takes the longest text of the model, whatever else is given
        return context
    outer, own = (each(_TRAINED, None) for each in (given, inner))
    if None not in (outer, own) and outer != own:
        raise given.refuse(_TRAINED, outer, "its settings of RoPE say otherwise; remove one")
    return inner.whole(_TRAINED, None) or given.whole(_TRAINED, None) or context


def _read_index(path: Path) -> dict[str, str]:
    """Return the file of each tensor from an index."""
    content = _read_json(path)
    found = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(found, dict) or not found:
        raise InputError("model", path, "maps no weights to files; download it again")
    for file in found.values():
        # A path would read a file from anywhere.
        plain = isinstance(file, str) and file.isprintable() and len(file) < 256
        if not plain or Path(file).name != file:
            raise InputError("model", path, f"names no file beside it: {file!s:.60}")
    return found


def _files(path: Path) -> tuple[list[Path], dict[str, str] | None]:
    """Return the files of the weights, and which of them holds each tensor, by the index if any.

    In a folder these are all files of the index; without one, model.safetensors alone, as in
    transformers; or else all parts of a model, whose names say how many there are.

    Raises:
        InputError: a part is missing, or not all files are of one model.
    """
    if not path.is_dir():
        if (part := _PART.fullmatch(path.name)) and int(part[3]) > 1:
            fix = f"is one of the {int(part[3])} files of a model; give their folder"
            raise InputError("model", path, fix)
        return [path], None
    single, index, mapped = path / _SINGLE, path / f"{_SINGLE}.index.json", None
    if index.exists():
        mapped = _read_index(index)
        names = sorted(set(mapped.values()))
        if single.exists() and _SINGLE not in names:
            fix = f"has {_SINGLE} and an index of other files, and one is stale; remove it"
            raise InputError("model", path, fix)
    elif single.exists():
        names = [_SINGLE]
    else:
        names = sorted(x.name for x in path.glob("*.safetensors"))
        parts = [_PART.fullmatch(name) for name in names]
        if not names:
            raise InputError("model", path, "has no safetensors file; give the folder that has it")
        if all(parts) and len({(part[1], part[3]) for part in parts if part}) == 1:
            stem, _, count = parts[0].groups()  # type: ignore[union-attr]
            names = [f"{stem}-{i:05}-of-{count}.safetensors" for i in range(1, int(count) + 1)]
        elif len(names) > 1:
            fix = "has several safetensors files that are no parts of one; give one of them"
            raise InputError("model", path, fix)
    for name in names:
        if not (path / name).exists():
            raise InputError("model", path, f"lacks its file {name}; give a complete model")
    return [path / name for name in names], mapped


def _tensors(
    safetensors: Any, path: Path, files: list[Path], mapped: dict[str, str] | None
) -> dict[str, Any]:
    """Return the opened file and the shape of each tensor, by its name.

    The framework is flax because that of NumPy has no bfloat16.

    Raises:
        InputError: a damaged file, quantised weights, or files and index that disagree.
    """
    found: dict[str, Any] = {}
    for file in files:
        try:
            opened = safetensors.safe_open(require_regular_file(file, "model"), framework="flax")
            parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        except (OSError, safetensors.SafetensorError) as error:
            raise refusal(file, error) from None
        for name, part in parts.items():
            if part.get_dtype() not in _TYPES:
                fix = f"stores {name:.60} as {part.get_dtype()}"
                fix += "; quantised weights are read from GGUF only"
                raise InputError("model", file, fix)
            if name in found or (mapped is not None and mapped.get(name) != file.name):
                fix = f"its files and its index disagree on {name:.60}; download it again"
                raise InputError("model", path, fix)
            found[name] = opened, tuple(part.get_shape())
    if mapped is not None and (lost := sorted(mapped.keys() - found.keys())):
        fix = f"lacks {lost[0]:.60} in {mapped[lost[0]]}, where its index has it"
        raise InputError("model", path, f"{fix}; download it again")
    return found


def load(path: Path) -> Checkpoint:
    """Open a safetensors file, or a folder of them.

    Raises:
        InputError: cut short, without its config.json or tokenizer.json, of another kind, or with
            sizes that its tensors do not have.
    """
    safetensors = library("safetensors")
    home = path if path.is_dir() else path.parent
    files, mapped = _files(path)
    if (home / "adapter_config.json").exists():
        fix = "has an adapter (adapter_config.json), which is not read; give the merged model"
        raise InputError("model", home, fix)
    settings, tokenizer = home / "config.json", home / "tokenizer.json"
    given = _metadata(settings, _read_json(settings))
    _refuse_unread(given)
    rotation = _rotation(given)
    tensors = _tensors(safetensors, path, files, mapped)

    def full_name(name: str, layer: int | None) -> str:
        own = _OUTER[name] if layer is None else f"model.layers.{layer}.{_LAYER[name]}"
        return f"{own}.weight"

    # A head that is stored is the head, as in transformers from 5.0 on.
    stored_head = full_name("head", None) in tensors
    config = given.read_config(
        _SIZES,
        vocabulary=given.whole("vocab_size"),
        tied=given.one_of("tie_word_embeddings", False, True) and not stored_head,
        rotation=rotation,
        full_name=full_name,
        shapes={name: shape for name, (_, shape) in tensors.items()},
        unread=filter(_INV_FREQ.fullmatch, tensors),
    )

    def read(name: str, layer: int | None) -> np.ndarray:
        key = full_name(name, layer)
        return np.asarray(tensors[key][0].get_tensor(key).astype("float32"))

    name = printable(str(given("_name_or_path", None) or home.name), 100)
    read_from = (*files, settings, tokenizer)
    return Checkpoint(path, read_from, name, config, read, from_file(tokenizer))
