import collections
import io
import re
import resource
import uuid
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf
from etils import epath

from supcon_tf import models, run_files
from supcon_tf.training import checkpoints


class Part(tf.Module):
    def __init__(self, value, size=3):
        super().__init__()
        self.kernel = tf.Variable(tf.fill([size], float(value)))
        self.inner = {"bias": tf.Variable(value)}


def save(directory, step, value=None, epoch_steps=10, **metrics):
    parts = {"part": Part(step if value is None else value)}
    progress = checkpoints.Progress(step, epoch_steps, metrics)
    checkpoints.save(directory, parts, progress)


@pytest.fixture
def directory(tmp_path):
    return epath.Path(tmp_path / "checkpoints")


def test_a_checkpoint_has_its_parts_and_the_position_of_the_run(directory):
    assert run_files.steps_in(directory) == []
    save(directory, 7, loss=[1.5, 3.0])
    save(directory, 123_456_789)
    assert run_files.steps_in(directory) == [7, 123_456_789]
    path = run_files.path_of(directory, 7)
    progress = checkpoints.read_progress(path)
    assert progress == checkpoints.Progress(7, 10, {"loss": [1.5, 3.0]})
    assert progress.epoch == 0
    assert checkpoints.Progress(20, 10).epoch == 2
    part = Part(0)
    checkpoints.restore(path, part=part)
    np.testing.assert_array_equal(part.kernel, [7, 7, 7])
    assert part.inner["bias"].numpy() == 7


def test_only_the_chief_leaves_files(directory):
    start = checkpoints.Progress(1, 1)
    checkpoints.save(directory, {"part": Part(1)}, start, is_chief=False)
    assert not directory.exists()


def test_a_step_is_replaced_and_partial_steps_are_removed(directory):
    for value in (1, 2):
        save(directory, 5, value=value)
    part = Part(0)
    checkpoints.restore(run_files.path_of(directory, 5), part=part)
    assert part.inner["bias"].numpy() == 2
    partial = f".step-00000006.{uuid.uuid4()}.partial"
    (directory / partial / "variables").mkdir(parents=True)
    assert run_files.steps_in(directory) == [5]
    checkpoints.remove_partial(directory)
    assert [path.name for path in directory.iterdir()] == ["step-00000005"]


def test_pruning_keeps_the_newest_and_every_third_step(directory):
    for step in range(1, 10):
        save(directory, step)
    checkpoints.prune(directory, 2, 3)
    assert run_files.steps_in(directory) == [3, 6, 8, 9]
    checkpoints.prune(directory, 1)
    assert run_files.steps_in(directory) == [9]


