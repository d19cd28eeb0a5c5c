"""From --sweep to cells, and what is on disk of them: no TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shutil

import pytest

from supcon_tf import config, run_files, settings
from supcon_tf.sweeps import grid
from tests.sweeps.results import write_evaluation


def sweep(*axes, **overrides):
    return config.SweepSettings("runs/s", sweep=axes, **overrides)


def cells(*axes, **overrides):
    return grid.list_cells(sweep(*axes, **overrides))


def test_cells_run_the_tools_of_their_settings():
    names = {kind: tool.name for kind, tool in grid.TOOLS.items()}
    assert names == {
        config.PretrainSettings: "pretrain",
        config.FinetuneTextSettings: "finetune_text",
        config.LinearSettings: "train_linear",
        config.EvaluateSettings: "evaluate",
    }


def test_every_combination_is_a_cell_and_the_last_axis_is_fastest():
    results = cells("temperature=0.05,0.1", "optimizer=lars,sgd", epochs=20)
    assert [cell.name for cell in results] == [
        "temperature=0.05,optimizer=lars",
        "temperature=0.05,optimizer=sgd",
        "temperature=0.1,optimizer=lars",
        "temperature=0.1,optimizer=sgd",
    ]
    last = results[3]
    assert last.values == {"temperature": 0.1, "optimizer": "sgd"}
    assert last.training == config.PretrainSettings(
        f"runs/s/cells/{last.name}",
        temperature=0.1,
        optimizer="sgd",
        epochs=20,
        resume=True,
    )
    # Without random views: seconds.
    assert last.linear.views_are_constant
    assert last.linear.run_dir == last.evaluation.run_dir
    assert last.linear.name == last.evaluation.linear_stage == "linear"
    assert last.evaluation.plotted_images == 0


def test_a_module_that_the_sweep_names_is_named_to_every_part_of_a_cell():
    (first, second) = cells("architecture=mine:net,vgg8")
    assert first.training.architecture == "mine:net"
    assert first.linear.architecture == "mine:net"
    assert first.evaluation.architecture == "mine:net"
    assert second.linear.architecture is second.evaluation.architecture is None


def test_cells_that_differ_in_stage_2_share_stage_1():
    results = cells(
        "linear.optimizer=lars,sgd", "temperature=0.1,0.5", "linear.epochs=9"
    )
    assert len(results) == 4
    assert len({cell.training for cell in results}) == 2
    assert results[0].training == results[2].training
    assert results[0].training.run_dir == "runs/s/cells/temperature=0.1"
    assert results[0].linear.name == "linear-optimizer-lars-epochs-9"
    assert (
        results[2].linear.optimizer == "sgd" and results[2].linear.epochs == 9
    )
    (only,) = cells("linear.weight_decay=0.5")
    assert only.training.run_dir == "runs/s/cells/base"
    assert only.linear.name == "linear-weight_decay-0_5"


def test_a_method_is_measured_by_the_classifier_that_it_ends_with(tmp_path):
    scores = {"linear": {"top_1": 0.5}, "pretrained": {"top_1": 0.7}}
    top_1_by_objective = {}
    for cell in grid.list_cells(
        config.SweepSettings(
            str(tmp_path), sweep=("objective=supcon,ce,max_margin,supcon+ce",)
        )
    ):
        assert cell.metrics() == {}
        write_evaluation(cell, **scores)
        assert cell.metrics()["linear.top_1"] == 0.5
        top_1_by_objective[cell.training.objective] = cell.metrics()[
            "method.top_1"
        ]
    assert top_1_by_objective == {
        "supcon": 0.5,
        "ce": 0.7,
        "max_margin": 0.7,
    } | {"supcon+ce": 0.5}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"published": (1.0,)}, "--published must have 2 numbers, .*, got 1"),
        ({"boxes": "epochs"}, "--boxes must be a setting of --sweep, got ep"),
    ],
)
def test_what_is_shown_must_be_there(overrides, message):
    with pytest.raises(ValueError, match=message):
        sweep("temperature=0.1,0.2", "seed=0,1,2", **overrides)


def test_draws_of_all_examples_are_refused():
    """They would be the same training: a spread of 0, and a p of any pairs."""
    files = {"model": "m", "train_file": "t.tsv", "test_file": "e.tsv"}
    for kind, name, options in (
        (config.SweepSettings, "images_per_label", {}),
        (config.SweepTextSettings, "train_examples", files),
    ):
        for axes, count in (
            (("draw=0,1", f"{name}=2,4"), None),
            (("draw:seed=0:0,1:1",), None),
            (("draw=0,1",), 4),
        ):
            kind("r", sweep=axes, **options, **{name: count})
        with pytest.raises(ValueError, match=f"one of --{name}.*: else all dr"):
            kind("r", sweep=("draw=0,1",), **options)


def test_a_cell_on_texts_is_one_training():
    files = {"model": "m", "train_file": "t.tsv", "test_file": "e.tsv"}
    results = grid.list_cells(
        config.SweepTextSettings(
            "runs/s", sweep=("draw:seed=0:3,1:4", "temperature=0.1"), **files
        )
    )
    assert [cell.linear for cell in results] == [None, None]
    assert results[1].trainings == (
        config.FinetuneTextSettings(
            f"runs/s/cells/{results[1].name}",
            draw=1,
            seed=4,
            temperature=0.1,
            resume=True,
            **files,
        ),
    )
    assert results[1].evaluation.run_dir == results[1].run_dir
    settings = config.SweepTextSettings(
        "r", sweep=("draw=0,1",), train_examples=20, **files
    )
    assert settings.axes[0].is_repetition
    with pytest.raises(ValueError, match="a setting of tools/finetune_text.py"):
        config.SweepTextSettings("r", sweep=("linear.seed=0",), **files)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("crop_area=0.2+1,", [(0.2, 1.0), ()]),
        ("positives_cap=none,3", [None, 3]),
        ("horizontal_flip=true,false", [True, False]),
        ("objective=supcon+ce,ce", ["supcon+ce", "ce"]),
    ],
)
def test_values_are_of_the_fields_type(text, values):
    (axis,) = sweep(text).axes
    assert [row[0] for row in axis.rows] == values


def test_settings_that_belong_together_vary_together():
    """As in Suppl. Table 4: each optimizer with its own learning rate."""
    results = cells(
        "optimizer:learning_rate=lars:0.3,rmsprop:0.01",
        "linear.optimizer:linear.learning_rate=sgd:2.5,lars:5",
    )
    names = [cell.values["optimizer:learning_rate"] for cell in results]
    assert names == ["lars:0.3"] * 2 + ["rmsprop:0.01"] * 2
    last = results[3]
    assert last.name == (
        "optimizer=rmsprop,learning_rate=0.01,linear.optimizer=lars,"
        "linear.learning_rate=5.0"
    )
    assert last.training.learning_rate == 0.01
    assert last.linear.optimizer == "lars" and last.linear.learning_rate == 5
    assert last.linear.name == "linear-optimizer-lars-learning_rate-5_0"
    tied_cell = cells("epochs:linear.epochs=20:5,30:10")[1]
    assert (tied_cell.training.epochs, tied_cell.linear.epochs) == (30, 10)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["temprature=1"], "got temprature; temperature is one"),
        (["linear.temperature=1"], "or linear.NAME of stage 2, got linear.t"),
        (["run_dir=a,b"], "must name a setting of stage 1.*got run_dir"),
        (["resume=true"], "must name a setting of stage 1.*got resume"),
        (["temperature"], "must be NAME=VALUE,VALUE,..., got temperature"),
        (["temperature="], "--temperature must be float, got ''"),
        (["temperature=-1"], "--temperature must be above 0, got -1.0"),
        (["temperature=0.1,.10"], "name a value once, got temperature=0.1 tw"),
        (["optimizer=lars"] * 2, "name a setting once, got optimizer twice"),
        (["seed=1", "epochs:seed=20:2"], "a setting once, got seed twice"),
        (["epochs:seed=20:1,30"], "2 values for epochs:seed, joined by :, got"),
        (["epochs:seed=20:1,20:1"], "value once, got epochs:seed=20:1 twice"),
        (["crop_area=0.2-1"], "--crop_area must be tuple"),
        (["crop_area=0.2+2"], "--crop_area must be empty or two numbers"),
    ],
)
def test_a_wrong_axis_is_named(axes, message):
    with pytest.raises(ValueError, match=message):
        sweep(*axes)


def test_a_wrong_cell_is_named_with_its_rule():
    for axes, message in (
        (["momentum=0.9,0.5", "optimizer=sgd,adam"],
         "cell momentum=0.5,optimizer=adam: --momentum must be left out"),
        (["linear.warmup_epochs=0,200"],
         "cell linear.warmup_epochs=200.0: --warmup_epochs"),
        ([], "--sweep must be given"),
        # Only dots and underscores tell these apart, as no stage's name can.
        (["linear.data_service=grpc://a.b,grpc://a_b",
          "linear.horizontal_flip=true"],
         "must name cells apart, got linear"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            cells(*axes)
    # They hold in the cells, and not in the base.
    results = cells("warmup_epochs=0,2", epochs=5)  # the default is 10
    assert [cell.training.warmup_epochs for cell in results] == [0, 2]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"run_dir": "gs://a/b"}, "--run_dir must be a directory of this mach"),
        ({"strategy": "multi_worker"}, "--strategy must not be multi_worker"),
        ({"parallel": 0}, "--parallel must be at least 1"),
        # Which a cell does not have.
        ({"overwrite": True, "resume": True}, "--resume must be left out with"),
    ],
)
def test_what_is_wrong_with_the_base_is_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        config.SweepSettings(**{"run_dir": "x", **overrides})


def test_names_are_fit_for_a_file_system_and_unique():
    results = cells(
        "data_dir=/a b/c,/a b-c,none",
        "hidden_dims=" + ",".join(["+".join(["2048"] * 20), "64+32", ""]),
        dataset="tfds:digits",
    )
    names = [cell.name for cell in results]
    assert len(set(names)) == 9
    for name in names:
        assert len(name) < 255
        assert re.fullmatch("[a-z_0-9=,.+-]+", name)
    assert names[-2] == "data_dir=none,hidden_dims=64+32"


def test_flagfiles_set_the_later_parts(tmp_path):
    linear, evaluate = tmp_path / "l.flags", tmp_path / "e.flags"
    linear.write_text("--epochs=7\n--name=probe\n")
    evaluate.write_text("--knn_neighbors=5\n--run_dir=elsewhere\n")
    results = cells(
        "linear.momentum=0.5,0.9",
        linear_flagfile=str(linear),
        evaluate_flagfile=str(evaluate),
    )
    assert results[1].linear.epochs == 7
    assert results[1].linear.name == "probe-momentum-0_9"
    assert results[1].evaluation.knn_neighbors == 5
    assert results[1].evaluation.run_dir == results[1].training.run_dir
    with pytest.raises(FileNotFoundError, match="no settings file"):
        cells("seed=0", linear_flagfile=str(pathlib.Path("none.flags")))
    evaluate.write_text("--data_dir=elsewhere\n")
    message = "--evaluate_flagfile must be without --data_dir, which is that of"
    with pytest.raises(ValueError, match=message):
        cells("seed=0", evaluate_flagfile=str(evaluate))


def test_the_description_is_json(tmp_path):
    settings_of_sweep = config.SweepSettings(
        str(tmp_path), sweep=("crop_area=0.2+1,", "seed=1,2")
    )
    description = grid.describe(
        settings_of_sweep, grid.list_cells(settings_of_sweep)
    )
    axes = json.loads(json.dumps(description, allow_nan=False))["axes"]
    assert [axis["name"] for axis in axes] == ["crop_area", "seed"]
    assert [axis["values"] for axis in axes] == [["0.2+1.0", ""], [1, 2]]
    assert [axis["is_repetition"] for axis in axes] == [False, True]
    cell = description["cells"][3]
    assert cell["values"] == {"crop_area": "", "seed": 2}
    assert cell["status"] == "pending" and cell["metrics"] == {}
    assert cell["settings"]["pretrain"]["seed"] == 2


@pytest.fixture
def cell(tmp_path):
    """The first cell of a sweep, its settings written."""
    settings_of_sweep = config.SweepSettings(
        str(tmp_path / "s"), sweep=("crop_area=0.2+1,", "seed=1,2")
    )
    cell = grid.list_cells(settings_of_sweep)[0]
    cell.record()
    return cell


def test_flags_are_the_settings_of_a_cell(cell, tmp_path):
    for part in (*cell.trainings, cell.evaluation):
        flagfile = tmp_path / "part.flags"
        flagfile.write_text("\n".join(settings.to_flags(part)))
        extra = ["--resume"] * (part in cell.trainings)
        assert settings.from_flagfile(type(part), flagfile, *extra) == part


def test_a_cell_is_finished_when_its_evaluation_is_there(cell):
    assert cell.state() == grid.State()
    cell.write_state(grid.State("running", 3.0))
    assert cell.state() == grid.State("running", 3.0)
    assert cell.metrics() == {}
    write_evaluation(
        cell,
        images=3,
        name="x",
        linear={"top_1": 0.5, "nll": float("inf"), "bins": [1, 2]},
        retrieval={"recall_at": {"1": 0.25}},
    )
    assert cell.state() == grid.State("finished", 3.0)
    assert cell.metrics() == {
        "images": 3,
        "linear.top_1": 0.5,
        "method.top_1": 0.5,
        "retrieval.recall_at.1": 0.25,
    }
    # The evaluation belongs to the stage from when there is one.
    run = run_files.RunDirectory(cell.run_dir)
    run.create(cell.training, ("a", "b"))
    run.stage("linear").create(cell.linear, ("a", "b"))
    assert cell.state() == grid.State("running", 3.0)
    write_evaluation(cell, linear={"top_1": 0.75})
    assert cell.metrics()["linear.top_1"] == 0.75
    assert run.stage("linear").evaluation_file.exists()


def test_another_evaluation_is_done_again_and_other_trainings_refused(cell):
    cell.write_state(grid.State("finished", 3.0))
    write_evaluation(cell, images=3)
    # What does not change the result may differ.
    moved = dataclasses.replace(cell.training, checkpoint_every=1)
    changed_cell = dataclasses.replace(cell, training=moved)
    changed_cell.check_same()
    changed_cell.record()
    assert cell.state().status == "finished"
    # As where it was evaluated by hand, in another way.
    evaluation = dataclasses.replace(cell.evaluation, knn_neighbors=7)
    changed_cell = dataclasses.replace(cell, evaluation=evaluation)
    assert changed_cell.state() == grid.State("pending", 3.0)
    assert changed_cell.metrics() == {}
    for changed, message in (
        (
            {"training": dataclasses.replace(cell.training, temperature=0.5)},
            "--run_dir must hold cells of the same settings, got "
            r"--temperature=0.5 \(was 0.1\) for crop_area",
        ),
        (
            {"linear": dataclasses.replace(cell.linear, epochs=3)},
            r"--epochs=3 \(was 100\) for .*; --sweep=linear.NAME=VALUE keeps",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(cell, **changed).check_same()


def test_a_finished_cell_neither_grows_nor_gets_other_files(
    tmp_path, monkeypatch
):
    """The table would have its old numbers beside those of new cells."""
    monkeypatch.chdir(tmp_path)
    for folder in ("model_a", "model_b"):
        pathlib.Path(folder).mkdir()
    for name, content in (("a.tsv", "x"), ("copy.tsv", "x"), ("b.tsv", "y")):
        pathlib.Path(name).write_text(content)
    sweep_settings = config.SweepTextSettings(
        "s",
        sweep=("temperature=0.1",),
        model="model_a",
        train_file="a.tsv",
        test_file="b.tsv",
    )

    def check(**changes):
        changed_settings = dataclasses.replace(sweep_settings, **changes)
        grid.list_cells(changed_settings)[0].check_same()

    (cell,) = grid.list_cells(sweep_settings)
    cell.record()
    others = {"epochs": 20, "model": "model_b", "test_file": "copy.tsv"}
    check(**others)  # its resumed run answers for it
    write_evaluation(cell, validation={"top_1": 0.5})
    for name, value in (others | {"validation_file": "copy.tsv"}).items():
        with pytest.raises(ValueError, match=rf"got --{name}={value} \(was "):
            check(**{name: value})
    check(train_file="copy.tsv")
    pathlib.Path("model_a").rename("model_c")
    check(model="model_c")
    with pytest.raises(ValueError, match="--model=bert-large .was model_a"):
        check(model="bert-large")  # to download, as model_a may have been
    for name in ("train_file", "test_file"):
        edited = pathlib.Path(getattr(sweep_settings, name))
        content = edited.read_text()
        edited.write_text(f"{content}z")
        with pytest.raises(
            ValueError, match=f"--{name}={edited}, which has changed since temp"
        ):
            check()
        edited.write_text(content)
        check()
    # By hand, of another file: no number of the sweep.
    for name, status in (("b.tsv", "finished"), ("hard.tsv", "pending")):
        write_evaluation(cell, dataset=name)
        assert cell.state().status == status


def test_a_finished_cell_keeps_its_image_folder(image_folder, tmp_path):
    shutil.copytree(image_folder, tmp_path / "images")

    def check():
        grid._digest_of_names.cache_clear()
        cell.check_same()

    sweep_settings = config.SweepSettings(
        str(tmp_path / "s"),
        sweep=("temperature=0.1",),
        dataset="folder",
        data_dir=str(tmp_path / "images"),
    )
    (cell,) = grid.list_cells(sweep_settings)
    cell.record()
    image = next((tmp_path / "images" / "train" / "dark").iterdir())
    content = image.read_bytes()
    for changed in (None, content + b"x"):
        image.unlink()
        if changed is not None:
            image.write_bytes(changed)
        check()  # its resumed run answers for it
        write_evaluation(cell, linear={"top_1": 0.5})
        with pytest.raises(ValueError, match="images, which has changed since"):
            check()
        image.write_bytes(content)
        check()
        cell_run = run_files.RunDirectory(cell.run_dir)
        cell_run.path.rmtree()
