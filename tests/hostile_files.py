"""Files that lie about themselves, made from the tiny models: each is refused in one line, or read.

`variants(home)` makes them under a folder. Each comes with the command that reads it, and
with what is to come of it: "refused", "read" with the base model's own numbers, or "either" where a
byte was changed at random.
"""

import base64
import copy
import itertools
import json
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tiny_model

TEXT = "the hand and the band, 1212 times: the end. " * 6
TOKENS = 24

HUGE = [0, 2**31 - 1, 2**32 - 1, 2**53, 2**63 - 1]  # counts and sizes that no file here has
U32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = 4, 6, 7, 8, 9, 10, 11, 12
_CHARS = {0: "B", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True)
class Variant:
    """One crafted file.

    Args:
        name: kind and what is wrong, such as "gguf/block_count=0".
        arguments: of the command that reads it.
        outcome: "refused", "read" or "either".
    """

    name: str
    arguments: tuple[str, ...]
    outcome: str = "refused"


@dataclass
class Tensor:
    """One entry of the list of tensors of a GGUF file."""

    name: bytes
    dims: list[int]
    kind: int
    offset: int
    count: int | None = None  # of dimensions, where another is declared


def _string(text: bytes, declared: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if declared is None else declared) + text


def _value(kind: int, value) -> bytes:
    """A value of a GGUF file; bytes are taken as they are."""
    if isinstance(value, bytes):
        return value
    if kind == STRING:
        return _string(value.encode())
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(_value(inner, x) for x in items)
    return struct.pack("<" + _CHARS[kind], value)


@dataclass
class Gguf:
    """A GGUF file in parts that can be changed one by one."""

    fields: dict[bytes, tuple[int, Any]]
    tensors: list[Tensor]
    data: bytes
    magic: bytes = b"GGUF"
    version: int = 3
    counts: tuple[int, int] | None = None  # of tensors and of fields, where others are declared
    order: str = "<"

    def parts(self) -> list[bytes]:
        """The file between its structural boundaries."""
        tensors, fields = self.counts or (len(self.tensors), len(self.fields))
        found = [self.magic, struct.pack("<I", self.version), struct.pack("<QQ", tensors, fields)]
        for name, (kind, value) in self.fields.items():
            found += [_string(name), struct.pack("<I", kind), _value(kind, value)]
        for x in self.tensors:
            count = len(x.dims) if x.count is None else x.count
            dims = b"".join(struct.pack("<Q", d % 2**64) for d in x.dims)
            found += [_string(x.name), struct.pack("<I", count), dims]
            found += [struct.pack("<IQ", x.kind, x.offset)]
        size = sum(map(len, found))
        return [*found, b"\0" * (-size % 32), self.data]

    def bytes(self) -> bytes:
        """The whole file."""
        return b"".join(self.parts())


def base_gguf() -> Gguf:
    """The tiny model."""
    s, (tokens, merges) = tiny_model.SIZES, tiny_model.vocabulary()
    fields = {
        "general.architecture": (STRING, "llama"),
        "general.name": (STRING, "tiny"),
        "llama.context_length": (U32, s["context"]),
        "llama.embedding_length": (U32, s["dim"]),
        "llama.block_count": (U32, s["layers"]),
        "llama.feed_forward_length": (U32, s["inner"]),
        "llama.attention.head_count": (U32, s["heads"]),
        "llama.attention.head_count_kv": (U32, s["kv"]),
        "llama.attention.layer_norm_rms_epsilon": (F32, tiny_model.EPS),
        "llama.rope.freq_base": (F32, tiny_model.BASE),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "smollm"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)),
        "tokenizer.ggml.token_type": (ARRAY, (5, [tiny_model.KINDS.get(x, 1) for x in tokens])),
        "tokenizer.ggml.merges": (ARRAY, (STRING, [" ".join(pair) for pair in merges])),
        "tokenizer.ggml.bos_token_id": (U32, 0),
    }
    tensors, data = [], b""
    for (name, layer), w in tiny_model.weights().items():
        if name in "qk":
            w = tiny_model.side_by_side(w, s["heads"] if name == "q" else s["kv"])
        full = tiny_model._GGUF[name] if layer is None else f"blk.{layer}.{tiny_model._GGUF[name]}"
        tensors.append(Tensor(f"{full}.weight".encode(), list(w.shape[::-1]), 0, len(data)))
        data += w.tobytes()
    return Gguf({k.encode(): v for k, v in fields.items()}, tensors, data)


