"""Networks of Keras 3 through the tools: killed, resumed, exported."""

import signal

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, evaluation, keras_2, run_files, serving, training

if keras_2.PACKAGE == "keras":
    pytest.skip("there is no Keras 3", allow_module_level=True)

from supcon_tf import finetuning  # noqa: E402
from supcon_tf.training import runs  # noqa: E402
from tests import networks_3, processes  # noqa: E402

NETWORK = "tests.networks_3:sequential"  # with dropout
FLAGS = (
    *(f"--architecture={NETWORK}", "--width=1.0", "--deterministic"),
    *("--epochs=2", "--batch_size=240", "--checkpoint_steps=2"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    processes.end(processes.start(path, *FLAGS))
    return run_files.RunDirectory(path)


def test_a_run_that_is_killed_inside_an_epoch_ends_bit_identical(run, tmp_path):
    path = tmp_path / "run"
    killed = processes.start(path, *FLAGS, signalled=(signal.SIGKILL, 2))
    processes.end(killed, -signal.SIGKILL)
    assert run_files.steps_in(run_files.RunDirectory(path).checkpoints) == [2]
    processes.end(processes.start(path, *FLAGS))
    expected, got = processes.variables(run.path), processes.variables(path)
    assert expected.keys() == got.keys()
    draws = [
        array.tolist()
        for name, array in expected.items()
        if array.shape == (2,)
    ]
    assert [count for _, count in draws] == [10, 10]  # of dropout, by steps
    for name, value in expected.items():
        np.testing.assert_array_equal(value, got[name], err_msg=name)


def test_what_comes_after(run):
    name = {"architecture": NETWORK}
    training.train_linear(
        config.LinearSettings(str(run.path), epochs=1, batch_size=128, **name)
    )
    settings = config.EvaluateSettings(
        str(run.path), plotted_images=100, **name
    )
    measured = evaluation.evaluate(settings)
    assert 0 < measured["linear"]["top_1"] <= 1
    serving.export(config.ExportSettings(str(run.path), version=1, **name))
    export = run.export / "1"
    opened = runs.open_run(run.path, **name)
    side = opened.image_size
    images = np.random.default_rng(0).integers(0, 256, [4, side, side, 3])
    answer = tf.saved_model.load(str(export)).signatures["predict_images"](
        tf.constant(images, tf.uint8)
    )
    logits = opened.classifier("linear")(opened.encoder(images.astype("uint8")))
    np.testing.assert_allclose(
        answer["probabilities"], tf.nn.softmax(logits), atol=1e-5
    )


def test_random_layers_begin_no_run_with_gradient_caching(tmp_path):
    flags = *FLAGS, "--gradient_cache_chunks=2"
    output = processes.end(processes.start(tmp_path / "run", *flags), 1)
    assert "--gradient_cache_chunks must be 1 for a network that" in output
    assert "Traceback" not in output and not (tmp_path / "run").exists()


def test_fine_tuning(image_folder, tmp_path):
    """Each training begins with the same draws, whatever was before it."""
    network = networks_3.sequential()
    network.build((None, 16, 16, 3))
    network.save_weights(tmp_path / "own.weights.h5")
    tuned = []
    for rates in ((0.01, 0.1), (0.1,)):
        settings = config.FinetuneSettings(
            str(tmp_path / f"run{len(rates)}"),
            data_dir=str(image_folder),
            architecture=NETWORK,
            weights=str(tmp_path / "own.weights.h5"),
            image_size=16,
            epochs=1,
            learning_rates=rates,
            layer_decay=0.5,
            hidden_dims=(16,),
            batch_size=16,
        )
        run = finetuning.finetune_images(settings)
        judged = run.finetuning()["candidates"]
        tuned += [
            candidate
            for candidate in judged
            if candidate["name"] == "tuned at 0.1"
        ]
    assert len(judged) >= 4
    result, other = tuned
    assert result["validation"]["nll"] == pytest.approx(
        other["validation"]["nll"], rel=1e-5
    )
