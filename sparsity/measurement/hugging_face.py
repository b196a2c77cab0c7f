"""Any model of the `transformers` library, through its public interface for attention functions."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.errors import InputError
from sparsity.measurement import asked
from sparsity.measurement.given import of_queries, of_weights
from sparsity.measurement.labels import dataset, measured
from sparsity.measurement.sources import HIDDEN
from sparsity.models.checkpoint import library

if TYPE_CHECKING:
    import xarray

_NAME = "sparsity"  # of the attention function
_BESIDE = ("pixel_values", "input_values", "input_features")  # what some models take beside a text
_WAYS = "run it with output_attentions and give them to measure(attention=…), or q and k"


def _mask(mask: Any, bias: Any) -> np.ndarray | None:
    """[heads or 1, T, T]: bool, or numbers to add; with the position bias where there is one."""
    if mask is not None:
        mask = mask[0] if mask.dtype.is_floating_point else mask[0].bool()
        mask = (mask.float() if mask.dtype.is_floating_point else mask).cpu().numpy()
    if bias is None:
        return mask
    bias = bias[0].float().cpu().numpy()
    if mask is None:
        return bias
    return bias + mask if mask.dtype.kind == "f" else np.where(mask, bias, -np.inf)


def _ids(model: Any, tokens: Any) -> np.ndarray:
    """The ids of one text."""
    try:
        ids = np.asarray(tokens)
    except ValueError:
        ids = np.empty((0, 0))
    if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
        fix = "give the ids of one text, whole numbers [T]"
        raise InputError("tokens", f"array of {ids.dtype}, shape {ids.shape}", fix)
    try:
        count = model.get_input_embeddings().weight.shape[0]
    except (AttributeError, NotImplementedError):  # the model itself will tell
        count = int(ids.max()) + 1
    if ids.min() < 0 or ids.max() >= count:
        raise InputError("tokens", int(ids.max()), f"must be ids from 0 to {count - 1}")
    return ids.astype(np.int64)


def _refuse_model(model: Any) -> None:
    """Refuse what does not run on token ids alone, or not twice alike.

    Raises:
        InputError: no model of the library; of images or sound; with a decoder of its own; in
            training mode.
    """
    name, out = type(model).__name__, "or give q and k to measure()"
    if not all(hasattr(model, x) for x in ("set_attn_implementation", "main_input_name", "config")):
        raise InputError("model", name, f"give a model of the transformers library, {out}")
    takes = inspect.signature(model.forward).parameters
    main = model.main_input_name
    if main != "input_ids":
        raise InputError("model", name, f"takes {main}, not token ids; give a text model, {out}")
    if "decoder_input_ids" in takes:
        fix = "is an encoder with a decoder, which read two texts; measure model.get_encoder(), or"
        raise InputError("model", name, f"{fix} model.get_decoder() alone, {out}")
    if any(part.training for part in model.modules()):
        fix = "is in training mode, where dropout is random; call model.eval() first"
        raise InputError("model", name, fix)


def _not_run(model: Any, length: int, error: Exception) -> InputError:
    """The refusal of a model whose own code failed."""
    why = " ".join(f"{type(error).__name__}: {error}".split())[:120]
    beside = [name for name in _BESIDE if name in inspect.signature(model.forward).parameters]
    fix = f"takes {beside[0]} as well; give its text model" if beside else "shorten the text"
    what = f"could not be run on these {length} token ids alone ({why})"
    return InputError("model", type(model).__name__, f"{what}; {fix}, or give q and k to measure()")


def _causal(module: Any, given: dict[str, Any]) -> bool:
    """Whether a layer without a mask looks back only."""
    said = given.get("is_causal")
    return bool(getattr(module, "is_causal", True) if said is None else said)


def _looks_back(mask: Any) -> bool:
    """Whether no key after its query is seen: a window, or padding, is a mask too."""
    seen = mask if mask.dtype == bool else mask > HIDDEN
    return not np.triu(seen, 1).any()


def _refuse_other(module: Any, query: Any, key: Any, given: dict[str, Any]) -> None:
    """Refuse a layer that is not softmax of q·k over one text."""
    cached = given.get("cache") is not None
    if cached or query.shape[2] != key.shape[2]:
        what = "takes a cache" if cached else "looks at another text"
        fix = f"only attention over the text itself is measured; {_WAYS}"
        raise InputError("model", type(module).__name__, f"{what}; {fix}")


def _layer(
    query: Any, key: Any, causal: bool, mask: Any, sink: int | None, of: Sequence[str], given: Any
) -> dict[str, Any]:
    """One layer measured, with its soft cap and its learned sink, if it has them."""
    q, k = (x[0].detach().float().cpu().numpy() for x in (query, key))
    options = {"scale": given.get("scaling"), "softcap": given.get("softcap")}
    options["sink_logits"] = given.get("s_aux")
    return measured(of_queries(q, k, causal=causal, mask=mask, **options), sink, of)


def _output(query: Any, key: Any, value: Any, mask: Any, causal: bool, given: Any) -> Any:
    """What a layer with a soft cap or a learned sink passes on, [1, T, heads, d]."""
    torch = library("torch", "torch")
    shared, length = query.shape[1] // key.shape[1], query.shape[2]
    key, value = (x.repeat_interleave(shared, 1) for x in (key, value))
    scale, cap, unit = (given.get(name) for name in ("scaling", "softcap", "s_aux"))
    logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if cap is not None:
        logits = cap * torch.tanh(logits / cap)
    if mask is None and causal:
        mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        logits = logits.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        logits = logits + mask
    if unit is not None:
        beside = unit.to(logits.dtype).reshape(1, -1, 1, 1).expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, beside], -1)
    p = torch.softmax(logits, -1, dtype=torch.float32)[..., :length]
    return (p.to(value.dtype) @ value).transpose(1, 2).contiguous()


def _by_weights(
    model: Any, ids: Any, plain: Any, sink: int | None, of: Sequence[str]
) -> tuple[list[dict[str, Any]], bool]:
    """The layers of a model that has attention functions of its own, from what it returns.

    Args:
        model: the model.
        ids: of the text.
        plain: what it returned when it was not asked for weights.
        sink: position of the sink key.
        of: what else to measure.

    Raises:
        InputError: it returns no attention weights, or others than those it runs with.
    """
    torch = library("torch", "torch")
    try:
        with torch.no_grad():
            out = model(input_ids=ids, use_cache=False, output_attentions=True)
        weights = [x[0].float().cpu().numpy() for x in out.attentions]
    except Exception as error:  # whatever the code of a model raises
        fix = f"did not ask the library for its attention function, nor return weights; {_WAYS}"
        raise InputError("model", type(model).__name__, fix) from error
    if not torch.allclose(out[0], plain[0], rtol=1e-2, atol=1e-2 * float(plain[0].abs().max())):
        fix = "runs another attention when it returns weights; load it with "
        fix += "attn_implementation='eager'"
        raise InputError("model", type(model).__name__, fix)
    causal = not any(np.triu(x, 1).any() for x in weights)
    return [measured(of_weights(x, causal=causal), sink, of) for x in weights], causal


def measure_transformers(
    model: Any, tokens: Any, *, sink: int | None = None, of: str | Sequence[str] = ()
) -> xarray.Dataset:
    """Measure the self-attention of a `transformers` model on one text.

    The model runs once, with an attention function that measures q, k, scale and mask of each layer
    and leaves the rest to the library's own; its former function is put back. A model with an
    attention of its own (Falcon, Bloom) runs once more for its weights, without logits.

    Args:
        model: a model of the library, on any device and of any type, after `model.eval()`.
        tokens: token ids [T], as the model's tokenizer gives them.
        sink: position of the key that is looked at as a sink; None for the first in sight.
        of: what else to measure, as `sparsity.measure` has it.

    Returns:
        As `sparsity.measure` with its `sink_logits`, where there are learned sinks.

    Raises:
        InputError: a model in training mode, one that does not run on token ids alone, or attention
            that is over another text, or that the model does not show.
    """
    also = asked.names(of)
    torch, extra = library("torch", "torch"), "'sparsity[transformers]'"
    transformers = library("transformers", extra)
    sdpa_mask = library("transformers.masking_utils", extra).sdpa_mask
    _refuse_model(model)
    ids = torch.as_tensor(_ids(model, tokens))[None].to(model.device)
    interface, layers, ways = transformers.AttentionInterface(), [], set()
    kept = model.config._attn_implementation

    def attend(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **given: Any
    ) -> Any:
        _refuse_other(module, query, key, given)
        mask = _mask(attention_mask, given.get("position_bias"))
        causal = _causal(module, given) if attention_mask is None else _looks_back(mask)
        ways.add((query.shape[1], causal))
        if len(ways) > 1:
            fix = "has layers of several kinds or sizes; give q and k of each kind to measure()"
            raise InputError("model", type(model).__name__, fix)
        layers.append(_layer(query, key, causal, mask, sink, also, given))
        if given.get("softcap") is None and given.get("s_aux") is None:
            return interface["sdpa"](module, query, key, value, attention_mask, **given)
        return _output(query, key, value, attention_mask, causal, given), None

    transformers.AttentionInterface.register(_NAME, attend)
    transformers.AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)
    try:
        with torch.no_grad():
            plain = model(input_ids=ids, use_cache=False)
    except InputError:
        raise
    except Exception as error:  # whatever the code of a model raises
        raise _not_run(model, ids.shape[1], error) from error
    finally:
        model.set_attn_implementation(kept)
    attributes = {"title": "attention of a model, measured", "model": type(model).__name__}
    attributes["measured_from"] = "queries and keys" if layers else "attention weights"
    if layers:
        ((_, causal),) = ways
    else:
        layers, causal = _by_weights(model, ids, plain, sink, also)
    attributes["sink"] = "the first key that a row sees" if sink is None else int(sink)
    return dataset(layers, attributes | {"causal": int(causal)})
