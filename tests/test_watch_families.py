"""The watch over tiny random models of the families of transformers, against their own weights.

What it tells of a family is the weights that the model itself returns, or it says in a line that
it was not seen; the outputs stay the same, bit for bit.
"""

import warnings
from collections import Counter

import families
import numpy as np
import pytest

from sparsity.attention.library import library
from sparsity.attention.monitoring import Watch
from sparsity.attention.torch.call import Output

pytestmark = pytest.mark.model  # needs the extra [transformers]; run with `pytest -m model`

FEW = ("albert", "bert", "bloom", "diffllama", "gemma2", "gpt2", "gpt_neo", "gpt_oss", "mamba",
       "t5")  # fmt: skip


def inputs_of(model, ids):
    given = {"input_ids": library("torch").as_tensor(ids)[None]}
    if getattr(model.config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = given["input_ids"][:, :30]
    return given


def run(model, given, **more):
    """The output of a pass; some models take no `use_cache`."""
    with library("torch").no_grad():
        try:
            return model(**given, use_cache=False, **more)
        except TypeError:
            return model(**given, **more)


def own_weights(model, given):
    """All matrices that the model returns as weights, [heads, rows, keys]."""
    model = families.with_eager_attention(model)
    out = run(model, given, output_attentions=True)
    found = [x for name in out if "attentions" in name for x in out[name] or ()]
    found = [y for x in found for y in (x if isinstance(x, tuple | list) else [x])]
    return [np.moveaxis(x.double().numpy(), 1, 0).reshape(x.shape[1], -1, x.shape[-1])
            for x in found if getattr(x, "ndim", 0) == 4]  # fmt: skip


def distance(found, p):
    """The largest relative deviation of n and n_eff of any row from a matrix of weights.

    A weight may be 0 in single precision: n is of the head itself, or of all heads together.
    """
    own, n_eff = (p > 0).sum(-1), p.sum(-1) ** 2 / (p * p).sum(-1)
    length = np.where(found["length"] == (p > 0).any(0).sum(-1), 0, found["length"] / own - 1)
    off = [np.abs(length), np.abs(found["n_eff"] / n_eff - 1)]
    return np.inf if np.isnan(off).any() else float(np.max(off))


def first(out):
    return next(iter(out.values())) if hasattr(out, "values") else out[0]


def judge(model, ids):
    """(verdict, why): equal, said, untold (nothing to hold it against), or what is wrong."""
    torch, given = library("torch"), inputs_of(model, ids)
    try:
        with families.quiet():
            plain = first(run(model, given))
            steady = torch.equal(plain, first(run(model, given)))
    except Exception as error:  # noqa: BLE001  models raise anything
        return "does not run", f"{type(error).__name__}: {error}"
    with warnings.catch_warnings(record=True) as caught, families.quiet():
        warnings.simplefilter("always")
        with Watch(model, rows=None) as watch:
            warnings.simplefilter("always")
            seen = first(run(model, given))
            found = watch.read()
    said = [str(x.message) for x in caught if str(x.message).startswith("Watch")]
    said = said or [f"Watch: {x}" for x in set(watch.unseen.values())]
    if steady and not torch.equal(plain, seen):
        return "wrong", "another output"
    try:
        with families.quiet():
            pool = own_weights(model, given)
    except Exception as error:  # noqa: BLE001  models raise anything
        return "untold", f"{len(found)} seen; {type(error).__name__}: {error}; {said}"
    worst = 0.0
    for path, layer in found.items():
        near = [distance(layer, p) for p in pool if p.shape[:2] == layer["n_eff"].shape]
        if near and not min(near) < families.TOLERANCE:
            return "wrong", f"{path}: {min(near):.1e}"
        worst = max(worst, min(near, default=0.0))
    if len(said) > 3 or (len(found) < len(pool) and not said):
        return "wrong", f"{len(found)} seen of {len(pool)}, {len(said)} lines"
    if not found:
        return ("said", said[0]) if said else ("wrong", "nothing seen, nothing said")
    return ("equal", f"{worst:.1e}, {len(found)} of {len(pool)} {said}")


def judged(chosen, implementation="eager"):
    for name, model, ids in families.models(chosen, implementation):
        if isinstance(model, Exception):
            yield name, "not built", str(model)
        else:
            yield name, *judge(model, ids)


EXPECTED = {"bloom": "said", "gpt_neo": "said", "mamba": "said"}


def test_families_are_seen_as_they_are_or_said_not_to_be():
    found = {name: verdict for name, verdict, _ in judged(FEW)}
    assert found == {name: EXPECTED.get(name, "equal") for name in FEW}


def test_a_layer_shared_or_halved_has_its_own_rows():
    torch = library("torch")
    for name, paths in (("albert", 2), ("diffllama", 2)):
        ((_, model, ids),) = families.models([name])
        with Watch(model, rows=None) as watch, torch.no_grad():
            model(**inputs_of(model, ids))
        found = watch.read()
        assert len(found) == paths
        assert all(x["n_eff"].shape == (4, families.T) for x in found.values())
        assert sum("#" in path for path in found) == (2 if name == "albert" else 0)


def test_checkpoints_count_once():
    """Rows of a model that computes its layers again in the backward pass are those of one pass."""
    ((_, model, ids),) = families.models(["llama"])
    given, shapes = inputs_of(model, ids), []
    for reentrant in (None, True, False):
        if reentrant is not None:
            with families.quiet():
                model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.train()
        with Watch(model, rows=None) as watch:
            model(**given, labels=given["input_ids"], use_cache=False).loss.backward()
        shapes.append([(path, x["n_eff"].shape) for path, x in watch.read().items()])
    assert shapes[0] == shapes[1] == shapes[2]
    assert len(shapes[0]) == 2


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["llama", "bert", "gpt2"])
def test_compiled_and_in_half_precision_the_rows_are_the_same(name, implementation):
    torch = library("torch")
    ((_, model, ids),) = families.models([name], implementation)
    given = inputs_of(model, ids)

    def seen(watched, **more):
        with Watch(watched, rows=None) as watch, torch.no_grad():
            watched(**given)
        assert not watch.unseen
        return watch.read()

    plain = seen(model)
    torch._dynamo.reset()
    compiled = seen(torch.compile(model, backend="eager"))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = seen(model)
    assert list(plain) == list(compiled) == list(rounded)
    for path, layer in plain.items():
        np.testing.assert_allclose(compiled[path]["n_eff"], layer["n_eff"], rtol=1e-5)
        assert np.abs(rounded[path]["n_eff"] / layer["n_eff"] - 1).mean() < 0.2
        assert (rounded[path]["length"] == layer["length"]).all()


def test_a_reading_of_something_else_is_found(monkeypatch):
    """The judge itself: with the gate of outputs open, a wrong scale of a family is wrong."""
    tensors = library("sparsity.attention.torch.rows")
    right = tensors.logits
    monkeypatch.setattr(Output, "check_rows", lambda made, s, *rest: s[..., 0].isnan())
    monkeypatch.setattr(tensors, "logits", lambda *x: (1.1 * right(*x)[0], right(*x)[1]))
    assert [verdict for _, verdict, _ in judged(["llama"])] == ["wrong"]


@pytest.mark.slow
def test_all_families():
    table = list(judged(None, "sdpa"))  # test_families.py has all of them eagerly
    totals = Counter(verdict for _, verdict, _ in table)
    for name, verdict, why in table:
        print(f"{name:28} {verdict:12} {' '.join(why.split())[:160]}")
    print(dict(totals))
    assert [row for row in table if row[1] == "wrong"] == []
    assert totals["equal"] + totals["said"] >= 120
