"""Weights of whole rows: what holds of every map, and what is refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from row_map_samples import MAPS, law, rows

import sparsity
from sparsity import InputError, Row, kernels, panel, quantities
from sparsity.exact_law import map_laws


@pytest.mark.parametrize("kernel", MAPS, ids=lambda kernel: kernel.name)
def test_a_definition_holds_on_concrete_rows(kernel):
    compiled, every = (1, 9), {n: rows(n) for n in (1, 2, 9, 64)}
    weigh = jax.jit(lambda some: [kernel.weights(s) for s in some])
    on_device = dict(zip(compiled, weigh([every[n] for n in compiled]), strict=True))
    for n, s in every.items():
        p = kernel.weights(s)
        left = 0 if kernel.residual_mass is None else kernel.residual_mass(s)
        assert p.shape == s.shape
        assert (p >= 0).all()
        assert_allclose(p.sum(-1) + left, 1, rtol=1e-12)
        if n in on_device:
            assert_allclose(on_device[n], p, rtol=1e-12, atol=1e-13)
        assert_allclose(kernel.weights(s.astype(np.float32)), p, rtol=2e-3, atol=2e-5)
        free = kernel.name != "stick-breaking"  # β drops out
        assert np.allclose(kernel.weights(s + 3.0), p, atol=1e-12) == free or n == 1


@pytest.mark.parametrize("kernel", MAPS, ids=lambda kernel: kernel.name)
def test_a_map_is_first_class(kernel, command):
    assert kernels.named(kernel.name) == kernel
    row = Row(kernel.name, beta=0.0, gamma=1.5)
    assert row.kernel == kernel
    assert eval(repr(row), {"Row": Row}) == row
    assert panel.opened(row).shown == (kernel.name,)
    code, out, err = command("list")
    assert (code, err) == (0, "")
    assert any(line.startswith(f"{kernel.name} ") for line in out.splitlines())
    for ask in (
        lambda: sparsity.derive(kernel.name),
        lambda: sparsity.evaluate(row),
        lambda: sparsity.evaluate(kernel.name, beta=0.0, gamma=1.0),
        lambda: sparsity.design(row, length=64, n_eff=3.0),
        lambda: sparsity.sweep(row, gamma=[1.0, 2.0]),
        lambda: sparsity.stacks.mixing.Stack(kernel=kernel.name),
    ):
        with pytest.raises(InputError, match=r"its weights depend on the whole row; use exact"):
            ask()
    with pytest.raises(InputError, match="law of its scores or set a needle"):
        row.then(sparsity.Alibi(0.1))


def test_what_is_said_of_a_map_has_its_numbers():
    for name, says in (
        ("entmax:1.25", "(0.25·s_j − τ)₊^4, τ: Σ = 1"),
        ("topk:3", "e^s_j/Σ of the 3 largest s_j"),
        ("router:2,1,0.5", "e^s_j/Σ over all, of the 2 largest proxies beside the last 1 and a sink"
                           " of logit 0.5"),
    ):  # fmt: skip
        assert kernels.named(name).formula == says


def test_a_map_without_a_law_is_not_verified():
    without = [kernel for kernel in MAPS if not map_laws.known(kernel)]
    assert without
    for kernel in without:
        with pytest.raises(InputError, match="has no exact law; estimate samples it"):
            sparsity.verify(Row(kernel, beta=0.0, gamma=1.0), length=6)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("derive sparsemax", "kernel = sparsemax: its weights depend on the whole row"),
        ("eval sparsemax --gamma 2", "kernel = sparsemax: its weights depend on the whole row"),
        ("exact sparsemax --gamma 2 --length 9 --of entropy", "of = entropy: sparsemax has"),
        (
            "exact sparsemax --gamma 2 --length 9 --step alibi:1",
            "steps = (Alibi(slope=1),): sparsemax",
        ),
        ("estimate sparsemax --gamma 2 --length 9 --decay 0.5", "decay = 0.5: sparsemax does not"),
        ("estimate sparsemax --gamma 2 --length 2000000", "length = 2000000: sparsemax needs"),
        ("design sparsemax --length 9 --n-eff 3", "kernel = sparsemax: its weights depend"),
    ],
)
def test_what_is_refused_is_refused_in_one_line(command, line, says):
    code, out, err = command(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"sparsity: {says}")
    assert err.count("\n") == 1


def test_an_entry_says_all_of_a_law(monkeypatch):
    """What is slow, and where rows are one key, of a family that no other line knows."""
    of, other = quantities.n_eff, quantities.participation
    three = map_laws.MapLaw((of, other).__contains__, lambda row, quantity, n: (7 * n, 0 * n))
    mine = replace(kernels.named("sparsemax"), name="mine", title="mine")
    length = np.array([5.0])
    for order, value in ((None, 35.0), (3.0, 1.0)):
        entry = three._replace(slow=of.__eq__, order=order)
        monkeypatch.setitem(map_laws._LAWS, "mine", entry)
        assert (map_laws.slow(mine, of), map_laws.slow(mine, other)) == (True, False)
        assert map_laws.mean_over_map_rows(Row(mine, gamma=1e17), of, length)[0] == value
    assert map_laws.known(mine) == ("n_eff", "participation")
    assert not map_laws.slow(replace(mine, name="unknown"), of)


@pytest.mark.thorough
def test_a_map_without_a_law_is_sampled_and_again_from_its_seed():
    mine = replace(kernels.entmax15, name="mine")
    row = Row(mine, beta=0.0, gamma=2.0)
    asked = {"length": 16, "of": ["support", "entropy"], "montecarlo": True, "rel_error": 0.01}
    data = sparsity.sweep(row, **asked)
    support, error = (float(data[name].squeeze()) for name in ("support_mc", "stderr_support_mc"))
    assert error < 0.0105 * support
    assert sparsity.sweep(row, **asked)["support_mc"].values == data["support_mc"].values
    known = law("entmax1.5", "support", gamma=2.0, length=16)
    assert abs(support - known.value) < 4.5 * error
    assert {"support_mc", "entropy_mc"} <= {str(name) for name in data}
    assert "entropy" not in data
    with pytest.raises(InputError, match="mine has no exact law; estimate samples it"):
        law(row, length=64)
    with pytest.raises(InputError, match="has no exact law; estimate samples it"):
        sparsity.verify(row, length=64)
