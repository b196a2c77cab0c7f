"""A small random Llama as GGUF and as safetensors, and its forward pass written out in NumPy."""

import json

import gguf
import numpy as np
import tokenizers
from safetensors.numpy import load_file, save_file

SIZES = dict(layers=2, heads=4, kv=2, dim=32, head_dim=8, inner=48, vocab=300, context=128)
BASE, EPS = 500.0, 1e-5


def weights(seed=0, tied=False):
    rng = np.random.default_rng(seed)
    s = SIZES
    q, kv = s["heads"] * s["head_dim"], s["kv"] * s["head_dim"]
    layer = dict(
        attn_norm=(s["dim"],),
        q=(q, s["dim"]),
        k=(kv, s["dim"]),
        v=(kv, s["dim"]),
        o=(s["dim"], q),
        mlp_norm=(s["dim"],),
        gate=(s["inner"], s["dim"]),
        up=(s["inner"], s["dim"]),
        down=(s["dim"], s["inner"]),
    )
    outer = dict(embed=(s["vocab"], s["dim"]), norm=(s["dim"],), head=(s["vocab"], s["dim"]))

    def draw(shape):
        noise = rng.normal(size=shape)
        scaled = noise / np.sqrt(shape[-1]) * 1.7 if len(shape) == 2 else 1 + 0.2 * noise
        return scaled.astype(np.float32)

    found = {(name, None): draw(shape) for name, shape in outer.items()}
    for i in range(s["layers"]):
        found |= {(name, i): draw(shape) for name, shape in layer.items()}
    if tied:
        del found["head", None]
    return found


def vocabulary():
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("1", "2"), ("Ġ", "the"), ("a", "n"), ("an", "d")]
    tokens = ["<|begin|>", *alphabet, *("".join(pair) for pair in merges)]
    tokens += ["<|turn|>", "<tool>"]
    tokens += [f"<unused{i}>" for i in range(SIZES["vocab"] - len(tokens))]
    return tokens, merges


KINDS = {"<|begin|>": 3, "<|turn|>": 3, "<tool>": 4}  # of control, and added by the user


_GGUF = dict(
    embed="token_embd", norm="output_norm", head="output", attn_norm="attn_norm", q="attn_q",
    k="attn_k", v="attn_v", o="attn_output", mlp_norm="ffn_norm", gate="ffn_gate", up="ffn_up",
    down="ffn_down",
)  # fmt: skip


def side_by_side(w, heads):
    """Rows (i, i + d/2) of each head brought together, as llama.cpp's converter does."""
    d = len(w) // heads
    order = [
        h * d + i + half * (d // 2) for h in range(heads) for i in range(d // 2) for half in (0, 1)
    ]
    return w[order]


def write_gguf(
    path, found, arch="llama", quantised=False, pre="smollm", extra=(), rope=(), **changes
):
    """Also metadata by the last part of their name: another value, or None to leave one out.

    `rope` are pairs of names after "llama.rope." and values; floats are stored in 32 bits.
    """
    s, (tokens, merges) = SIZES, vocabulary()
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("tiny")
    writer.add_context_length(s["context"])
    writer.add_embedding_length(s["dim"])
    writer.add_block_count(s["layers"])
    writer.add_feed_forward_length(s["inner"])
    writer.add_head_count(s["heads"])
    writer.add_head_count_kv(s["kv"])
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_rope_freq_base(BASE)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([KINDS.get(x, 5 if x.startswith("<unused") else 1) for x in tokens])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(0)
    for name, value in rope:
        add = {float: writer.add_float32, int: writer.add_uint32, str: writer.add_string}
        add[type(value)](f"llama.rope.{name}", value)
    for (name, layer), w in [*found.items(), *extra]:
        if "." in name:
            writer.add_tensor(name, w)
            continue
        full = _GGUF.get(name, name) if layer is None else f"blk.{layer}.{_GGUF[name]}"
        if name in "qk":
            w = side_by_side(w, s["heads"] if name == "q" else s["kv"])
        if quantised and w.ndim == 2 and w.shape[1] % 32 == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(f"{full}.weight", gguf.quants.quantize(w, kind), raw_dtype=kind)
        else:
            writer.add_tensor(f"{full}.weight", w)
    (fields,) = writer.kv_data
    for name, value in changes.items():
        (full,) = [key for key in fields if key.endswith(f".{name}")]
        if value is None:
            del fields[full]
        else:
            fields[full].value = value
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_safetensors(folder, found, shards=1, extra=None, **changes):
    s, (tokens, merges) = SIZES, vocabulary()
    names = dict(
        attn_norm="input_layernorm", mlp_norm="post_attention_layernorm",
        **{x: f"self_attn.{x}_proj" for x in "qkvo"},
        **{x: f"mlp.{x}_proj" for x in ("gate", "up", "down")},
    )  # fmt: skip
    outer = dict(embed="model.embed_tokens", norm="model.norm", head="lm_head")
    tensors = {
        (f"{outer[n]}.weight" if i is None else f"model.layers.{i}.{names[n]}.weight"): w
        for (n, i), w in found.items()
    }
    tensors |= extra or {}
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
    for i in range(shards) if shards > 1 else ():
        own = {name: tensors[name] for name in sorted(tensors)[i::shards]}
        save_file(own, folder / f"model-{i + 1:05}-of-{shards:05}.safetensors")
    config = dict(
        model_type="llama", hidden_size=s["dim"], num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"], num_key_value_heads=s["kv"], intermediate_size=s["inner"],
        vocab_size=s["vocab"], max_position_embeddings=s["context"], rms_norm_eps=EPS,
        rope_theta=BASE, bos_token_id=0, tie_word_embeddings=("head", None) not in found,
    )  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config | changes), "utf-8")
    cut = tokenizers.pre_tokenizers
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges)
    )
    made.pre_tokenizer = cut.Sequence([cut.Digits(True), cut.ByteLevel(add_prefix_space=False)])
    made.add_special_tokens([tokenizers.AddedToken(x, normalized=False) for x in KINDS])
    (folder / "tokenizer.json").write_text(made.to_str(), "utf-8")
    return folder / "model.safetensors"


