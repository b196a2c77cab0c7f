"""The monitor of PyTorch's tensors: on their device, every statistic, those of the JAX one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sparsity import InputError, monitor, monitoring
from sparsity.attention.library import library
from sparsity.attention.monitoring import OF, log, penalty, torch_monitor

pytestmark = pytest.mark.model  # needs the extra [transformers]; run with `pytest -m model`


def drawn(dtype="float32"):
    torch, rng = library("torch", "torch"), np.random.default_rng(0)
    made = rng.normal(size=(2, 4, 40, 16)), rng.normal(size=(2, 2, 40, 16))
    return [torch.tensor(x).to(getattr(torch, dtype)) for x in made]


@pytest.mark.parametrize(("ours", "theirs"), [
    ({}, {}), ({"rows": None}, {"rows": None}), ({"rows": [3, 39]}, {"rows": [3, 39]}),
    ({"causal": False}, {"causal": False}), ({"scale": 0.7}, {"scale": 0.7}),
    ({"softcap": 1.5}, {"softcap": 1.5}),
])  # fmt: skip
def test_the_statistics_are_those_of_the_monitor_in_jax(ours, theirs):
    q, k = drawn()
    found, true = torch_monitor(q, k, **ours), monitor(q.numpy(), k.numpy(), **theirs)
    assert set(found) == set(true) == set(OF)
    assert len(OF) == 8
    for name, x in found.items():
        assert x.device == q.device
        assert not x.requires_grad
        assert_allclose(x.numpy(), true[name], rtol=2e-5, atol=2e-5, err_msg=name)
    told, other = log(found), log(true)
    assert told.keys() == other.keys()
    for name, x in told.items():
        assert x == pytest.approx(other[name], rel=1e-4, abs=1e-4), name


def test_learned_sinks_and_half_precision():
    torch = library("torch", "torch")
    q, k = drawn("bfloat16")
    unit = torch.tensor([0.0, 1.0, 2.0, 3.0])
    found = torch_monitor(q.requires_grad_(), k, unit=unit)
    true = monitor(q.detach().float().numpy(), k.float().numpy(), sink_logits=unit.numpy())
    for name, x in found.items():
        assert_allclose(x.float().numpy(), true[name], rtol=2e-5, atol=2e-5, err_msg=name)
    other = torch_monitor(q, k)
    assert not np.allclose(other["sink_mass"].numpy(), found["sink_mass"].numpy(), rtol=0.01)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_statistic_goes_to_the_host(device, monkeypatch):
    """Asked by forbidding it: the calls that would bring a tensor there are taken away."""
    torch = library("torch", "torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    q, k = (x.to(device) for x in drawn())

    def refuse(*_):
        raise AssertionError("a tensor was brought to the host")

    for call in ("cpu", "numpy", "item", "tolist", "__bool__", "__float__", "__array__"):
        monkeypatch.setattr(torch.Tensor, call, refuse)
    found = torch_monitor(q, k)
    with pytest.raises(AssertionError, match="brought to the host"):
        found["n_eff"].cpu()
    assert {x.device.type for x in found.values()} == {device}


def test_errors():
    q, k = drawn()
    for make, match in (
        (lambda: monitor(q, k), "queries = tensor of PyTorch: give it to"),
        (lambda: torch_monitor(q.numpy(), k), "queries = ndarray"),
        (lambda: penalty(q, k, low=2), "torch_penalty, which leaves it"),
        (lambda: torch_monitor(q, k[0]), "heads, tokens, dim"),
        (lambda: torch_monitor(q[:, :, -2:], k), "2 queries and .* give as many"),
        (lambda: torch_monitor(q, k, causal="no"), "causal = no"),
        (lambda: torch_monitor(q, k, window=3), "window = 3: torch_monitor does not take it"),
        (lambda: torch_monitor(q, k, rows=[99]), "rows"),
    ):
        with pytest.raises(InputError, match=match):
            make()


def test_what_is_nan_hides_no_key_and_no_penalty():
    """A bias, a score_mod or a head of NaN: the rows see as many keys as before, and are NaN."""
    torch = library("torch", "torch")
    q, k = torch.randn(2, 1, 4, 12, 8, generator=torch.Generator().manual_seed(0))
    bias = torch.zeros(1, 4, 12, 12)
    bias[:, 1, 5:] = torch.nan

    def score_mod(s, b, h, i, j):
        return torch.where((h == 1) & (i >= 5), torch.nan, s)

    gone = q.clone()
    gone[:, 1, 5:] = torch.nan
    for queries, how in ((q, {"bias": bias}), (q, {"score_mod": score_mod}), (gone, {})):
        found = monitoring.torch_monitor(queries, k, rows=None, **how)
        assert found["length"].tolist() == [[[*range(1, 13)]] * 4]
        bad = torch.isnan(found["n_eff"])
        assert bad[0, 1, 5:].all()
        assert bad.sum() == 7
        assert monitoring.log({name: x.numpy() for name, x in found.items()})["all/bad_rows"] == 7
        assert torch.isnan(monitoring.torch_penalty(queries, k, low=2, rows=None, **how))
    assert torch.isfinite(monitoring.torch_penalty(q, k, "gamma", low=2, rows=None))
