"""What mixes the tokens in the first layer of families that form no weights, for `probe`.

`MIXERS[family](model, ids)` is linear in its values: [T, probes] -> [T, probes], of the first head
or channel. `queries_and_keys` are for attention of a model's own that no such call shows.
"""

import sys
from typing import Any

import numpy as np

from sparsity.attention.checkpoints.checkpoint import library


def given_to(model, ids, part) -> dict[str, Any]:
    """What a part of a model is called with, by name, in a run on a text."""
    torch, calls = library("torch"), []
    hook = part.register_forward_pre_hook(lambda *x: calls.append(x[2]), with_kwargs=True)
    with torch.no_grad():
        model(input_ids=torch.as_tensor(ids)[None], use_cache=False)
    hook.remove()
    return calls[0]


def queries_and_keys(model, ids) -> tuple[Any, Any]:
    """q and k of the first layer, [heads, T, d], from the linear maps that make them."""
    torch, seen, hooks = library("torch"), {}, []
    for kind in ("query", "key"):
        part = next(x for path, x in model.named_modules() if path.endswith(f".{kind}"))
        hooks.append(part.register_forward_hook(lambda *x, kind=kind: seen.update({kind: x[2]})))
    with torch.no_grad():
        model(input_ids=torch.as_tensor(ids)[None])
    for hook in hooks:
        hook.remove()
    heads = model.config.num_attention_heads
    q, k = (seen[x][0].reshape(len(ids), heads, -1).swapaxes(0, 1) for x in ("query", "key"))
    return q.numpy(), k.numpy()


def _embedded(model, ids) -> Any:
    with library("torch").no_grad():
        return model.get_input_embeddings()(library("torch").as_tensor(ids)[None])


def _file(model) -> Any:
    return sys.modules[type(model).__module__]


def _fourier(model, ids):
    return lambda values: np.fft.fft(values, axis=0).real


def _rwkv(model, ids):
    torch, layer = library("torch"), model.rwkv.blocks[0].attention
    with torch.no_grad():
        key = layer.key(_embedded(model, ids))[..., :1]

    def attend(values):
        of = torch.as_tensor(values)[None]
        own = (layer.time_decay[:1], layer.time_first[:1], key.expand(of.shape), of)
        with torch.no_grad():
            return _file(model).rwkv_linear_attention_cpu(*own)[0][0].numpy()

    return attend


def _mamba(model, ids):
    torch, layer = library("torch"), model.backbone.layers[0].mixer
    with torch.no_grad():
        x = layer.in_proj(_embedded(model, ids)).chunk(2, -1)[0]
        x = torch.nn.functional.silu(layer.conv1d(x.mT)[..., : len(ids)].mT)
        sizes = [layer.time_step_rank, layer.ssm_state_size, layer.ssm_state_size]
        step, put, take = layer.x_proj(x).split(sizes, -1)
        step = torch.nn.functional.softplus(layer.dt_proj(step))[0, :, :1].numpy()
        keep = np.exp(-step * np.exp(layer.A_log[0].numpy()))
        put, take = step * put[0].numpy(), take[0].numpy()

    def scan(values):
        state, found = np.zeros((keep.shape[1], values.shape[1])), []
        for i in range(len(ids)):
            state = keep[i][:, None] * state + np.outer(put[i], values[i])
            found.append(take[i] @ state)
        return np.stack(found)

    return scan


def _mamba2(model, ids):
    torch, file, calls = library("torch"), _file(model), []
    own = file.mamba2_chunk_scan
    file.mamba2_chunk_scan = lambda *x, **more: calls.append((x, more)) or own(*x, **more)
    try:
        with torch.no_grad():
            model(input_ids=torch.as_tensor(ids)[None], use_cache=False)
    finally:
        file.mamba2_chunk_scan = own
    (_, step, decay, put, take), more = calls[0]
    more |= {"D": None, "dt_bias": more["dt_bias"][:1]}

    def scan(values):
        of = torch.as_tensor(values)[None, :, None]
        with torch.no_grad():
            return own(of, step[..., :1], decay[:1], put, take, **more)[0, :, 0].numpy()

    return scan


def _xlstm(model, ids):
    torch, part = library("torch"), model.backbone.blocks[0].mlstm_layer.mlstm_backend
    given = given_to(model, ids, part)
    width = given["value"].shape[-1]  # of a head: so many probes at once

    def scan(values):
        found = []
        for first in range(0, values.shape[1], width):
            some = torch.as_tensor(values[:, first : first + width])
            value = torch.zeros_like(given["value"])
            value[0, 0, :, : some.shape[1]] = some
            with torch.no_grad():
                out, _ = part(**(given | {"value": value}))
            found.append(out[0, 0, :, : some.shape[1]].numpy())
        return np.concatenate(found, 1)

    return scan


def _yoso(model, ids):
    """The expectation of its hashes, before each row is brought to length 1."""
    torch, (q, k) = library("torch"), queries_and_keys(model, ids)
    unit = [torch.as_tensor(x[:1] / np.linalg.norm(x[:1], axis=-1, keepdims=True)) for x in (q, k)]
    layer = next(x for x in model.modules() if hasattr(x, "lsh_config"))
    ones = torch.ones(1, len(ids))

    def attend(values):
        given = (ones, ones, *unit, torch.as_tensor(values)[None])
        return _file(model).YosoCumulation.apply(*given, layer.lsh_config)[0].numpy()

    return attend


MIXERS = {
    "falcon_mamba": _mamba,
    "fnet": _fourier,
    "mamba": _mamba,
    "mamba2": _mamba2,
    "rwkv": _rwkv,
    "xlstm": _xlstm,
    "yoso": _yoso,
}
OF_THEIR_OWN = ("mra",)
