"""Labels as they are, from the list of files to the exported model."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, evaluation, run_files, serving, training
from supcon_tf.reports import write_report
from supcon_tf.training import builders, input_pipeline
from tests import reference, runs, score_rows


@pytest.fixture
def weighted(image_folder, tmp_path):
    """A manifest in which most labels are wrong, and count nothing."""
    manifest, names = tmp_path / "list.csv", ["bright", "dark", "mid"]
    rows = ["path,label,split,weight"]
    for path in sorted(image_folder.rglob("*.*g")):
        split, name = path.parts[-3:-1]
        is_wrong = split == "train" and int(path.stem) > 6
        label = names[names.index(name) - 1] if is_wrong else name
        rows.append(f"{path},{label},{split},{0 if is_wrong else 2}")
    manifest.write_text("\n".join(rows))
    return {"dataset": "manifest", "data_dir": str(manifest)}


def test_weights_of_a_manifest_count_in_the_linear_stage(
    tiny_settings, weighted, finished_run
):
    beginning = {"init_from": str(finished_run.path), "epochs": 0}
    run = training.pretrain(tiny_settings(**weighted, **beginning))
    training.train_linear(runs.linear_settings(run.path, epochs=20))
    measured = evaluation.evaluate(runs.evaluation_settings(run.path))
    assert measured["linear"]["top_1"] > 0.8, measured


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({"objective": "ce", "learning_rate": 0.3, "epochs": 12}, 0.8),
        # Anchors weigh; so do the examples of the classifier beside SupCon.
        (
            {
                "online_classifier": True,
                "gradient_cache_chunks": 2,
                "epochs": 48,
            },
            0.5,
        ),
    ],
    ids=["ce", "supcon"],
)
def test_weights_of_a_manifest_count_in_stage_1(
    options, least, tiny_settings, weighted
):
    run = training.pretrain(tiny_settings(**weighted, **options))
    settings = runs.evaluation_settings(run.path)
    measured = evaluation.evaluate(settings)
    assert measured["pretrained"]["top_1"] > least, measured


def test_images_with_weights_are_not_mixed(tiny_settings, weighted):
    mixed = tiny_settings(**weighted, mixing="mixup")
    with pytest.raises(ValueError, match="--mixing must be none for image"):
        training.pretrain(mixed)
    assert not tf.io.gfile.exists(mixed.run_dir)


SEVERAL = {"dark": "dark|not bright", "mid": "not bright", "bright": ""}


@pytest.fixture(scope="module")
def several_labels(image_folder, tmp_path_factory):
    """The image folder, with two labels, one or none for its images."""
    rows = ["path,labels,split"]
    for path in sorted(image_folder.rglob("*.*g")):
        split, name = path.parts[-3:-1]
        rows.append(f"{path},{SEVERAL[name]},{split}")
    manifest = tmp_path_factory.mktemp("listed") / "list.csv"
    manifest.write_text("\n".join(rows))
    return {"dataset": "manifest", "data_dir": str(manifest)}


def test_several_labels_from_the_list_to_the_export(
    tiny_settings, several_labels, finished_run
):
    """Each label by itself, and the export answers as evaluation did."""
    beginning = {"init_from": str(finished_run.path), "epochs": 0}
    options = {"positives": "jaccard", "objective": "supcon+ce"}
    run = training.pretrain(
        tiny_settings(**several_labels, **beginning, **options)
    )
    recorded = run.recorded(config.PretrainSettings)
    assert recorded.multi_label is True
    images = input_pipeline.source(recorded, "train")
    views, labels = next(iter(input_pipeline.views(recorded, images, 16, 2)))
    model = builders.model(recorded, 2)
    builders.compile_model(recorded, model, 3, images)
    z, _ = model._outputs(views, training=True)
    assert float(model.loss(labels, z)) == pytest.approx(
        np.mean(
            reference.supcon_loss(
                z, labels, temperature=0.1, positives="jaccard"
            )
        ),
        rel=1e-4,
    )
    training.train_linear(runs.linear_settings(run.path, epochs=20))
    path = str(run.path)
    measured = evaluation.evaluate(runs.evaluation_settings(path))
    assert measured["linear"]["map"] > 0.9
    assert {"map_11_point", "ece"} < measured["pretrained"].keys()
    assert measured["knn"]["map"] > 0.9
    assert "linear mAP" in evaluation.results_table({"run": measured})
    score_rows.check(measured)
    write_report([path], f"{path}/report.html")
    predictions = run_files.read_arrays(run.stage("linear").predictions_file)
    assert predictions["labels"].shape == (21, 2)

    serving.export(config.ExportSettings(path, threshold=0.6))
    card = run.export_record()["card"]
    assert card["Model"]["Threshold"].endswith("a probability of 0.6 on")
    lines = card["Measures"]
    assert (
        "a probability of 0.5, not"
        in lines["Threshold of micro F1 and exact match"]
    )
    mean = measured["linear"]["map"]
    assert lines["Mean average precision"] == f"{mean:.1%}"
    assert "Top-1 accuracy" not in lines
    files = [tf.io.read_file(str(name)) for name in predictions["ids"].tolist()]
    served = tf.saved_model.load(f"{path}/export/1")
    answer = served.signatures["serving_default"](tf.stack(files))
    expected = predictions["probabilities"]
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-4)
    top = answer["top_probabilities"].numpy()
    is_given = answer["top_classes"].numpy() != b""
    near = np.abs(top - 0.6) < 1e-3
    np.testing.assert_array_equal(is_given | near, (top >= 0.6) | near)

    for refused in (
        lambda: serving.export(config.ExportSettings(path, prototypes=True)),
        lambda: training.train_linear(
            runs.linear_settings(run.path, name="smooth", label_smoothing=0.1)
        ),
        lambda: evaluation.evaluate(
            config.EvaluateSettings(path, corruptions="generated")
        ),
        lambda: evaluation.evaluate(
            config.EvaluateSettings(path, label_issues=5)
        ),
        lambda: evaluation.evaluate(
            config.EvaluateSettings(path, knn_leave_one_out=True)
        ),
    ):
        with pytest.raises(ValueError, match="several"):
            refused()


@pytest.mark.slow
def test_cross_entropy_of_several_labels_on_a_part(
    tiny_settings, several_labels
):
    run = training.pretrain(
        tiny_settings(
            **several_labels,
            objective="ce",
            learning_rate=0.3,
            epochs=24,
            train_fraction=0.5,
        )
    )
    trained_on = json.loads(run.images_file.read_text())["trained_on"]
    assert len(trained_on) == 24
    training.train_linear(
        config.LinearSettings(
            str(run.path), name="views", batch_size=16, epochs=2
        )
    )
    measured = evaluation.evaluate(config.EvaluateSettings(str(run.path)))
    assert measured["pretrained"]["map"] > 0.9


@pytest.mark.slow
def test_several_labels_of_another_set(finished_run, several_labels):
    """Both ways to transfer, chosen by average precision."""
    settings = config.TransferSettings(
        str(finished_run.path), **several_labels, name="listed", l2_values=4
    )
    measured = evaluation.transfer_encoder(settings)
    assert measured["select_by"] == "map"
    assert measured["test"]["map"] > 0.9
    table = evaluation.transfer_table(measured).splitlines()
    assert ", of 4 by 9 validation images: mAP " in table[1]
    assert table[2].split() == ["mAP", f"{measured['test']['map']:.4f}"]
    for objective in ("ce", "supcon"):
        tuned = evaluation.transfer_encoder(
            dataclasses.replace(
                settings,
                name=f"listed_{objective}",
                method="finetune",
                objective=objective,
                l2_values=45,
                steps=30,
                batch_size=16,
            )
        )
        assert tuned["test"]["map_11_point"] > 0.8, objective
    for options, message in (
        ({"select_by": "top_1"}, "--select_by must be map or map_11_point"),
        ({"images_per_label": 4}, "--images_per_label and .* must be left out"),
    ):
        refused = dataclasses.replace(settings, name="refused", **options)
        with pytest.raises(ValueError, match=message):
            evaluation.transfer_encoder(refused)
    assert not finished_run.stage("refused").path.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "triplet"}, "--objective must be one of supcon, simclr"),
        ({"images_per_class": 4}, "--images_per_class must be left out for im"),
        ({"images_per_label": 4}, "--images_per_label, .* must be left out"),
        ({"queue_size": 32}, "--queue_size must be left out for images of sev"),
        (
            {"unsupervised_classes": ("dark",)},
            "--unsupervised_classes must be left out for images of several",
        ),
        ({"unknown_classes": ("dark",)}, "--unknown_classes must be left out"),
        ({"multi_label": False}, "--multi_label must be true for the labels"),
    ],
)
def test_what_needs_one_label_is_refused(
    tiny_settings, several_labels, options, message
):
    settings = tiny_settings(**several_labels)
    with pytest.raises(ValueError, match=message):
        training.pretrain(dataclasses.replace(settings, **options))
    assert not tf.io.gfile.exists(settings.run_dir)


def test_one_label_has_no_kind_of_positives(tiny_settings):
    with pytest.raises(ValueError, match="--positives must be left out with o"):
        training.pretrain(tiny_settings(positives="all"))


def test_classes_with_parents(tiny_settings, copy_run, tmp_path):
    parents = tmp_path / "parents.csv"
    parents.write_text("class,parents\ndark,dim\nmid,dim\nbright,\n")
    run = training.pretrain(
        tiny_settings(hierarchy=str(parents), objective="supcon+ce", epochs=0)
    )
    measured = evaluation.evaluate(runs.evaluation_settings(run.path))
    for name in ("pretrained", "knn"):
        score_rows.check({name: measured[name]})
        levels = measured[name]["hierarchy"]
        parent, leaf = levels["top_1_by_level"]
        assert leaf == measured[name]["top_1"] <= parent
        assert parent == levels["parent_top_1"]
    flat = copy_run(tmp_path / "flat")
    measured = evaluation.evaluate(
        runs.evaluation_settings(flat.path, hierarchy=str(parents))
    )
    assert len(measured["knn"]["hierarchy"]["top_1_by_level"]) == 2
    with pytest.raises(ValueError, match="`hierarchy` names must give some cl"):
        evaluation.evaluate(
            config.EvaluateSettings(str(flat.path), hierarchy="names")
        )
    with pytest.raises(ValueError, match="`hierarchy` names must give some cl"):
        training.pretrain(tiny_settings(tmp_path / "none", hierarchy="names"))
    assert not (tmp_path / "none").exists()


def test_a_long_tail_with_wrong_labels(tiny_settings):
    """In both stages, and in the evaluation: what is drawn, and its shares."""
    run = training.pretrain(
        tiny_settings(
            objective="ce",
            epochs=0,
            imbalance="exponential",
            imbalance_ratio=4.0,
            label_noise="symmetric:0.1",
            logit_adjustment=1.0,
        )
    )
    recorded = run.recorded(config.PretrainSettings)
    images = input_pipeline.source(recorded, "train")
    assert images.num_examples == 16 + 8 + 4
    classes = [
        images.class_names.index(path.split("/")[1]) for path in images.ids
    ]
    assert np.sum(images.labels != classes) == 3
    shares = np.bincount(images.labels) / 28
    for stage in (
        recorded,
        runs.linear_settings(run.path, logit_adjustment=2.0),
    ):
        loss = builders.classification_loss(stage, images)
        np.testing.assert_allclose(loss.class_shares, shares)
        assert loss.logit_adjustment == stage.logit_adjustment
    joint = dataclasses.replace(recorded, objective="bcl+ce")
    model = builders.model(joint, 3)
    builders.compile_model(joint, model, 4, images)
    np.testing.assert_allclose(model.logit_offsets, np.log(shares))
    training.train_linear(
        runs.linear_settings(run.path, logit_adjustment=2.0, epochs=2)
    )
    measured = evaluation.evaluate(
        runs.evaluation_settings(run.path, shots=(6, 10))
    )
    assert measured["bank_examples"] == 28
    score_rows.check(measured)
    shots = measured["linear"]["shots"]
    recalls = measured["linear"]["per_class_recall"]
    assert shots["mean"] == pytest.approx(np.mean(recalls))
    assert shots["many"] == pytest.approx(recalls[0])
