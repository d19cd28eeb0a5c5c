"""Checkpoints of other projects: small ones, made here, with their names."""

import argparse
import re
import sys
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, conversion, models
from supcon_tf.conversion import convolutions, foreign, importing
from supcon_tf.training import builders, checkpoints, runs

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
SIDE = 32


def make(architecture, stem, **options):
    """A model whose running statistics are not 0 and 1."""
    encoder = models.Encoder(
        architecture, stem, 1 / 32, stem_padding="symmetric", **options
    )
    head = models.ProjectionHead(6, (8,), output_bias=True)
    model = models.SupConModel(encoder, head, models.layers.classifier(10))
    model.build((None, 2, SIDE, SIDE, 3))
    rng = np.random.default_rng(0)
    for variable in model.weights:
        if variable.dtype.is_floating:
            variable.assign(rng.uniform(0.2, 0.9, variable.shape) ** 2)
    return model


def ordered_layers(model):
    """(group, block, part, layer): the shortcut, -1, before the branch."""
    stack = model.encoder.stack
    yield -1, 0, 0, stack.stem_conv
    blocks = iter(stack.blocks)
    counts = BLOCKS[model.encoder.architecture]
    for group, count in enumerate(counts):
        for index in range(count):
            block = next(blocks)
            if block.shortcut is not None:
                yield group, index, -1, block.shortcut
            for part, layer in enumerate(block.branch):
                yield group, index, part, layer


def as_torch(model, shortcut="shortcut", prefix="module.encoder."):
    """The state dict of SupContrast; of torchvision with other arguments."""
    state = {}
    for group, index, part, layer in ordered_layers(model):
        at = f"{prefix}layer{group + 1}.{index}." if group >= 0 else prefix
        names = f"{at}conv{part + 1}", f"{at}bn{part + 1}"
        if part < 0:
            names = f"{at}{shortcut}.0", f"{at}{shortcut}.1"
        kernel = layer.conv.kernel.numpy()
        state[f"{names[0]}.weight"] = kernel.transpose(3, 2, 0, 1)
        ends = ("weight", "bias", "running_mean", "running_var")
        for end, value in zip(ends, layer.bn.weights, strict=True):
            state[f"{names[1]}.{end}"] = value.numpy()
        state[f"{names[1]}.num_batches_tracked"] = np.array(7)
    if prefix:
        head = model.projection_head
        for number, layer in ((0, head.hidden[0]), (2, head.projection)):
            state[f"module.head.{number}.weight"] = layer.kernel.numpy().T
            state[f"module.head.{number}.bias"] = layer.bias.numpy()
    else:
        state["fc.weight"] = model.classifier.kernel.numpy().T
        state["fc.bias"] = model.classifier.bias.numpy()
    return state


KINDS = ("gamma", "beta", "moving_mean", "moving_variance")


def numbered(name, number):
    return f"{name}_{number}" if number else name


def as_google(model):
    """Variables of a checkpoint of TensorFlow 1, by name."""
    top, arrays = "ContrastiveModel", {}
    has_shortcut = False
    for group, index, part, layer in ordered_layers(model):
        has_shortcut = part < 0 or (has_shortcut and part >= 0 and index == 0)
        number = part + has_shortcut if group >= 0 else 0
        at = f"{top}/Encoder/"
        if group >= 0:
            block = numbered("BottleneckBlock", index)
            at += f"BlockGroup{group}/{block}/"
        conv = numbered("Conv2DFixedPadding", number)
        arrays[f"{at}{conv}/conv2d/kernel"] = layer.conv.kernel
        norm = numbered("batch_normalization", number)
        for kind, value in zip(KINDS, layer.bn.weights, strict=True):
            arrays[f"{at}{norm}/{kind}"] = value
            arrays[f"{at}{norm}/{kind}/Momentum"] = value
    head, last = model.projection_head, model.classifier
    arrays[f"{top}/ProjectionHead/dense/kernel"] = head.hidden[0].kernel
    arrays[f"{top}/ProjectionHead/dense/bias"] = head.hidden[0].bias
    arrays[f"{top}/ProjectionHead/dense_1/kernel"] = head.projection.kernel
    arrays[f"{top}/ClassificationHead/dense/kernel"] = last.kernel
    arrays[f"{top}/ClassificationHead/dense/bias"] = last.bias
    arrays["global_step"] = tf.constant(17, tf.int64)
    return {name: np.asarray(value) for name, value in arrays.items()}