def _gguf() -> Iterator[tuple[str, bytes, str]]:
    """(name, content, outcome) of each crafted GGUF file."""
    base = base_gguf()
    at = {x.name.decode(): i for i, x in enumerate(base.tensors)}

    def made(outcome="refused", fields=None, tensor=None, **changes):
        new = copy.deepcopy(base)
        for key, value in (fields or {}).items():
            new.fields[key if isinstance(key, bytes) else key.encode()] = value
        new.fields = {key: value for key, value in new.fields.items() if value is not None}
        if tensor:
            name, own = tensor
            for key, value in own.items():
                setattr(new.tensors[at[name]], key, value)
        for key, value in changes.items():
            setattr(new, key, value)
        return new.bytes(), outcome

    yield "base", *made("read")
    sizes = [
        "llama.block_count", "llama.attention.head_count", "llama.attention.head_count_kv",
        "llama.embedding_length", "llama.feed_forward_length", "llama.attention.key_length",
        "llama.attention.value_length", "llama.rope.dimension_count", "llama.vocab_size",
    ]  # fmt: skip
    for name in sizes:
        wrong = [(U64, x) for x in [*HUGE, 2**64 - 1, 3]]
        wrong += [(I64, -1), (F64, 1e30), (F32, float("nan")), (STRING, "2"), (BOOL, 1)]
        wrong += [(ARRAY, (U32, [2, 2]))]
        for kind, value in wrong:
            yield f"{name}:{kind}={value!s:.24}", *made(fields={name: (kind, value)})
    for value in (2**31 - 1, 2**53, 2**63 - 1):  # a promise that takes nothing
        yield f"context={value}", *made("read", {"llama.context_length": (U64, value)})
    for value in (0, 4, 2**64 - 1):
        yield f"context={value}", *made("refused" if value < 9 else "read",
                                        {"llama.context_length": (U64, value)})  # fmt: skip
    for name in ("llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"):
        for value in (float("nan"), float("inf"), -1.0, 0.0):
            yield f"{name}={value}", *made(fields={name: (F64, value)})
        yield f"{name} text", *made(fields={name: (STRING, "1e-5")})
    for value in (300, 2**32 - 1, 2**64 - 1):
        yield f"bos={value}", *made(fields={"tokenizer.ggml.bos_token_id": (U64, value)})
    for name, kind, value in (
        ("llama.rope.scale_linear", F32, 0.5), ("llama.rope.scaling.factor", F32, float("nan")),
        ("llama.rope.scaling.factor", STRING, "4"), ("llama.rope.scaling.factor", F32, -0.5),
        ("llama.rope.scaling.type", STRING, "longrope"), ("llama.rope.scaling.type", U32, 1),
        ("llama.rope.scaling.type", ARRAY, (STRING, ["yarn"])), ("llama.rope.unheard_of", U32, 1),
        ("llama.rope.scaling.original_context_length", F32, 32.0),
        ("llama.rope.scaling.yarn_beta_fast", F32, 8.0),
        ("llama.rope.scaling.yarn_log_multiplier", F32, 0.1),
        ("llama.rope.scaling.attn_factor", F32, -2.0),
        ("split.count", 4, 3), ("split.count", 10, 2), ("split.count", STRING, "2"),
        ("llama.attention.sliding_window", U32, 16),
        ("llama.attention.clamp_kqv", F32, 8.0), ("llama.logit_scale", F32, 0.5),
        ("llama.attention.scale", F32, 0.1), ("llama.attn_logit_softcapping", F32, 50.0),
        ("llama.attention.causal", BOOL, 0), ("llama.expert_count", U32, 8),
        ("llama.residual_scale", F32, 0.5), ("llama.embedding_scale", F32, 12.0),
        ("llama.attention.max_alibi_bias", F32, 8.0), ("llama.unheard_of", U32, 1),
        ("llama.use_parallel_residual", BOOL, 1), ("general.type", STRING, "adapter"),
    ):  # fmt: skip
        yield f"unread {name}:{kind}={value!s:.16}", *made(fields={name: (kind, value)})
    for name, kind, value in (
        ("general.architecture", STRING, "llama4"), ("general.architecture", U32, 1),
        ("general.architecture", STRING, "\x1b]0;owned\x07" + "x" * 10**6),
        ("general.alignment", U32, 0), ("general.alignment", U32, 3),
        ("general.alignment", U32, 2**31), ("general.alignment", STRING, "32"),
        ("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.model", U32, 1),
        ("tokenizer.ggml.pre", STRING, "x" * 10**6), ("tokenizer.ggml.pre", ARRAY, (U32, [1])),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, [])), ("tokenizer.ggml.tokens", STRING, "abc"),
        ("tokenizer.ggml.tokens", ARRAY, (U32, [1, 2])), ("tokenizer.ggml.merges", STRING, "a b"),
        ("tokenizer.ggml.merges", ARRAY, (U32, [1, 2])),
        ("tokenizer.ggml.merges", ARRAY, (STRING, ["alone"])),
        ("tokenizer.ggml.merges", ARRAY, (STRING, ["no where"])),
        ("tokenizer.ggml.token_type", ARRAY, (U32, [1])),
        ("tokenizer.ggml.token_type", STRING, "x"),
    ):  # fmt: skip
        yield f"{name}:{kind}={value!s:.16}", *made(fields={name: (kind, value)})
    for name, kind, value in (
        ("llama.rope.scale_linear", F32, 1.0), ("llama.rope.scaling.factor", F32, 1.0),
        ("llama.rope.scaling.yarn_beta_fast", F32, 32.0),
        ("llama.rope.scaling.type", STRING, "linear"), ("llama.rope.scaling.type", STRING, "yarn"),
        ("llama.rope.scaling.attn_factor", F32, 1.0),
        ("llama.rope.scaling.type", STRING, "none"), ("split.count", 4, 1), ("split.count", 4, 0),
        ("llama.expert_count", U32, 0), ("llama.attention.causal", BOOL, 1),
        ("llama.vocab_size", U32, 300), ("llama.attention.key_length", U32, 8),
        ("llama.rope.dimension_count", U32, 8), ("general.type", STRING, "model"),
        ("general.name", STRING, "\x1b[31mred\x1b[0m\0\u202e" + "x" * 10**5),
        ("general.name", U32, 7), ("general.unheard_of", ARRAY, (F64, [1.0] * 9)),
    ):  # fmt: skip
        yield f"{name}:{kind}={value!s:.16} fits", *made("read", {name: (kind, value)})
    tokens = base.fields[b"tokenizer.ggml.tokens"][1][1]
    for word in ("\0", "a\0b", "\x1b[2J", "x" * 10**6, "\u202e", " "):
        changed = (STRING, [*tokens[:-1], word])
        yield f"token {word[:9]!r}", *made("read", {"tokenizer.ggml.tokens": (ARRAY, changed)})
    kinds = (5, [3] * len(tokens))
    yield "all tokens whole", *made("either", {"tokenizer.ggml.token_type": (ARRAY, kinds)})
    many = (STRING, ["t h"] * 10**5)
    yield "merges often", *made("either", {"tokenizer.ggml.merges": (ARRAY, many)})
    for name in [*sizes[:2], *sizes[3:5], "general.architecture", "tokenizer.ggml.tokens",
                 "llama.context_length", "llama.attention.layer_norm_rms_epsilon"]:  # fmt: skip
        yield f"without {name}", *made(fields={name: None})
    arrays = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type", "x.y")
    for name, inner, count in itertools.product(
        arrays, (0, STRING, U64, ARRAY, 77), (10**9, 2**63, 2**64 - 1)
    ):
        declared = struct.pack("<IQ", inner, count)
        yield f"{name} of {count} {inner}", *made(fields={name: (ARRAY, declared)})
    nested = struct.pack("<IQ", ARRAY, 1) * 10**5
    yield "nested arrays", *made(fields={"x.y": (ARRAY, nested)})
    for value in (2**40, 2**63, 2**64 - 1):
        yield f"string of {value}", *made(fields={"general.name": (STRING, _string(b"t", value))})
    yield "boolean 2", *made(fields={"llama.attention.causal": (BOOL, 2)})
    yield "field of kind 99", *made(fields={"x.y": (99, b"1234")})
    yield "name not UTF-8", *made(fields={"general.name": (STRING, _string(b"\xff\xfe"))})
    yield "key not UTF-8", *made(fields={b"\xff": (U32, 1)})
    doubled = (
        base.bytes()
        .replace(b"general.name", b"general.same")
        .replace(b"llama.block_count", b"llama.context_len")
    )
    yield "fields renamed", doubled, "refused"
    count = len(base.tensors), len(base.fields)
    for tensors, fields in (
        (10**9, count[1]), (2**64 - 1, count[1]), (count[0], 10**9), (count[0], 2**64 - 1),
        (0, count[1]), (count[0], 0), (0, 0), (count[0] - 1, count[1]), (count[0], count[1] - 1),
    ):  # fmt: skip
        yield f"counts {tensors} {fields}", *made(counts=(tensors, fields))
    for version in (0, 1, 4, 2**32 - 1, 3 << 24):
        yield f"version {version}", *made(version=version)
    yield "version 2", *made("read", version=2)
    for magic in (b"FUGG", b"GGML", b"\0\0\0\0", b"PK\3\4"):
        yield f"magic {magic!r}", *made(magic=magic)
    q, embed, norm = "blk.0.attn_q.weight", "token_embd.weight", "output_norm.weight"
    for name in (q, embed, norm, "blk.1.ffn_down.weight"):
        for dims in ([], [0], [0, 32], [32, 0], [2**32, 2**32], [2**63, 2], [-1, 32], [32],
                     [1, 1], [32, 2**40], [31, 32], [32, 32, 1, 1, 1], [2**62, 4]):  # fmt: skip
            if not (name == norm and dims == [32]):
                yield f"{name} {dims}", *made(tensor=(name, {"dims": dims}))
        for dims in (0, 5, 2**20, 2**32 - 1):
            yield f"{name} of {dims} dimensions", *made(tensor=(name, {"count": dims}))
        for offset in (4, 2**40, 2**63, 2**64 - 32):
            yield f"{name} at {offset}", *made(tensor=(name, {"offset": offset}))
    yield "over another tensor", *made(tensor=(q, {"offset": base.tensors[at[q] + 1].offset}))
    for kind in (1, 4, 24, 27, 28, 39, 99, 2**31, 2**32 - 1):
        yield f"kind {kind}", *made(tensor=(q, {"kind": kind}))
    for name in (b"", b"\xff\xfe", b"a\0b", b"token_embd.weight", b"x" * 10**6, b"\x1b[2J"):
        yield f"tensor {name[:12]!r}", *made(tensor=(q, {"name": name}))
    missing = copy.deepcopy(base)
    del missing.tensors[at[q]]
    yield "without q", missing.bytes(), "refused"
    parts = base.parts()
    for i in [*range(1, len(parts) - 3), len(parts) - 2, len(parts) - 1]:
        yield f"cut at {i}", b"".join(parts[:i]), "refused"
    content = base.bytes()
    yield "cut in the last tensor", content[:-4], "refused"
    yield "longer than declared", content + b"\0" * 99, "read"
    head, rng = len(content) - len(base.data), np.random.default_rng(37)
    for i in range(60):
        changed = bytearray(content)
        for place in rng.integers(0, head, 1 + i % 3):
            changed[place] = rng.integers(256)
        yield f"random {i}", bytes(changed), "either"