def weight_map(folder):
    """Which file holds each tensor, as model.safetensors.index.json has it."""
    files = sorted(folder.glob("*.safetensors"))
    return {name: file.name for file in files for name in load_file(file)}


def forward(found, ids, theta=None, amplitude=1.0, hidden=None, muted=None):
    """Attention weights [layers, heads, T, T] and logits, in float64, position by position.

    θ_i are those of `BASE` if none are given; the amplitude is on turned queries and on keys.
    Keys may be hidden from queries, or muted: bool [layers, heads, T, T].
    """
    s, T = SIZES, len(ids)
    w = {key: np.asarray(value, np.float64) for key, value in found.items()}
    half = s["head_dim"] // 2
    if theta is None:
        theta = [BASE ** (-2 * i / s["head_dim"]) for i in range(half)]

    def norm(x, g):
        return x / np.sqrt(np.mean(x * x) + EPS) * g

    def turn(v, t):
        out = v.copy()
        for i in range(half):
            a = t * theta[i]
            out[i] = v[i] * np.cos(a) - v[i + half] * np.sin(a)
            out[i + half] = v[i] * np.sin(a) + v[i + half] * np.cos(a)
        return amplitude * out

    x = [w["embed", None][t] for t in ids]
    attention = np.zeros((s["layers"], s["heads"], T, T))
    for layer in range(s["layers"]):
        g = {name: w[name, layer] for name, i in w if i == layer}
        y = [norm(v, g["attn_norm"]) for v in x]
        d = s["head_dim"]
        q = [
            [turn((g["q"] @ v)[h * d : h * d + d], t) for h in range(s["heads"])]
            for t, v in enumerate(y)
        ]
        k = [
            [turn((g["k"] @ v)[h * d : h * d + d], t) for h in range(s["kv"])]
            for t, v in enumerate(y)
        ]
        value = [[(g["v"] @ v)[h * d : h * d + d] for h in range(s["kv"])] for v in y]
        for t in range(T):
            out = []
            for h in range(s["heads"]):
                shared = h // (s["heads"] // s["kv"])
                a = np.exp([q[t][h] @ k[j][shared] / np.sqrt(d) for j in range(t + 1)])
                if hidden is not None:
                    a[hidden[layer, h, t, : t + 1]] = 0
                a = a / a.sum() if a.any() else a
                attention[layer, h, t, : t + 1] = a
                heard = a if muted is None else np.where(muted[layer, h, t, : t + 1], 0, a)
                out.append(sum(p * value[j][shared] for j, p in enumerate(heard)))
            state = x[t] + g["o"] @ np.concatenate(out)
            z = norm(state, g["mlp_norm"])
            gate = g["gate"] @ z
            x[t] = state + g["down"] @ (gate / (1 + np.exp(-gate)) * (g["up"] @ z))
    head = w.get(("head", None), w["embed", None])
    return attention, np.stack([head @ norm(v, w["norm", None]) for v in x])