def as_simclr(model):
    """The names of the variables of SimCLR's tf2 model."""
    arrays = {}
    for number, (group, index, _, layer) in enumerate(ordered_layers(model)):
        at = "resnet/"
        if group >= 0:
            block = sum(BLOCKS["resnet50"][:group]) + index
            block = numbered("bottleneck_block", block)
            at += f"block_group{group + 1}/{block}/"
        conv = numbered("conv2d_fixed_padding", number)
        conv += "/" + numbered("conv2d", number)
        arrays[f"{at}{conv}/kernel"] = layer.conv.kernel
        norm = numbered("batch_norm_relu", number)
        norm += "/" + numbered("sync_batch_normalization", number)
        for kind, value in zip(KINDS, layer.bn.weights, strict=True):
            arrays[f"{at}{norm}/{kind}"] = value
    arrays["projection_head/nl_0/dense/kernel"] = np.ones([4, 4])
    last = "head_supervised/linear_layer/dense_3/"
    arrays[f"{last}kernel"] = model.classifier.kernel
    arrays[f"{last}bias"] = model.classifier.bias
    return {name: np.asarray(value) for name, value in arrays.items()}


def write_named(arrays, path):
    """A checkpoint of TensorFlow 1, by names."""
    names, tensors = zip(*arrays.items(), strict=True)
    tf.raw_ops.SaveV2(
        prefix=str(path),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(x) for x in tensors],
    )
    return str(path)


def write_objects(arrays, path):
    """A checkpoint of TensorFlow 2, whose graph of objects has the names."""
    variables = [tf.Variable(x, name=name) for name, x in arrays.items()]
    return tf.train.Checkpoint(
        model=tf.train.Checkpoint(all=variables), global_step=tf.Variable(3)
    ).write(str(path))


def imported(run_dir, form, path, **options):
    conversion.import_weights(
        config.ImportSettings(
            str(run_dir),
            format=form,
            checkpoint=path,
            dataset="digits",
            image_size=SIDE,
            **options,
        )
    )
    return runs.Run.open(run_dir)


def assert_equal(layers, others):
    for one, other in zip(layers, others, strict=True):
        for a, b in zip(one.weights, other.weights, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("form", "named", "write", "stem"),
    [
        ("google_supcon", as_google, write_named, "cifar"),
        ("simclr_tf2", as_simclr, write_objects, "imagenet"),
    ],
)
def test_a_checkpoint_of_tensorflow_becomes_a_run(
    form, named, write, stem, tmp_path
):
    model = make("resnet50", stem)
    path = write(named(model), tmp_path / "model.ckpt-17")
    run = imported(tmp_path / "run", form, path)
    assert run.settings.architecture == "resnet50"
    assert (run.settings.stem, run.settings.width) == (stem, 1 / 32)
    assert run.settings.normalize_representation == (form == "google_supcon")
    assert_equal(
        [x[-1] for x in ordered_layers(model)],
        [x[-1] for x in ordered_layers(run)],
    )
    assert_equal([model.classifier], [run.classifier("pretrained")])
    if form == "google_supcon":
        made = builders.model(run.settings, 10)
        checkpoints.restore(
            run.checkpoint, projection_head=made.projection_head
        )
        kernels = (made.projection_head, model.projection_head)
        one, other = (x.projection.kernel for x in kernels)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("architecture", BLOCKS)