_DEEP = {"list": "[" * 10**5 + "]" * 10**5, "object": '{"a":' * 10**5 + "1" + "}" * 10**5}


def _json_damages(content: bytes) -> Iterator[tuple[str, bytes]]:
    """A JSON file damaged as a whole."""
    for kind, deep in _DEEP.items():
        yield f"deep {kind}", deep.encode()
        yield f"deep {kind} inside", content.rstrip()[:-1] + b', "x": ' + deep.encode() + b"}"
    yield "empty", b""
    yield "blank", b" \n"
    yield "bom", b"\xef\xbb\xbf" + content
    yield "utf-16", content.decode().encode("utf-16")
    yield "not UTF-8", content[:-2] + b'"\xff": 1}'
    yield "zeros", b"\0" * 1000
    yield "number of 10^5 digits", content.rstrip()[:-1] + b', "x": ' + b"9" * 10**5 + b"}"
    for text in ("null", "3", '"text"', "[]", "{}", "NaN", "true", "[[]]"):
        yield text, text.encode()
    for share in (1, 2, 3, 5, 7):
        yield f"cut {share}/8", content[: len(content) * share // 8]


def _safetensors(content: bytes) -> Iterator[tuple[str, bytes, str]]:
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]

    def made(new, declared=None):
        text = new if isinstance(new, bytes) else json.dumps(new).encode()
        return struct.pack("<Q", len(text) if declared is None else declared) + text + data

    yield "base", content, "read"
    for declared in (0, 1, size - 1, size + 1, len(content), 2**31, 10**8, 2**63, 2**64 - 1):
        yield f"header of {declared}", made(header, declared), "refused"
    name, norm = "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"
    for key in (name, norm):
        own = header[key]
        start, end = own["data_offsets"]
        for value in ([], [0], [0, 32], [2**32, 2**32], [2**63, 2], [-1, 32], [10**400], ["32"],
                      [32.0, 32], [1] * 10**4, None, "32", [[32]], [31, 32], {}):  # fmt: skip
            changed = header | {key: own | {"shape": value}}
            yield f"{key} shape {str(value)[:24]}", made(changed), "refused"
        for value in ([0, 4], [end, start], [start, 2**63], [start, end - 4], [start - 4, end],
                      [-4, end], [start, 10**400], [start], ["0", "4"], None, [2**60, 2**61],
                      [start + 4, end + 4]):  # fmt: skip
            changed = header | {key: own | {"data_offsets": value}}
            yield f"{key} offsets {str(value)[:24]}", made(changed), "refused"
        for value in ("I8", "F8_E4M3", "I64", "BOOL", "F7", "", None, 3, "C64"):
            yield f"{key} dtype {value}", made(header | {key: own | {"dtype": value}}), "refused"
        yield f"{key} bare", made(header | {key: {}}), "refused"
        yield f"{key} null", made(header | {key: None}), "refused"
        rest = {k: v for k, v in header.items() if k != key}
        yield f"without {key}", made(rest), "refused"
        for new in ("", "\0", "a\0b", "\x1b[2J", "\ud800", "x" * 10**6, f"{key}\n"):
            yield f"{key} as {new[:9]!r}", made(rest | {new: own}), "refused"
    yield "metadata list", made(header | {"__metadata__": [1]}), "refused"
    yield "metadata deep", made(header | {"__metadata__": {"a": {"b": "c"}}}), "refused"
    yield "metadata", made(header | {"__metadata__": {"format": "pt", "x": "\x1b[2J"}}), "read"
    for kind, damaged in _json_damages(json.dumps(header).encode()):
        yield f"header {kind}", made(damaged), "refused"
    for keep in (1, 7, 8, 9, 8 + size // 2, 8 + size, 8 + size + 4, len(content) - 4):
        yield f"cut to {keep}", content[:keep], "refused"
    yield "longer", content + b"\0" * 8, "refused"


def _config(content: bytes) -> Iterator[tuple[str, bytes, str]]:
    base = json.loads(content)

    def made(**changes):
        return json.dumps(base | changes).encode()

    sizes = [
        "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size",
        "head_dim", "intermediate_size", "vocab_size",
    ]  # fmt: skip
    numbers = [*HUGE, 2**32, 10**30, 10**400, -1, 3, "2", [2], {}, True, 2.0, float("nan"), 1e308]
    for name in sizes:
        for value in numbers:
            yield f"{name}={str(value)[:24]}", made(**{name: value}), "refused"
        yield f"{name}=1e400", made(**{name: "?"}).replace(b'"?"', b"1e400"), "refused"
    for name in ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size"):
        yield f"{name}=null", made(**{name: None}), "refused"
    yield "head_dim=null", made(head_dim=None), "read"
    for name in ("rms_norm_eps", "rope_theta"):
        for value in (0, -1, 10**400, float("nan"), float("inf"), "1", None, [1], True, 10**5000):
            try:
                yield f"{name}={str(value)[:24]}", made(**{name: value}), "refused"
            except ValueError:  # Python writes no whole number of so many digits
                text = made(**{name: "?"}).replace(b'"?"', b"1" + b"0" * 5000)
                yield f"{name}=10^5000", text, "refused"
    for value in (0, 4, -1, 10**400, None, "128", 1e9):
        outcome = "read" if value == 10**400 else "refused"
        yield f"context={str(value)[:9]}", made(max_position_embeddings=value), outcome
    for value in (300, -1, 10**30, [0, 1], "0", True, 0.0):
        yield f"bos={value!s:.9}", made(bos_token_id=value), "refused"
    for name, value in (
        ("sliding_window", 16), ("use_sliding_window", True), ("attention_bias", True),
        ("mlp_bias", True), ("partial_rotary_factor", 0.5), ("attention_multiplier", 0.1),
        ("logits_scaling", 8.0), ("residual_multiplier", 0.5), ("embedding_multiplier", 12.0),
        ("final_logit_softcapping", 30.0), ("attn_logit_softcapping", 50.0),
        ("query_pre_attn_scalar", 64), ("logit_scale", 0.1), ("clip_qkv", 8.0), ("alibi", True),
        ("use_qk_norm", True), ("qk_norm", True), ("rope_interleaved", True),
        ("attention_chunk_size", 16), ("is_causal", False), ("position_embedding_type", "none"),
        ("use_bidirectional_attention", True), ("num_experts", 8), ("quantization_config", {}),
        ("layer_types", ["sliding_attention", "full_attention"]), ("no_rope_layers", [0, 1]),
        ("add_cross_attention", True), ("pruned_heads", {"0": [1]}), ("tie_word_embeddings", "yes"),
    ):  # fmt: skip
        yield f"unread {name}={value!s:.40}", made(**{name: value}), "refused"
    for name, value in (
        ("hidden_act", "gelu"), ("model_type", "mistral"), ("model_type", None), ("model_type", 3),
        ("hidden_act", "x" * 10**6),
        ("rope_scaling", {"type": "linear", "factor": 0.5}), ("rope_scaling", {"factor": 2.0}),
        ("rope_scaling", {"rope_type": "dynamic", "factor": "2"}), ("rope_scaling", 3),
        ("rope_scaling", {"rope_type": "linear", "factor": 2.0, "beta_fast": 32.0}),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0, "beta_fast": 0.5}),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0, "truncate": 1}),
        ("rope_scaling", {"rope_type": "yarn", "factor": True}), ("rope_scaling", {"rope_type": 1}),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0, "llama_4_scaling_beta": 0.1}),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0, "attention_factor": -1.0}),
        ("rope_scaling", {"rope_type": ["yarn"], "factor": 4.0}), ("rope_scaling", {"type": {}}),
        ("rope_scaling", {"rope_type": "longrope"}), ("rope_scaling", {"rope_type": "llama3"}),
        ("rope_parameters", {"full_attention": {"rope_type": "default", "rope_theta": 9.0}}),
        ("rope_parameters", {"rope_type": "default", "rope_theta": "500"}),
        ("rope_parameters", {"rope_type": "default", "attention_factor": 2.0}),
        ("rope_scaling", {"rope_type": "llama3", "factor": 10**400, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
        ("model_type", "\x1b]0;owned\x07"),
    ):  # fmt: skip
        yield f"{name}={value!s:.40}", made(**{name: value}), "refused"
    for name, value in (
        ("sliding_window", None), ("use_sliding_window", False), ("torch_dtype", "float32"),
        ("rope_interleaved", False), ("attention_dropout", 0.1), ("use_cache", True),
        ("layer_types", ["full_attention", "full_attention"]), ("transformers_version", "5.0"),
        ("rope_parameters", {"rope_type": "default", "rope_theta": tiny_model.BASE}),
        ("rope_scaling", {"type": "linear", "factor": 1.0}),
        ("rope_scaling", {"rope_type": "dynamic", "factor": 2.0, "attention_factor": None}),
        ("rope_scaling", {"rope_type": "dynamic", "factor": 1e300}),
        ("_name_or_path", "\x1b[31mred\0\u202e" + "x" * 10**5), ("_attn_implementation", "sdpa"),
        ("_name_or_path", "lone \ud800"), ("is_llama_config", True), ("pad_token_id", -1),
        ("eos_token_id", [1, 2]), ("pruned_heads", {}), ("is_causal", True),
    ):  # fmt: skip
        yield f"{name}={value!s:.40} fits", made(**{name: value}), "read"
    for kind, damaged in _json_damages(content):
        yield kind, damaged, "refused"


def _tokenizer(content: bytes) -> Iterator[tuple[str, bytes, str]]:
    base = json.loads(content)

    def made(model=None, **changes):
        return json.dumps(base | {"model": base["model"] | (model or {})} | changes).encode()

    def replace(pattern, text, kind="String"):
        return {"type": "Replace", "pattern": {kind: pattern}, "content": text}

    def charsmap(content):
        text = base64.b64encode(content).decode()
        return {"type": "Precompiled", "precompiled_charsmap": text}

    def sequence(parts):
        return {"type": "Sequence", "normalizers": parts}

    twice = [replace(x, 2 * x) for x in "ehtna"]
    for name, normalizer in (
        ("doublings", sequence(twice * 40)), ("a megabyte", replace("e", "e" * 10**6)),
        ("every letter", replace(".", "thousand" * 1000, "Regex")),
        ("empty pattern", replace("", "x" * 10**5)),
        ("nested doublings", sequence([sequence(twice * 8)] * 8)),
        ("prepended", {"type": "Prepend", "prepend": "x" * 10**7}),
        ("prepended often", sequence([{"type": "Prepend", "prepend": "x" * 10**5}] * 300)),
        ("growing by regex", sequence([replace("(.)", "xx", "Regex")] * 30)),
        ("bad regex", replace("(", "x", "Regex")), ("of no kind", {"type": "Unheard"}),
        ("backtracking", replace("(?:a|a|aa|n|t|h|e| )+$x", "y", "Regex")),
        ("large regex", replace("(((a{999}){999}){999}){999}", "y", "Regex")),
        ("charsmap empty", charsmap(b"")), ("charsmap large", charsmap(b"\xff" * 8)),
        ("charsmap cut", charsmap(b"\x00\x04\0\0" + b"\x01" * 99)),
        ("deep", json.loads('{"type":"Sequence","normalizers":[' * 50 + "]}" * 50)),
    ):  # fmt: skip
        may = ("deep", "charsmap cut", "backtracking", "large regex")
        outcome = "either" if name in may else "refused"
        yield f"normalizer {name}", made(normalizer=normalizer), outcome
    pad = {"direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0}
    for name, padding in (
        ("fixed", pad | {"strategy": {"Fixed": 10**9}, "pad_token": "x"}),
        ("of 2^63", pad | {"strategy": {"Fixed": 2**63}, "pad_token": "x"}),
        ("multiple", pad | {"strategy": "BatchLongest", "pad_to_multiple_of": 10**9,
                            "pad_token": "x" * 99}),
    ):  # fmt: skip
        yield f"padding {name}", made(padding=padding), "read"
    cut = {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    yield "truncation", made(truncation=cut), "read"
    yield "truncation with a stride", made(truncation=cut | {"stride": 9}), "either"
    for name, model in (
        ("prefix", {"continuing_subword_prefix": "##"}), ("unknown", {"unk_token": "zzz"}),
        ("id 2^32", {"vocab": {"a": 2**32}}), ("ids twice", {"vocab": {"a": 0, "b": 0}}),
        ("no vocabulary", {"vocab": {}}), ("merges", {"merges": ["a"]}),
        ("dropout", {"dropout": 0.5}),
        ("merges of nothing", {"merges": [["zq", "qz"]]}), ("kind", {"type": "Unheard"}),
        ("ids beyond", {"vocab": {k: v + 10**6 for k, v in base["model"]["vocab"].items()}}),
        ("dropout of nan", {"dropout": 7.0}),
    ):  # fmt: skip
        yield (
            f"model {name}",
            made(model),
            "either" if name in ("ids twice", "unknown") else "refused",
        )
    for name, model in (
        ("unigram", {"type": "Unigram", "unk_id": None, "vocab": [], "byte_fallback": False}),
        ("unigram of 9", {"type": "Unigram", "unk_id": 9, "vocab": [["a", 0]]}),
        ("wordpiece", {"type": "WordPiece", "unk_token": "x", "continuing_subword_prefix": "##",
                       "max_input_chars_per_word": 10**18, "vocab": {"a": 0}}),
        ("wordlevel", {"type": "WordLevel", "unk_token": "x", "vocab": {"a": 0}}),
        ("null", None), ("list", []), ("text", "BPE"),
    ):  # fmt: skip
        yield f"model {name}", json.dumps(base | {"model": model}).encode(), "refused"
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}  # fmt: skip
    for name, added in (
        ("beyond", [token | {"id": 4 * 10**9, "content": "the"}]),
        ("text", "x"),
        ("negative", [token | {"id": -1, "content": "the"}]),
        ("bare", [{}]),
    ):
        yield f"added {name}", made(added_tokens=added), "either" if name == "beyond" else "refused"
    yield "added empty", made(added_tokens=[token | {"id": 299, "content": ""}]), "either"
    split = {"type": "Split", "pattern": {"Regex": "((a|n|t|h|e| )+)+$x"}, "behavior": "Isolated",
             "invert": False}  # fmt: skip
    for name, cutter in (
        ("backtracking", split),
        ("nothing", split | {"pattern": {"String": ""}}),
        ("of length 0", {"type": "FixedLength", "length": 0}),
        ("of no kind", {"type": "X"}),
        ("of length 2^64", {"type": "FixedLength", "length": 2**64}),
        ("delimiter", {"type": "CharDelimiterSplit", "delimiter": "ab"}),
        ("metaspace", {"type": "Metaspace", "replacement": "", "prepend_scheme": "always"}),
    ):
        yield f"cutter {name}", made(pre_tokenizer=cutter), "either"
    for kind, damaged in _json_damages(content):
        yield kind, damaged, "either" if kind == "number of 10^5 digits" else "refused"


def _index(home: Path, names: dict[str, str]) -> Iterator[tuple[str, object, str]]:
    """(name, what model.safetensors.index.json holds, outcome); bytes are taken as they are."""
    whole = {"metadata": {"total_size": 1}, "weight_map": names}
    first, other = sorted(set(names.values()))[:2]
    some = next(name for name, file in names.items() if file == first)

    def mapped(**changes):
        return whole | {"weight_map": names | changes}

    yield "base", whole, "read"
    yield "another total", whole | {"metadata": {"total_size": 10**400}}, "read"
    for name, value in (
        ("in another", mapped(**{some: other})), ("nowhere", mapped(**{some: "none.safetensors"})),
        ("elsewhere", mapped(**{some: "../config.json"})), ("of 3", mapped(**{some: 3})),
        ("absolute", mapped(**{some: "/etc/passwd"})), ("of NUL", mapped(**{some: "a\0b"})),
        ("escaping", mapped(**{some: "\x1b[2J"})), ("long", mapped(**{some: "x" * 10**5})),
        ("surrogate", mapped(**{some: "\ud800"})), ("empty name", mapped(**{some: ""})),
        ("folder", mapped(**{some: "."})), ("more", mapped(**{"model.more.weight": first})),
        ("fewer", whole | {"weight_map": {k: v for k, v in names.items() if k != some}}),
        ("without a shard", whole | {"weight_map": {k: v for k, v in names.items() if v != first}}),
        ("nothing", whole | {"weight_map": {}}), ("list", whole | {"weight_map": [1]}),
        ("no map", {"metadata": {}}), ("null", whole | {"weight_map": None}),
    ):  # fmt: skip
        yield name, value, "refused"
    for kind, damaged in _json_damages(json.dumps(whole).encode()):
        yield kind, damaged, "refused"


def npy_files() -> Iterator[tuple[str, bytes, bool]]:
    """(name, content, whether the header is that of the 300 numbers behind it)."""
    data = np.arange(300, dtype="<i4").tobytes()

    def made(header, version=(1, 0), declared=None, magic=b"\x93NUMPY"):
        text = header if isinstance(header, bytes) else header.encode("latin1")
        form = "<H" if version[0] == 1 else "<I"
        size = struct.pack(form, (len(text) if declared is None else declared))
        return magic + bytes(version) + size + text + data

    def header(shape, descr="'<i4'", order="False"):
        return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"

    yield "base", made(header("(300,)")), True
    yield "version 2", made(header("(300,)"), (2, 0)), True
    for shape in ("(10**12,)", "(1000000000000,)", "(1000000000,)", "(301,)", "(0,)", "(-1,)",
                  "(-300,)", "(4294967296, 4294967296)", "(0, 9223372036854775807)", "(300, 1e3)",
                  "(True,)", "300", "None", "'300'", "(18446744073709551616,)",
                  "(" + "9" * 999 + ",)",
                  "(" + "1," * 64 + ")", "(2, 150)", "[300]", "()", "(300.0,)", "(300j,)",
                  "((300,),)"):  # fmt: skip
        yield f"shape {shape[:24]}", made(header(shape)), False
    for descr in ("'|O'", "'<U1000000000'", "'<f16'", "'<M8[ns]'", "'|V1200'", "'<c8'", "'x'",
                  "[('a', '<i4')]", "[('a', '|O')]", "None", "3", "'|S4'", "'<U1'", "('<i4', (9,))",
                  "[('a', [('b', '<i4')])]", "'|b1'"):  # fmt: skip
        yield f"type {descr[:24]}", made(header("(300,)", descr)), False
    for text in ("", "{}", "[]", "{'descr': '<i4'}", "(" * 9000, "[" * 200 + "]" * 200,
                 "\0" * 64,
                 "{" * 99 + "}" * 99, "__import__('os')", "1" * 5000,
                 "-" * 5000 + "1"):  # fmt: skip
        yield f"header {text[:16]!r} {len(text)}", made(text), False
    yield "header of 2^32", made(header("(300,)"), (2, 0), 2**32 - 1), False
    yield "header of 60000", made(header("(300,)"), (1, 0), 60000), False
    for version in ((0, 0), (4, 0), (255, 255)):
        yield f"version {version}", made(header("(300,)"), version), False
    yield "zip", b"PK\3\4" + data, False
    yield "pickle", b"\x80\x04cos\nsystem\n(S'true'\ntR.", False
    yield "text", b"1 2 3", False
    yield "empty", b"", False
    yield "magic only", b"\x93NUMPY", False
    whole = made(header("(300,)"))
    for keep in (7, 8, 10, 40, len(whole) - 4):
        yield f"cut to {keep}", whole[:keep], False


def _texts(home: Path) -> Iterator[tuple[str, Path, str]]:
    """Text files: names that are not UTF-8 are measured to the end."""
    for i, name in enumerate(
        (b"\xff.txt", b"a\x80b.txt", b"\x1b[31m.txt", b"a\nb.txt", b"\xe2.npy")
    ):
        path = home / f"text{i}" / os.fsdecode(name)
        path.parent.mkdir()
        path.write_text(TEXT)
        yield repr(name), path, "refused" if path.suffix == ".npy" else "read"
    for name, content in (
        ("utf-16", TEXT.encode("utf-16")), ("zeros", b"\0" * 99), ("binary", b"\xff\xfe\0\1"),
        ("bom alone", b"\xef\xbb\xbf"), ("surrogate", b"\xed\xa0\x80 the"), ("empty", b""),
        ("spaces", b" " * 10**6), ("short", b"the"),
    ):  # fmt: skip
        path = home / f"{name}.txt"
        path.write_bytes(content)
        yield name, path, "refused" if name != "zeros" else "either"
    folder = home / "folder.txt"
    folder.mkdir()
    yield "an empty folder", folder, "refused"
    yield "a name too long", home / ("x" * 5000), "refused"


def _written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def variants(home: Path) -> Iterator[Variant]:
    """Every crafted file, written when it is asked for."""
    text, out = _written(home / "text.txt", TEXT.encode()), str(home / "out.nc")
    good = _written(home / "good.gguf", base_gguf().bytes())
    numbers = itertools.count()

    def place(suffix=""):
        return home / f"{next(numbers):04}{suffix}"

    def measured(model, text=text):
        how = "--tokens", str(TOKENS), "--out", out
        return "measure", "--model", str(model), "--text", str(text), *how

    for name, content, outcome in _gguf():
        path = _written(place(".gguf"), content)
        yield Variant(f"gguf/{name}", measured(path), outcome)
        path.unlink()
    whole, shards = home / "whole", home / "shards"
    for folder, count in ((whole, 1), (shards, 3)):
        folder.mkdir()
        tiny_model.write_safetensors(folder, tiny_model.weights(), shards=count)
    for file, made in (
        ("model.safetensors", _safetensors),
        ("config.json", _config),
        ("tokenizer.json", _tokenizer),
    ):
        for name, content, outcome in made((whole / file).read_bytes()):
            folder = Path(shutil.copytree(whole, place()))
            (folder / file).write_bytes(content)
            yield Variant(f"{file}/{name}", measured(folder), outcome)
            shutil.rmtree(folder)
    for name, value, outcome in _index(shards, tiny_model.weight_map(shards)):
        folder = Path(shutil.copytree(shards, place()))
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        (folder / "model.safetensors.index.json").write_bytes(content)
        yield Variant(f"index/{name}", measured(folder), outcome)
        shutil.rmtree(folder)
    yield from _folders(home, whole, shards, place, measured)
    for name, content, fits in npy_files():
        path = _written(place(".npy"), content)
        yield Variant(f"npy text/{name}", measured(good, path), "read" if fits else "refused")
        numbers_fit = fits or name in ("shape (2, 150)",)
        scores = "exact", "exp", "--gamma", "1", "--length", "8", "--scores", str(path)
        outcome = "read" if numbers_fit else "either" if "type" in name else "refused"
        yield Variant(f"npy scores/{name}", scores, outcome)
    (home / "texts").mkdir()
    for name, path, outcome in _texts(home / "texts"):
        yield Variant(f"text/{name}", measured(good, path), outcome)


def _folders(home, whole, shards, place, measured) -> Iterator[Variant]:
    """Files missing, in each other's place, or beside others that say something else."""
    index = {"metadata": {}, "weight_map": tiny_model.weight_map(shards)}
    part = sorted(set(index["weight_map"].values()))[1]
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        for name, change in (("missing", Path.unlink), ("a folder", None), ("a pipe", os.mkfifo)):
            folder = Path(shutil.copytree(whole, place()))
            (folder / file).unlink()
            if name == "a folder":
                (folder / file).mkdir()
            elif change is os.mkfifo:
                os.mkfifo(folder / file)
            yield Variant(f"folder/{file} is {name}", measured(folder), "refused")
    for name, outcome, change in (
        ("stale file beside an index", "refused", lambda x: (
            (x / "model.safetensors.index.json").write_text(json.dumps(index)),
            shutil.copy(whole / "model.safetensors", x))),
        ("shard missing, no index", "refused", lambda x: (x / part).unlink()),
        ("shard missing, index", "refused", lambda x: (
            (x / "model.safetensors.index.json").write_text(json.dumps(index)),
            (x / part).unlink())),
        ("stale shard beside an index", "read", lambda x: (
            (x / "model.safetensors.index.json").write_text(json.dumps(index)),
            shutil.copy(x / part, x / "model-00009-of-00009.safetensors"))),
        ("stale shard, no index", "refused", lambda x: shutil.copy(
            x / part, x / "model-00009-of-00009.safetensors")),
        ("an adapter", "refused", lambda x: (x / "adapter_config.json").write_text("{}")),
        ("shards without an index", "read", lambda x: None),
    ):  # fmt: skip
        folder = Path(shutil.copytree(shards, place()))
        change(folder)
        yield Variant(f"folder/{name}", measured(folder), outcome)
    folder = Path(shutil.copytree(shards, place()))
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    yield Variant("folder/one shard of an index", measured(folder / part), "refused")
    folder = Path(shutil.copytree(whole, place()))
    shutil.copy(shards / part, folder)
    yield Variant("folder/stale shard beside the file", measured(folder), "either")
    for name in ("empty.gguf", "empty.safetensors"):
        yield Variant(f"folder/{name}", measured(_written(place() / name, b"")), "refused")
    pipe = place(".gguf")
    os.mkfifo(pipe)
    yield Variant("folder/a pipe", measured(pipe), "refused")
    yield Variant("folder/a name too long", measured(home / ("x" * 5000)), "refused")


class TooLong(BaseException):
    """A variant that takes more time than a person waits."""


@dataclass(frozen=True)
class Found:
    """What a command made of a variant."""

    name: str
    outcome: str
    code: int | str
    out: str
    err: str
    seconds: float  # of CPU
    peak: int  # bytes above what the process held before

    def faults(self) -> list[str]:
        """What is wrong with it."""
        wrong = []
        if self.code not in {"refused": (2,), "read": (0,), "either": (0, 2)}[self.outcome]:
            wrong.append(f"code {self.code}")
        if self.code == 2 and (len(self.err.splitlines()) != 1 or self.out):
            wrong.append("not one line")
        if "not enough memory" in self.err:  # of what a file declares, not of a size that was asked
            wrong.append("memory")
        if len(self.err) > 2000 or any(not (c.isprintable() or c == "\n") for c in self.err):
            wrong.append("long or unprintable")
        if " " in self.name and self.name.split("/")[1].startswith("unread "):
            unread = self.name.split("unread ")[1].split("=")[0].split(":")[0]
            if unread not in self.err:
                wrong.append("unnamed")
        if self.seconds > 5:
            wrong.append(f"{self.seconds:.1f} s")
        if self.peak > 2**30:
            wrong.append(f"{self.peak / 2**30:.2f} GiB")
        return wrong


def every(home: Path) -> Iterator[Variant]:
    """All variants."""
    yield from variants(home)


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _cpu() -> float:
    own, others = (resource.getrusage(x) for x in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def run(variant: Variant) -> Found:
    """The command line in this process, with what any library writes to the terminal."""
    from sparsity import cli

    def stop(*_):
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    streams = [os.dup(1), os.dup(2)]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, began, code = _memory("VmRSS"), _cpu(), 0
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        kept = sys.argv, sys.stdout, sys.stderr
        sys.argv = ["sparsity", *variant.arguments]
        sys.stdout, sys.stderr = (os.fdopen(os.dup(i), "w", encoding="utf-8") for i in (1, 2))
        signal.alarm(120)  # of the clock: other work may have the machine
        try:
            cli.main()
        except SystemExit as stopped:
            code = stopped.code
        except BaseException as error:  # noqa: BLE001  a panic of Rust is one
            code = f"{type(error).__name__}: {error!s:.200}"
        finally:
            signal.alarm(0)
            sys.stdout.close()
            sys.stderr.close()
            sys.argv, sys.stdout, sys.stderr = kept
            for i, stream in enumerate(streams, 1):
                os.dup2(stream, i)
                os.close(stream)
        shown = [(x.seek(0), x.read().decode(errors="replace"))[1] for x in (out, err)]
    peak = _memory("VmHWM") - before
    return Found(variant.name, variant.outcome, code, *shown, _cpu() - began, peak)


def limit_memory(room: int) -> None:
    """Let this process have so many bytes more than it has."""
    most = _memory("VmData") + room
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main() -> None:
    """Run the variants whose numbers are from sys.argv[1] on; a line of JSON for each."""
    import jax

    jax.config.update("jax_enable_x64", True)
    first, pattern = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory() as home:
        for i, variant in enumerate(every(Path(home))):
            if i == 0:
                run(variant)  # what is imported and compiled once
                limit_memory(2**30)
            if i < first or pattern not in variant.name:
                continue
            print(json.dumps({"begun": i, "name": variant.name}), flush=True)
            found = run(variant)
            print(json.dumps(vars(found) | {"faults": found.faults()}), flush=True)


if __name__ == "__main__":
    main()