@pytest.fixture
def full_disk():
    """No file may grow beyond a megabyte: larger writes fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_last_good_checkpoint(directory, full_disk):
    save(directory, 5)
    parts = {"part": Part(6, size=1_000_000)}
    with pytest.raises(OSError, match="of step 6 could not be saved") as raised:
        checkpoints.save(directory, parts, checkpoints.Progress(6, 10))
    assert "That of step 5 is good: free some space" in str(raised.value)
    assert "{{" not in str(raised.value) and "[Op:" not in str(raised.value)
    assert "File too large" in str(raised.value)
    assert [path.name for path in directory.iterdir()] == ["step-00000005"]
    assert checkpoints.read_progress(run_files.path_of(directory, 5))


DATA = "variables.data-00000-of-00001"


@pytest.mark.parametrize(
    ("name", "content", "message"),  # without content: removed
    [
        (DATA, "torn", rf"damaged: {DATA} \(changed\). Delete it"),
        ("variables.index", None, r"damaged: variables.index \(missing\)"),
        ("progress.json", "{", "cannot be read"),
        ("progress.json", "[" * 100_000, "cannot be read"),
        ("progress.json", "{}", "must be a checkpo"),
        ("progress.json", None, "progress.json cannot be"),
        (
            "progress.json",
            '{"files": {}, "steps": 3}',
            "progress.json cannot be read: .*steps",
        ),
    ],
)
def test_a_damaged_checkpoint_is_refused(directory, name, content, message):
    save(directory, 5)
    path = run_files.path_of(directory, 5)
    (path / name).unlink()
    if content is not None:
        (path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        checkpoints.read_progress(path)


def test_a_foreign_checkpoint_is_refused_with_the_difference(directory):
    save(directory, 5)
    path = run_files.path_of(directory, 5)
    other = Part(0, size=4)
    other.inner["scale"] = tf.Variable([1.0])
    with pytest.raises(ValueError, match="must fit part of") as raised:
        checkpoints.restore(path, part=other)
    message = str(raised.value)
    assert "-part/inner/scale [1]" in message
    assert "part/kernel [3], not [4]" in message
    assert "bias" not in message
    with pytest.raises(ValueError, match="must fit unknown of"):
        checkpoints.restore(path, unknown=Part(0))


# Names of variables in files that users hold, and how many there are of each,
# with "#" for any number. A change here would make those files useless.
BATCH_NORM = ("beta", "gamma", "moving_mean", "moving_variance")
OPTIMIZER = {"optimizer/_current_learning_rate": 1, "optimizer/_iterations": 1}
PRETRAINING = {
    **{f"encoder/stack/convs/#/bn/{name}": 8 for name in BATCH_NORM},
    "encoder/stack/convs/#/conv/kernel": 8,
    **{f"projection_head/norms/#/{name}": 1 for name in BATCH_NORM},
    "projection_head/hidden/#/kernel": 1,
    "projection_head/projection/kernel": 1,
    "optimizer/_variables/#": 28,
    **OPTIMIZER,
}
LINEAR = {
    "classifier/bias": 1,
    "classifier/kernel": 1,
    "optimizer/_variables/#": 2,
    **OPTIMIZER,
}
RESNET = {
    **{f"stack/blocks/#/branch/#/bn/{name}": 16 for name in BATCH_NORM},
    "stack/blocks/#/branch/#/conv/kernel": 16,
    **{f"stack/blocks/#/shortcut/bn/{name}": 3 for name in BATCH_NORM},
    "stack/blocks/#/shortcut/conv/kernel": 3,
    **{f"stack/stem_conv/bn/{name}": 1 for name in BATCH_NORM},
    "stack/stem_conv/conv/kernel": 1,
}
RESNET_IN_KERAS_FILE = {
    "stack/chain/residual_block#/branch/conv_bn#/bn/vars/#": 64,
    "stack/chain/residual_block#/branch/conv_bn#/conv/vars/#": 16,
    "stack/chain/residual_block#/shortcut/bn/vars/#": 12,
    "stack/chain/residual_block#/shortcut/conv/vars/#": 3,
    "stack/stem_conv/bn/vars/#": 4,
    "stack/stem_conv/conv/vars/#": 1,
}


def counts(names):
    """How many names there are of each pattern."""
    # Keras numbers from the second of a kind on: conv_bn, conv_bn_1.
    number = re.compile(r"(?<=/)\d+|(?<=conv_bn)(_\d+)?|(?<=_block)(_\d+)?")
    return collections.Counter(number.sub("#", name) for name in names)


def checkpoint_names(prefix):
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    names = [name for name, _ in tf.train.list_variables(prefix)]
    return [key.removesuffix(suffix) for key in names if key.endswith(suffix)]


def test_names_of_variables_of_a_run_never_change(finished_run):
    stage = finished_run.stage("linear")
    for run, expected in ((finished_run, PRETRAINING), (stage, LINEAR)):
        prefix = f"{run.latest_checkpoint()}/variables"
        assert counts(checkpoint_names(prefix)) == expected


def test_names_of_variables_of_a_resnet_never_change(tmp_path):
    encoder = models.Encoder("resnet18", width=0.05)
    encoder.build((None, 32, 32, 3))
    tf.train.Checkpoint(encoder=encoder).write(str(tmp_path / "variables"))
    names = checkpoint_names(str(tmp_path / "variables"))
    assert counts(name.removeprefix("encoder/") for name in names) == RESNET
    encoder.save(tmp_path / "encoder.keras")
    with zipfile.ZipFile(tmp_path / "encoder.keras") as archive:
        contents = io.BytesIO(archive.read("model.weights.h5"))
    items = []
    with h5py.File(contents) as file:
        file.visititems(lambda *named: items.append(named))
        names = [name for name, item in items if isinstance(item, h5py.Dataset)]
    assert counts(names) == RESNET_IN_KERAS_FILE
