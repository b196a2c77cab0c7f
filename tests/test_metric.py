"""The metric on rows whose sparsity is known exactly, in NumPy and JAX, at every scale."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsity
from sparsity import InputError, entropy, gini, hoyer, metric

# (row, ‖a‖₁², ‖a‖₂²): whole numbers, so that S = √(l1²/(n·l2²)) and n_eff = l1²/l2² are exact.
ROWS = [
    ([1, 1, 1, 1], 16, 4),
    ([0, 0, 5, 0], 25, 25),
    ([3], 9, 9),
    ([3, 4], 49, 25),
    ([1, -1, 1, -1, 1, -1, 1, -1, 1], 81, 9),
    ([1, 2, 4, 8, 16, 32], 63**2, (4**6 - 1) // 3),
]
EPS = float(np.finfo(np.float64).eps)


def both(rows):
    """n_eff and S of each row."""
    return [(metric.n_eff(a), metric.S(a)) for a in rows]


@pytest.mark.parametrize("measured", [both, jax.jit(both)], ids=["numpy", "jax"])
@pytest.mark.parametrize("scale", [1.0, -2.5, 2.0**-900, 1e300])
def test_exact_rows_at_every_scale(measured, scale):
    found = measured([np.array(row, dtype=np.float64) * scale for row, _, _ in ROWS])
    for (row, l1_square, l2_square), (tokens, S) in zip(ROWS, found, strict=True):
        n_eff = l1_square / l2_square
        assert float(tokens) == pytest.approx(n_eff, rel=8 * EPS)
        assert float(S) == pytest.approx((n_eff / len(row)) ** 0.5, rel=8 * EPS)


def test_whole_number_and_single_precision_rows():
    assert metric.S(np.array([3, 4])) == pytest.approx(7 / np.sqrt(50), rel=1e-15)
    large = np.array([3e30, 4e30], dtype=np.float32)  # its squares overflow float32
    for a in (large, jnp.array(large)):
        assert float(metric.S(a)) == pytest.approx(7 / np.sqrt(50), rel=1e-6)
        assert a.dtype == metric.S(a).dtype == np.float32


AXES = (0, 1, 2, -2)
METRICS = (metric.S, metric.n_eff, hoyer, gini, entropy)


def along_axes(a):
    return [[of(a, axis=axis) for of in METRICS] for axis in AXES]


@pytest.mark.parametrize("measured", [along_axes, jax.jit(along_axes)], ids=["numpy", "jax"])
def test_axes(measured):
    a = np.arange(1.0, 25.0).reshape(2, 3, 4)
    for axis, each in zip(AXES, measured(a), strict=True):
        for of, found in zip(METRICS, map(np.asarray, each), strict=True):
            rows = np.moveaxis(a, axis, -1)
            assert found.shape == rows.shape[:-1]
            for at in np.ndindex(found.shape):
                assert found[at] == pytest.approx(float(of(rows[at])), rel=8 * EPS)


@pytest.mark.parametrize("of", METRICS)
def test_every_metric_has_one_domain(of):
    """Signed weights are |a|; no scale, no byte order and no type of NumPy makes a difference."""
    row = np.array([[4.0, -3.0, 0.0, 1.0], [-0.5, 0.5, 2.0, -1e-9]])
    true = of(abs(row))
    for scale in (1.0, -1.0, 1e-300, 4e307):
        np.testing.assert_allclose(of(scale * row), true, rtol=1e-12)
    for kind in (">f8", "<f8", "longdouble"):
        np.testing.assert_allclose(of(row.astype(kind)), true, rtol=1e-12)
    np.testing.assert_allclose(of(jnp.asarray(row, jnp.float32)), true, rtol=1e-5)


def test_the_metrics_of_a_few_rows_by_hand():
    assert gini([1e308, 5e307]) == pytest.approx(1 / 6, rel=1e-14)
    assert entropy([1.0, -3.0]) == pytest.approx(np.log(4) - 0.75 * np.log(3), rel=1e-14)
    # p = 1/(1 + u) and its logarithm, of a unit from far below the weight to far above it.
    for weight, unit in ((1e-300, 1e5), (1e-300, 1e9), (1e-300, 1e-300), (3.0, 1.0), (1e300, 1.0)):
        p = weight / (weight + unit)
        true = (
            p * (np.log(weight + unit) - np.log(weight)) if unit >= weight * 0.1 else unit / weight
        )
        assert entropy([weight, 0.0], unit) == pytest.approx(true, rel=1e-6), (weight, unit)
    for unit in (-3.0, np.inf):
        with pytest.raises(InputError, match=f"unit = {unit:.0f}"):
            entropy([1.0, 2.0], unit)


def test_all_zero_rows_have_no_sparsity():
    a = np.array([[0.0, 0, 0], [0, 1, 0]])
    with np.errstate(invalid="ignore"):
        found = [np.asarray(of(x)) for of in (metric.S, metric.n_eff)
                 for x in (a, jnp.array(a))]  # fmt: skip
    assert len(found) == 4
    for values in found:
        assert np.isnan(values[0])
        assert np.isfinite(values[1])


@pytest.mark.parametrize("of", [metric.S, gini, entropy])
def test_every_type_of_numbers_has_the_value_of_double_precision(of):
    rng, single = np.random.default_rng(0), (np.float16, jnp.bfloat16, np.float32)
    row = rng.integers(1, 128, (2, 300))
    signed = np.where(rng.random(row.shape) < 0.5, -row, row)
    signed[0, :2] = -128
    true = of(signed.astype(float))
    kinds = (
        np.int8,
        np.uint8,
        np.int16,
        np.int64,
        np.float16,
        jnp.bfloat16,
        np.float32,
        np.float64,
    )
    for kind in kinds:
        own = np.abs(signed).astype(kind) if kind == np.uint8 else signed.astype(kind)
        for a in (own, jnp.asarray(own)):
            found = of(a)
            assert found.dtype in (np.float32, np.float64)
            double = found.dtype == np.float64 and kind not in single
            np.testing.assert_allclose(found, true, rtol=1e-12 if double else 1e-5)
    if of is metric.S:  # as it was: |−128| is −128 in eight bits
        wrong = np.abs(signed.astype(np.int8))
        wrong = wrong / wrong.max(-1, keepdims=True)
        assert abs(wrong.mean(-1) / (wrong**2).mean(-1) ** 0.5 - true).max() > 1e-3


BAD = {
    "complex": np.ones(3) * 1j, "masked": np.ma.masked_array([1.0, 2.0], [0, 1]), "bool": [True],
    "text": ["a"], "none": None, "empty": [], "number": 3.0,
    "dates": np.array(["2020"], "M8[D]"), "object": object(),
}  # fmt: skip


@pytest.mark.parametrize("of", METRICS)
def test_what_is_no_row_is_refused(of):
    for bad in BAD.values():
        with pytest.raises(InputError):
            of(bad)
    with pytest.raises(InputError, match="axis"):
        of([1.0, 2.0], axis=1)


def test_two_rows_are_of_as_many_keys():
    for of in (metric.overlap, functools.partial(metric.top_k_overlap, k=1)):
        with pytest.raises(InputError, match=r"b = rows of 2 weights: .* 3"):
            of([1, 2, 3], [1, 2])
        with np.errstate(invalid="ignore"):
            assert np.isnan([of([0, 0], [1, 2]), of([1, 2], [0, 0])]).all()


@pytest.mark.thorough
def test_the_face_takes_arrays_of_every_library():
    """`sparsity.n_eff(weights)` and its kin; what JAX gives stays with JAX."""
    a = np.array([[1.0, 1.0, 0.0], [1.0, 2.0, 1.0]])
    assert sparsity.n_eff(a).tolist() == [2.0, pytest.approx(16 / 6)]
    for name in ("S", "n_eff", "hoyer", "gini", "entropy"):
        of = getattr(sparsity, name)
        np.testing.assert_allclose(of(a.T, axis=0), of(a), rtol=1e-14)
        found = of(jnp.asarray(a, jnp.float32))
        assert isinstance(found, jax.Array)
        np.testing.assert_allclose(found, of(a), rtol=1e-6)
        with pytest.raises(InputError, match="axis"):
            of(a, axis=2)


def _shared(a, b, k):
    """Of one row: the share of its k largest that are so in the other; of equals the first."""
    sets = [{j for j in sorted(range(len(x)), key=lambda j: -x[j])[:k] if x[j]} for x in (a, b)]
    return len(sets[0] & sets[1]) / len(sets[0])


# Of weights >= 0 of a row, those of another, and a weight beside them.
DEFINED = {
    "S": lambda a, b, unit: a.sum() / np.sqrt(len(a) * (a * a).sum()),
    "n_eff": lambda a, b, unit: a.sum() ** 2 / (a * a).sum(),
    "hoyer": lambda a, b, unit: (1 - DEFINED["S"](a, b, unit)) / (1 - len(a) ** -0.5),
    "gini": lambda a, b, unit: abs(np.subtract.outer(a, a)).sum() / (2 * len(a) * a.sum()),
    "entropy": lambda a, b, unit: sum(p * -np.log(p) for p in a / (a.sum() + unit) if p > 0),
    "varentropy": lambda a, b, unit: np.cov(np.log(a[a > 0]), aweights=a[a > 0], ddof=0),
    "overlap": lambda a, b, unit: (a * b).sum() / a.sum() / b.sum(),
    **{f"top_k_overlap:{k}": lambda a, b, unit, k=k: _shared(a, b, k) for k in (1, 3, 9)},
}


@pytest.mark.parametrize("name", DEFINED)
def test_rows_and_their_logarithms_have_the_value_of_the_definition(name):
    """Ties, zeros, one-hot and uniform rows, in any place of an array, and a unit for each row."""
    rng = np.random.default_rng(5)
    a, b = (rng.exponential(size=(2, 3, 4, 6)) ** 2).round(1)
    a[0, 0], a[0, 1], a[1, 1], b[1, 2] = np.eye(6)[2], 0.7, [5, 2, 2, 2, 0, 1], [0, 0, 3, 3, 3, 0]
    unit = rng.choice([0.0, 0.5, 30.0], (3, 4))
    of, k = getattr(metric, name.partition(":")[0]), name.partition(":")[2]
    pair, more = (b,) if "overlap" in name else (), {"k": int(k)} if k else {}
    own = more | ({"unit": unit} if name == "entropy" else {})
    true = [[DEFINED[name](*x) for x in zip(*y, strict=True)] for y in zip(a, b, unit, strict=True)]
    with np.errstate(divide="ignore"):
        logs = [np.log(x) for x in (a, *pair)]
    turned = [np.moveaxis(x, 2, 0) for x in (a, *pair)]
    for found in (
        *(of(*x, **own) for x in ((a, *pair), [-jnp.asarray(x) for x in (a, *pair)])),
        *(of(*x, log=True, **own) for x in (logs, map(jnp.asarray, logs))),
        of(*turned, axis=0, **own),
    ):
        np.testing.assert_allclose(found, true, rtol=1e-12, atol=1e-14)
    if name != "entropy":
        far = of(*(x - 5000 for x in logs), log=True, **more)
        np.testing.assert_allclose(far, true, rtol=1e-11, atol=1e-14)
