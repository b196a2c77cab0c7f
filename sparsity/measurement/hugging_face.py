"""Any model of the `transformers` library, through its public interface for attention functions."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.errors import InputError
from sparsity.measurement import asked
from sparsity.measurement.labels import dataset, measured
from sparsity.measurement.sources import HIDDEN, of_queries
from sparsity.models.checkpoint import library

if TYPE_CHECKING:
    import xarray

_NAME = "sparsity"  # of the attention function
_BESIDE = ("pixel_values", "input_values", "input_features")  # what some models take beside a text
_OTHER = ("softcap", "s_aux", "cache")  # what makes weights other than softmax(scale·q·k + mask)


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
        fix = "is an encoder with a decoder, which read two texts; measure model.get_encoder()"
        raise InputError("model", name, f"{fix}, {out}")
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
    odd = [name for name in _OTHER if given.get(name) is not None]
    if odd or query.shape[2] != key.shape[2]:
        what = f"takes {odd[0]}" if odd else "looks at another text"
        fix = "; only softmax(scale·q·k + mask) over the text itself is measured"
        raise InputError("model", type(module).__name__, what + fix)


def measure_transformers(
    model: Any, tokens: Any, *, sink: int = 0, of: str | Sequence[str] = ()
) -> xarray.Dataset:
    """Measure the self-attention of a `transformers` model on one text.

    The model runs once, with an attention function that measures q, k, scale and mask of each layer
    and leaves the rest to the library's own; its former function is put back.

    Args:
        model: a model of the library, on any device and of any type, after `model.eval()`.
        tokens: token ids [T], as the model's tokenizer gives them.
        sink: position of the key that is looked at as a sink.
        of: what else to measure, as `sparsity.measure` has it.

    Returns:
        As `sparsity.measure`.

    Raises:
        InputError: a model in training mode, one that does not run on token ids alone, or attention
            that is not softmax of q·k over the text itself.
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
        q, k = (x[0].detach().float().cpu().numpy() for x in (query, key))
        source = of_queries(q, k, scale=given.get("scaling"), causal=causal, mask=mask)
        layers.append(measured(source, sink, also))
        return interface["sdpa"](module, query, key, value, attention_mask, **given)

    transformers.AttentionInterface.register(_NAME, attend)
    transformers.AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)
    try:
        with torch.no_grad():
            model(input_ids=ids, use_cache=False)
    except InputError:
        raise
    except Exception as error:  # whatever the code of a model raises
        raise _not_run(model, ids.shape[1], error) from error
    finally:
        model.set_attn_implementation(kept)
    if not layers:
        fix = "did not ask the library for its attention function; give q and k to measure()"
        raise InputError("model", type(model).__name__, fix)
    ((_, causal),) = ways
    attributes = {"title": "attention of a model, measured", "model": type(model).__name__}
    return dataset(layers, attributes | {"sink": int(sink), "causal": int(causal)})