def test_names_of_torch_are_understood(architecture):
    for stem, form, arguments in (
        ("cifar", "supcontrast", ()),
        ("imagenet", "torchvision", ("downsample", "")),
    ):
        model, other = (make(architecture, stem) for _ in range(2))
        for variable in other.weights:
            variable.assign(tf.zeros_like(variable))
        found = foreign.identify(as_torch(model, *arguments), form)
        assert (found.architecture, found.stem) == (architecture, stem)
        importing.assign(found, other)
        assert_equal(
            [x[-1] for x in ordered_layers(model)],
            [x[-1] for x in ordered_layers(other)],
        )
        parts = [
            [m.classifier]
            if form == "torchvision"
            else [*m.projection_head.hidden, m.projection_head.projection]
            for m in (model, other)
        ]
        assert_equal(*parts)


def test_the_way_back_has_the_names_of_torchvision():
    for architecture in BLOCKS:
        encoder = models.Encoder(
            architecture, "imagenet", normalize=False, stem_padding="symmetric"
        )
        model = models.ClassifierModel(encoder, 10)
        model.build((None, 1, SIDE, SIDE, 3))
        expected = as_torch(model, "downsample", "")
        state = convolutions.torchvision_state(encoder, model.classifier)
        assert state.keys() == expected.keys()
        for name, value in state.items():
            if not name.endswith("tracked"):
                np.testing.assert_array_equal(value, expected[name])
    for options, message in (
        ({}, "`formats` must be without torchvision, but for a ResNet-18 to"),
        ({"stem_padding": "symmetric"}, "`classifier` must be none for torch"),
    ):
        encoder = models.Encoder("resnet18", "imagenet", **options)
        encoder.build((None, SIDE, SIDE, 3))
        with pytest.raises(ValueError, match=message):
            convolutions.torchvision_state(encoder, model.classifier)


def test_symmetric_padding_is_that_of_a_pool_of_a_padded_image():
    one, other = (
        models.resnet.ResNet(18, "imagenet", 0.1, stem_padding=padding)
        for padding in ("symmetric", "same")
    )
    images = tf.random.stateless_normal([2, 64, 64, 3], [0, 0])
    one(images)
    other(images)
    other.set_weights(one.get_weights())
    x = tf.nn.relu(one.stem_conv(images))
    # -inf would do; after a ReLU nothing is below 0.
    x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
    x = tf.nn.max_pool2d(x, 3, 2, "VALID")
    for block in one.blocks:
        x = block(x)
    np.testing.assert_allclose(one(images), x, rtol=1e-4, atol=1e-5)
    assert np.abs(one(images) - other(images)).max() > 1e-3


def without(name):
    return lambda arrays: arrays.pop(name)


def plus(name, shape=(3,)):
    return lambda arrays: arrays.update({name: np.zeros(shape, np.float32)})


@pytest.mark.parametrize(
    ("form", "change", "message"),
    [
        ("google_supcon", plus("ContrastiveModel/EMA"), "1 more: Contrastive"),
        (
            "google_supcon",
            without("ContrastiveModel/Encoder/batch_normalization/beta"),
            "a convolution and a batch norm for each of the 53 places",
        ),
        (
            "simclr_tf2",
            plus("resnet/sk_conv2d/kernel"),
            "without selective ker",
        ),
        ("supcontrast", plus("module.teacher.weight"), "1 more: teacher.weig"),
        (
            "supcontrast",
            without("module.encoder.layer2.0.bn1.running_mean"),
            "none called encoder.layer2.0.bn1.running_mean",
        ),
        (
            "supcontrast",
            without("module.encoder.layer2.1.conv1.weight"),
            "4 more: encoder.layer2.1.bn1.bias, encoder.layer2.1.bn1.runn",
        ),
        (
            "google_supcon",
            without("ContrastiveModel/ProjectionHead/dense/bias"),
            "none called ContrastiveModel/ProjectionHead/dense/bias",
        ),
        ("torchvision", lambda arrays: None, "more: |no ResNet|known depth"),
    ],
)
def test_what_is_something_else_is_named(form, change, message):
    model = make("resnet50", "cifar")
    named = {"google_supcon": as_google, "simclr_tf2": as_simclr}
    arrays = named.get(form, as_torch)(model)
    change(arrays)
    with pytest.raises(ValueError, match=f"`checkpoint` must .*({message})"):
        importing.assign(foreign.identify(arrays, form), model)


