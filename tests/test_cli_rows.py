"""Steps and quantities of a row at the prompt: exact, design, and where their names stand."""

import re
from dataclasses import MISSING, fields

import pytest
from command_line import LAWS, QUANTITIES, STEPS, answer, stepped

import sparsity
from sparsity import Alibi, Row, ScalableSoftmax, SinkLogit, Window
from sparsity.cli import cli
from sparsity.rows import steps
from sparsity.rows.steps import parse

pytestmark = pytest.mark.usefixtures("place")


@pytest.mark.parametrize("of", LAWS)
def test_exact(command, of):
    steps, typed = stepped(of)
    row = Row("exp", gamma=2, steps=steps)
    law = sparsity.exact(row, length=[32, 4096], of=of)
    line = ["exp", "--gamma", 2, *typed, "--of", of]
    found = answer(command, "exact", *line, "--length", "32,4096")
    assert set(found) == {
        "kernel", "params", "steps", "n", "quantity", "value", "log_value", "error_bound",
        "error_kind", "method",
    }  # fmt: skip
    assert found["kernel"] == "exp"
    assert found["params"] == {"beta": 0, "gamma": 2}
    assert found["steps"] == typed[1::2]
    assert found["n"] == [32, 4096]
    assert found["value"] == law.value.tolist()
    assert found["log_value"] == law.log_value.tolist()
    assert found["error_bound"] == law.error_bound.tolist()
    assert max(found["error_bound"]) < 1e-9
    assert found["error_kind"] == law.error_kind == "estimated"
    assert found["quantity"] == of
    one = answer(command, "exact", *line, "--length", 4096)
    assert one["n"] == 4096
    assert one["value"] == pytest.approx(found["value"][1], rel=1e-12)
    code, text, err = command("exact", *line, "--length", "32,4096")
    assert (code, err) == (0, "")
    assert f"{law.value[1]:.12g}" in text
    assert not steps or "alibi:0.01, window:48, sink-logit:4" in text


def test_exact_is_of_n_eff_by_default_and_of_decayed_too(command):
    found = answer(command, "exact", "decayed", "--decay", 0.5, "--length", 2)
    assert (found["quantity"], found["params"]) == ("n_eff", {"decay": 0.5})
    assert found["value"] == pytest.approx(1.8, rel=1e-13)
    rows = ["relu2", "--beta", 0, "--gamma", 1, "--decay", 0.5, "--length", 1]
    assert answer(command, "exact", *rows, "--of", "S")["value"] == pytest.approx(1, rel=1e-13)


def test_a_decay_is_the_step_decay(command):
    line = ["identity", "--beta", 1, "--gamma", 1, "--length", 30]
    one = answer(command, "exact", *line, "--decay", 0.9, "--step", "window:20")
    other = answer(command, "exact", *line, "--step", "decay:0.9", "--step", "window:20")
    assert one["value"] == other["value"]
    assert (one["params"]["decay"], one["steps"]) == (0.9, ["window:20"])
    assert other["steps"] == ["decay:0.9", "window:20"]


@pytest.mark.parametrize(
    ("line", "steps", "name"),
    [
        ("exp --gamma 2 --step alibi:0.1 --free slope --n-eff 8", (Alibi,), "slope"),
        ("relu2 --gamma 1 --step window:50 --free beta --n-eff 3", (Window,), "beta"),
        (
            "exp --gamma 2 --step sink-logit:0 --free logit --of sink_mass --value 0.3",
            (SinkLogit,),
            "logit",
        ),
        pytest.param("exp --gamma 2 --step temperature:ssmax --free scale --n-eff 8",
                     (ScalableSoftmax,), "scale", marks=pytest.mark.thorough),
    ],
)  # fmt: skip
def test_design_of_a_row(printed, line, steps, name):
    found, text = printed("design", *line.split(), "--length", 1000)
    assert found["parameter"] == name
    row = Row(found["kernel"], steps=tuple(map(parse, found["steps"])), **found["parameters"])
    assert tuple(map(type, row.steps)) == steps
    law = sparsity.exact(row, length=1000, of=found["quantity"])
    assert float(law.value) == pytest.approx(found["wanted"], rel=1e-9)
    assert found[found["quantity"]] == pytest.approx(found["wanted"], rel=1e-9)
    assert f"needs {name} = " in text


def test_list_names_every_step_with_its_fields_and_every_quantity(command):
    said = answer(command, "list")
    typed = {re.split(r"[:[]", name)[0]: name for name in said["steps"]}
    for step, kind in STEPS.items():
        needed = [x.name.upper() for x in fields(kind) if x.default is MISSING]
        assert typed[step].startswith(step + (":" + ",".join(needed) if needed else ""))
    of_vectors = [f"sparsity.{step.__name__}" for step in steps.ALL if step.name not in STEPS]
    assert of_vectors == ["sparsity.Rope", "sparsity.Coca"]
    assert set(of_vectors) <= set(said["steps"])
    assert set(QUANTITIES) <= set(said["quantities"])
    out = command("list")[1]
    assert all(f"\n  {name} " in out for name in (*said["steps"], *said["quantities"]))


def test_pages_say_where_steps_and_quantities_are_listed(command):
    for name, takes in cli.commands.items():
        options = {"--step", "--of"} & {word for x in takes.params for word in x.opts}
        page = " ".join(command(name, "--help")[1].split())
        for option in options:
            said = page.rpartition(f" {option} ")[2]
            assert "`sparsity list`" in said.partition(" --")[0], (name, option)
