"""What a monitor logs, alerts on logged numbers, and the pictures of a training and of a head."""

import warnings

import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose

import sparsity
from sparsity import InputError, monitor, monitoring
from sparsity.attention.monitoring import alert, log, n_eff_exact, plot_training

matplotlib.use("Agg")

LAYERS, HEADS, TOKENS = 6, 16, 40


def told(seed=0, layers=3, heads=4, sharper=1.0, **how):
    """What a monitor says of random layers, all of their rows."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(layers):
        q, k = random.normal(size=(2, 2, heads, TOKENS, 8)).astype(np.float32)
        found.append(monitor(sharper * q, k, rows=None, **how))
    return found


def by_head(found, statistic, rows=slice(None)):
    """Means over batch and rows of each head, [layers, heads]."""
    return np.array([np.nanmean(np.asarray(x[statistic])[..., rows], (0, 2)) for x in found])


@pytest.mark.thorough
def test_names_without_heads_are_few_and_have_the_spread_over_heads():
    found = told(layers=LAYERS, heads=HEADS)
    many, few = log(found), log(found, heads=False)
    assert len(many) > 750
    statistics = 11  # eight, the two laws, and the number of bad rows
    assert len(few) == LAYERS * statistics * 3 + statistics * 6
    own = log(found, heads=False, of=["n_eff", "n_eff_exact"])
    assert len(own) == LAYERS * 2 * 3 + 2 * 6
    assert own == {name: x for name, x in few.items() if name.split("/")[1].startswith("n_eff")}
    assert {"layer3/n_eff", "layer3/n_eff_min", "layer3/n_eff_max"} <= own.keys()
    means = by_head(found, "n_eff")
    assert_allclose(own["layer3/n_eff_min"], means[3].min(), rtol=1e-6)
    assert_allclose(own["layer3/n_eff_max"], means[3].max(), rtol=1e-6)
    assert_allclose(own["all/n_eff"], means.mean(), rtol=1e-6)
    for name, q in (("min", 0), ("q10", 0.1), ("median", 0.5), ("q90", 0.9), ("max", 1)):
        assert_allclose(own[f"all/n_eff_{name}"], np.quantile(means, q), rtol=1e-6)
    assert {name: x for name, x in many.items() if ".head" not in name} == {
        name: x for name, x in few.items() if name in many
    }


@pytest.mark.thorough
def test_full_context_rows_alone():
    found = told()
    own = log(found, last=True, of="n_eff")
    assert len(own) == 3 * 5 + 1
    last = by_head(found, "n_eff", slice(-1, None))
    assert_allclose([own[f"layer1.head{i}/n_eff"] for i in range(4)], last[1], rtol=1e-6)
    assert own["all/n_eff"] > log(found, of="n_eff")["all/n_eff"]  # a planted mean of all rows
    # In a window all rows that fill it see as many keys as any.
    window = told(window=5)
    kept = by_head(window, "entropy", slice(4, None))
    assert_allclose(log(window, last=True)["layer0.head2/entropy"], kept[0, 2], rtol=1e-6)
    # Of texts of two lengths the longer one alone has a full context.
    q, k = np.random.default_rng(3).normal(size=(2, 2, 4, TOKENS, 8)).astype(np.float32)
    tokens = np.arange(TOKENS) < np.array([[TOKENS], [9]])
    padded = monitor(q, k, rows=None, segments=tokens)
    assert_allclose(
        log(padded, last=True)["layer0.head0/n_eff"], padded["n_eff"][0, 0, -1], rtol=1e-6
    )


@pytest.mark.thorough
def test_a_law_that_nobody_asks_for_is_not_computed(monkeypatch):
    from sparsity.attention.monitoring import logs

    monkeypatch.setattr(logs, "expected_largest", lambda *_: 1 / 0)
    found = told(layers=1)
    assert "all/n_eff_exact" in log(found, of=["n_eff_exact"])
    with pytest.raises(ZeroDivisionError):
        log(found)


@pytest.mark.parametrize(
    ("given", "match"),
    [({"of": "n_ef"}, "of"), ({"of": 3}, "of"), ({"of": ["gini"]}, "of"), ({"heads": 2}, "heads"),
     ({"last": "yes"}, "last")],
)  # fmt: skip
def test_bad_options_of_a_log(given, match):
    with pytest.raises(InputError, match=match):
        log(told(layers=1), **given)


BROKEN = {  # what goes wrong, and how many of the 2 · 40 rows of each head it takes along
    "a head of NaN": (lambda q, k: q.__setitem__((slice(None), 1), np.nan), [0, 80, 0, 0]),
    "a head of inf": (lambda q, k: q.__setitem__((slice(None), 1), np.inf), [0, 80, 0, 0]),
    "a row": (lambda q, k: q.__setitem__((0, 2, 7, 3), np.nan), [0, 0, 1, 0]),
    "a key": (lambda q, k: k.__setitem__((1, 0, 30, 0), np.nan), [10, 0, 0, 0]),
    "overflow": (lambda q, k: q.__setitem__((0, 3), 1e38 * q[0, 3]), [0, 0, 0, 40]),
    "all": (lambda q, k: q.fill(np.nan), [80] * 4),
    "nothing": (lambda q, k: None, [0] * 4),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_rows_that_are_not_finite_are_told_and_hide_no_other(kind):
    q, k = np.random.default_rng(0).normal(size=(2, 2, 4, TOKENS, 8)).astype(np.float32)
    whole = log([monitor(q, k, rows=None)] * 2)
    wrong, count = BROKEN[kind]
    bad = q.copy(), k.copy()
    wrong(*bad)
    found = [monitor(*bad, rows=None), monitor(q, k, rows=None)]
    many, few = log(found), log(found, heads=False)
    assert set(many) == set(whole)
    assert [many[f"layer0.head{i}/bad_rows"] for i in range(4)] == count
    assert many["layer0/bad_rows"] == few["all/bad_rows"] == few["layer0/bad_rows"] == sum(count)
    healthy = [f"layer0.head{i}/" for i in range(4) if not count[i]]
    for name, x in whole.items():
        if name.startswith(("layer1", *healthy)):
            assert many[name] == x
    fires = {x.name for x in alert(many, "*/n_eff", below=0.5)}
    heads = {f"layer0.head{i}/n_eff" for i in range(4) if count[i]}
    assert fires == (heads | {"layer0/n_eff", "all/n_eff"} if heads else set())
    assert len(alert(few, "*/n_eff_min", below=0.5)) == 2 * bool(heads)
    assert len(alert(few, "*/bad_rows", above=0)) == 2 * bool(heads)
    # Without lengths, what some heads have and others have not.
    own = log([{"n_eff": found[0]["n_eff"]}])
    assert kind == "all" or [own[f"layer0.head{i}/bad_rows"] for i in range(4)] == count
    assert np.isnan(monitoring.penalty(*bad, low=2, rows=None)) == bool(heads)


@pytest.mark.thorough
def test_what_has_no_value_is_no_bad_row():
    q, k = np.random.default_rng(0).normal(size=(2, 2, 4, TOKENS, 8)).astype(np.float32)
    tokens = np.arange(TOKENS) < np.array([[TOKENS], [9]])
    given = {"padding": {"segments": tokens}, "a mask": {"mask": lambda i, j: j > 3}}
    for name, how in given.items():
        found = log(monitor(q, k, rows=None, **how))
        assert found["all/bad_rows"] == 0, name
        assert all(np.isfinite(x) for x in found.values())
    assert log(monitor(q, k, when=False)) == {}
    beyond = {"length": np.array([[5, 5]]), "gamma": np.array([[1e3, 2.0]])}  # the law's table
    found = log(beyond)
    assert found["all/bad_rows"] == 0
    assert found["all/n_eff_exact"] == n_eff_exact(5, 2.0)


def test_an_alert_of_nan():
    (found,) = alert({"all/n_eff": np.nan}, "*", below=2, step=7)
    assert str(found) == "all/n_eff = nan is beyond 2 at step 7"


def test_full_rows_need_lengths_and_layers_may_differ():
    with pytest.raises(InputError, match="length"):
        log(told(layers=1, of=["n_eff"]), last=True)
    mixed = [told(layers=1)[0], told(layers=1, of=["n_eff"])[0]]
    assert set(log(mixed, heads=False, of="entropy")) == {
        *(f"layer0/entropy{end}" for end in ("", "_min", "_max")),
        *(f"all/entropy{end}" for end in ("", "_min", "_q10", "_median", "_q90", "_max")),
    }
    assert log({"a": {"n_eff": np.full((2, 3), np.nan)}}, heads=False) == {}


NUMBERS = {"layer0/n_eff": 1.5, "layer1/n_eff": 9.0, "layer1/max_logit": 120.0}


def test_alerts_call_for_each_crossing_and_never_end_the_run():
    seen = []
    found = alert(NUMBERS, "*/n_eff", below=2, above=8, call=seen.append)
    assert [str(x) for x in found] == [
        "layer0/n_eff = 1.5 is below 2", "layer1/n_eff = 9 is above 8"
    ]  # fmt: skip
    assert seen == found
    assert alert(NUMBERS, "layer1/n_eff", below=9.0, above=9.0) == []  # at a bound is not beyond
    assert alert(NUMBERS, "layer0/*", below=2) == found[:1]
    calls = []

    def fails(crossing):
        calls.append(crossing)
        raise RuntimeError("no network")

    with pytest.warns(UserWarning, match="no network") as told_of:
        assert alert(NUMBERS, "*", above=8, call=fails) == [found[1], calls[1]]
    assert (len(calls), len(told_of)) == (2, 1)  # of one call the first failure alone
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")  # as a script has it
        for step in range(5):
            changing = {name: x + step for name, x in NUMBERS.items()}
            alert(changing, "*", above=8, step=step, call=lambda crossing: fails(crossing))
    assert len(shown) == 1
    assert len(calls) == 2 + 5 * 2

    def interrupted(crossing):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        alert(NUMBERS, "*", above=8, call=interrupted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert alert({}, "*/n_eff", below=2) == []  # a step that was not looked at
    with pytest.warns(UserWarning, match="no name is like 'n_eff'"):
        assert alert(NUMBERS, "n_eff", below=2) == []


def test_a_crossing_says_where_and_when():
    numbers = {"blocks.0.head12/n_eff": 1.0, "blocks.0/n_eff_min": 1.0, "all/n_eff": 1.0}
    found = alert(numbers, "*", below=2, step=300)
    assert [(x.name, x.step) for x in found] == [(name, 300) for name in numbers]
    assert str(found[2]) == "all/n_eff = 1 is below 2 at step 300"


@pytest.mark.parametrize(
    ("given", "match"),
    [({}, "below and above"), ({"below": "low"}, "below"), ({"above": np.nan}, "above"),
     ({"below": 2, "call": "print"}, "call"), ({"below": 2, "names": 3}, "names"),
     ({"below": 2, "numbers": [1.0]}, "numbers")],
)  # fmt: skip
def test_bad_alerts(given, match):
    given = {"numbers": NUMBERS, "names": "*"} | given
    with pytest.raises(InputError, match=match):
        alert(given.pop("numbers"), given.pop("names"), **given)


@pytest.mark.parametrize("heads", [True, False])
def test_a_training_is_drawn_with_its_law(heads):
    looks = [told(seed, sharper=s) for seed, s in enumerate((0.1, 0.5, 2.0))]
    logged = [log(looks[0], heads=heads), {}, *(log(x, heads=heads) for x in looks[1:])]
    ax = plot_training(logged, [0, 10, 20, 30])
    (law,) = [line for line in ax.lines if line.get_label().startswith("exact law")]
    assert list(law.get_xdata()) == [0, 20, 30]
    assert law.get_marker() == "None"
    exact = [n_eff_exact(x["length"], x["gamma"]).mean() for x in looks[1]]
    assert_allclose(np.asarray(law.get_ydata())[1], np.mean(exact), rtol=1e-6)
    assert all(line.get_marker() == "None" for line in ax.lines)  # a marker has an error bar
    measured = next(line for line in ax.lines if line.get_label().startswith("measured"))
    assert_allclose(measured.get_ydata(), [by_head(x, "n_eff").mean() for x in looks])
    corners = np.asarray(ax.collections[0].get_paths()[0].vertices)
    ends = np.array([[f(corners[corners[:, 0] == at, 1]) for f in (np.min, np.max)]
                     for at in (0, 20, 30)])  # fmt: skip
    true = [np.quantile(by_head(x, "n_eff"), (0.1, 0.9)) for x in looks]
    assert_allclose(ends, true, rtol=1e-5)
    ax = plot_training(logged, of="gamma", layer="layer2", ax=ax)
    assert ax.get_title(loc="left").startswith("gamma of layer2")
    for bad in ({"of": "gini"}, {"layer": "layer9"}, {"steps": [1, 2]}, {"steps": [3, 2, 1, 0]}):
        with pytest.raises(InputError):
            plot_training(logged, **bad)
    matplotlib.pyplot.close("all")


def test_what_is_public():
    assert {"alert", "Crossing", "plot_training"} <= set(monitoring.__all__)
    assert sparsity.monitoring.alert is alert