def test_a_shortcut_that_ours_has_not_is_refused():
    model = make("resnet18", "cifar")
    arrays = as_torch(model)
    for name in [x for x in arrays if ".layer2.0.shortcut." in x]:
        other = name.replace("layer2", "layer1")
        arrays[other] = arrays[name]
    found = foreign.identify(arrays, "supcontrast")
    with pytest.raises(ValueError, match=r"of resnet18, .*: \[\(0, 0, -1\)\]"):
        importing.assign(found, model)


def test_basic_blocks_of_tensorflow_are_refused():
    arrays = as_google(make("resnet50", "cifar"))
    arrays = {
        name.replace("BottleneckBlock", "ResidualBlock"): value
        for name, value in arrays.items()
    }
    with pytest.raises(ValueError, match="must be of bottlenecks, ResNet-50"):
        foreign.identify(arrays, "google_supcon")


def test_no_run_is_begun_by_a_bad_checkpoint(tmp_path):
    model = make("resnet50", "cifar")
    whole = write_named(as_google(model), tmp_path / "whole")
    model.classifier = models.layers.classifier(7)
    model.classifier.build((None, 64))
    other_classes = write_named(as_google(model), tmp_path / "seven")
    broken = tmp_path / "broken.index"
    broken.write_bytes((tmp_path / "whole.index").read_bytes()[:100])
    run_dir = tmp_path / "run"
    for path, options, message in (
        (other_classes, {}, "`drop` must name the classifier .* of 7 classes"),
        (str(broken.with_suffix("")), {}, "must be a checkpoint of TensorFlow"),
        (str(tmp_path / "none"), {}, "must be a checkpoint of TensorFlow, got"),
        (whole, {"drop": ("fc.",)}, "`drop` must begin a name of the checkp"),
    ):
        with pytest.raises(ValueError, match=message):
            imported(run_dir, "google_supcon", path, **options)
        assert not run_dir.exists()
    drop = ("ContrastiveModel/ClassificationHead",)
    run = imported(run_dir, "google_supcon", other_classes, drop=drop)
    assert run.classifiers == ()


def test_a_pickle_is_not_unpickled(tmp_path):
    torch = pytest.importorskip("torch")
    model = make("resnet18", "cifar")
    state = {k: torch.tensor(v) for k, v in as_torch(model).items()}
    path = str(tmp_path / "ckpt.pth")
    opt = argparse.Namespace(epochs=3)
    torch.save({"model": state, "opt": opt, "epoch": 3}, path)
    run = imported(tmp_path / "run", "supcontrast", path)
    assert_equal(
        [x[-1] for x in ordered_layers(model)],
        [x[-1] for x in ordered_layers(run)],
    )
    torch.save({"model": state, "evil": re.compile("x")}, path)
    with pytest.raises(ValueError, match="must be a state dict of torch, got"):
        foreign.read(path, "supcontrast")


@pytest.mark.parametrize(
    ("name", "compression", "message"),
    [
        ("x/constants.pkl", zipfile.ZIP_STORED, "a program of TorchScript"),
        ("x/code/__torch__.py", zipfile.ZIP_STORED, "a program of TorchS"),
        ("x/data/0", zipfile.ZIP_DEFLATED, "not compressed, got .* 1000000 by"),
    ],
)
def test_an_archive_must_be_as_torch_saves_weights(
    name, compression, message, tmp_path
):
    path = tmp_path / "theirs.pth"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr(name, bytes(10**6))
    with pytest.raises(ValueError, match=message):
        foreign.read(str(path), "torchvision")


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"supcon_tf\[torch\]"):
        foreign.read("x.pth", "supcontrast")
