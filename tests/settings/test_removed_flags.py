"""Removed flags in old flagfiles, recorded settings and command lines."""

import importlib
import inspect
import pathlib
import re

import pytest
from absl import flags

from supcon_tf import config, run_files, settings, sweeps
from supcon_tf.disk import files
from supcon_tf.settings import removed_flags
from tests import forks
from tests.tool_settings import PROGRAMS, TOOLS

ROOT = pathlib.Path(__file__).parents[2]
# Flags that recorded settings of earlier versions have in addition.
FIXED = {name: value for name, (value, _) in removed_flags.REMOVED.items()}
OF_TRAINING = [
    f"--{name}={FIXED[name]}"
    for name in (
        *("anchor_views", "fill", "hierarchy_penalty", "jitter_probability"),
        *("randaugment_operations", "randaugment_probability"),
        *("rmsprop_decay", "softmax_margin", "softmax_scale"),
        *("triplet_margin", "triplet_mining", "trust_coefficient"),
    )
]


def old_flagfile(path, *lines):
    """Recorded settings of an earlier version, which had more flags."""
    pretraining = config.PretrainSettings(
        "x", temperature=0.2, multi_label=False
    )
    text = settings.to_flagfile(pretraining).replace(
        "--temperature", "\n".join([*OF_TRAINING, *lines, "--temperature"])
    )
    path.write_text(text)
    return pretraining


def test_no_tool_has_a_removed_flag():
    for settings_class in PROGRAMS.values():
        if settings_class in TOOLS.values():
            names = settings_class.__dataclass_fields__
            assert not {*names} & {*removed_flags.REMOVED}


@pytest.mark.parametrize("name", removed_flags.REMOVED)
def test_the_replacement_has_the_fixed_value_by_default(name):
    value, replacement = removed_flags.REMOVED[name]
    match = re.fullmatch(r"(\w+)\.(\w+)\((\w+)=\.\.\.\)", replacement)
    if not match or not value:
        return
    room, function, argument = match.groups()
    room = importlib.import_module(f"supcon_tf.{room}")
    parameters = inspect.signature(getattr(room, function)).parameters
    assert settings.to_text(parameters[argument].default) == value


def test_objectives_print_their_fixed_margins():
    triplet, margin = (
        config.OBJECTIVES[name].summary for name in ("triplet", "max_margin")
    )
    assert FIXED["triplet_mining"] in triplet
    assert triplet.endswith(f"margin {FIXED['triplet_margin']}")
    numbers = FIXED["softmax_margin"], FIXED["softmax_scale"]
    assert margin.endswith("margin {}, scale {}".format(*numbers))


@pytest.mark.parametrize("recorded", [True, False])
def test_a_fixed_value_is_read_without_a_message(tmp_path, recorded, capfd):
    path = tmp_path / "settings.flags"
    pretraining = old_flagfile(path)
    read_settings = settings.from_flagfile(
        config.PretrainSettings, path, recorded=recorded
    )
    assert read_settings == pretraining
    extra = "--fill= 128, 128,128", "--trust_coefficient=1e-3"
    assert (
        settings.from_flagfile(config.PretrainSettings, path, *extra)
        == pretraining
    )
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--triplet_margin=0.5",
            r"settings.flags:\d+: flag --triplet_margin=0.5: this flag was "
            r"removed, its value is fixed at 0.2; use losses.TripletLoss\("
            r"margin=...\) instead$",
        ),
        ("--triplet_mining=hard", "fixed at semi_hard; use losses.TripletLoss"),
        ("--fill=1,2,3", "fixed at 128,128,128; use augment.RandAugment"),
        ("--fill=128", "fixed at 128,128,128; use augment.RandAugment"),
        ("--corruption_seed=7", "was removed, its value is fixed at 0$"),
    ],
)
def test_another_value_is_refused_in_one_line(tmp_path, line, message):
    path = tmp_path / "settings.flags"
    old_flagfile(path, line)
    for recorded in (True, False):
        with pytest.raises(ValueError, match=message) as error:
            settings.from_flagfile(
                config.PretrainSettings, path, recorded=recorded
            )
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("owner", "flag", "message"),
    [
        (
            config.ReportSettings,
            "--names=a,b",
            "removed; use reports.write_rep",
        ),
        (
            config.ShowAugmentSettings,
            "--image=3",
            "fixed at 0; use another --s",
        ),
        (
            config.DataServiceSettings,
            "--workers=4",
            "a process with --role=wor",
        ),
        (config.SearchSettings, "--image=a.jpg", "Did you mean: images"),
        (config.PretrainSettings, "--workers=4", "Unknown command line flag"),
    ],
)
def test_a_flag_of_one_tool_is_unknown_to_the_others(owner, flag, message):
    values = flags.FlagValues()
    settings.define_flags(owner, values)
    with pytest.raises(flags.Error, match=message):
        values(["tool", flag])


def test_a_command_line_names_the_replacement(tmp_path):
    path = tmp_path / "old.flags"
    path.write_text("--run_dir=x\n--softmax_scale=64\n")
    for argument in ("--softmax_scale=64", f"--flagfile={path}"):
        process = forks.run(ROOT / "tools" / "pretrain.py", argument)
        assert process.returncode != 0 and "Traceback" not in process.stderr
        lines = (process.stderr + process.stdout).splitlines()
        assert len(lines) <= 2 and (
            "its value is fixed at 30.0; use losses.MaxMarginLoss(scale="
        ) in "".join(lines)


def test_a_sweep_names_the_fixed_value():
    for name in ("triplet_margin", "linear.fill"):
        with pytest.raises(ValueError, match="this flag was removed, its val"):
            config.SweepSettings("x", sweep=(f"{name}=1,2",))
    with pytest.raises(ValueError, match="must name a setting of stage 1"):
        config.SweepSettings("x", sweep=("multi_label=true,false",))


def test_reports_and_sweeps_recognise_old_records(tmp_path):
    run = run_files.RunDirectory(tmp_path)
    old_flagfile(run.settings_file, "--max_iterations=9")
    flags = run.flags()
    assert flags["temperature"] == "0.2" and flags["max_iterations"] == "9"
    assert not {*flags} & {"fill", "anchor_views", "triplet_margin"}

    grid = config.SweepSettings(
        str(tmp_path / "sweep"), sweep=("temperature=0.1,0.2",)
    )
    cell = sweeps.list_cells(grid)[0]
    owner = run_files.RunDirectory(cell.run_dir).evaluation_owner("linear")
    owner.path.mkdir(parents=True)
    texts = settings.to_texts(cell.evaluation)
    before = {"retrieval_at": "1,5,10", "corruption_seed": "0"}
    for old, is_current in (
        ({}, True),
        (before, True),
        (before | {"retrieval_at": "1"}, False),
    ):
        files.write_json(owner.evaluation_file, {"settings": texts | old})
        assert bool(cell.results()) == is_current


def test_a_decided_field_is_recorded_and_not_in_the_help():
    help_names = {
        field.name for field in settings.shown_fields(config.PretrainSettings)
    }
    names = {*config.PretrainSettings.__dataclass_fields__}
    assert names - help_names == {"multi_label"}
    pretraining = config.PretrainSettings("x", multi_label=True)
    assert "--multi_label=true\n" in settings.to_flagfile(pretraining)
