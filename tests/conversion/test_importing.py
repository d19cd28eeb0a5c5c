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
        scope = f"{prefix}layer{group + 1}.{index}." if group >= 0 else prefix
        names = f"{scope}conv{part + 1}", f"{scope}bn{part + 1}"
        if part < 0:
            names = f"{scope}{shortcut}.0", f"{scope}{shortcut}.1"
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
        scope = f"{top}/Encoder/"
        if group >= 0:
            block = numbered("BottleneckBlock", index)
            scope += f"BlockGroup{group}/{block}/"
        conv = numbered("Conv2DFixedPadding", number)
        arrays[f"{scope}{conv}/conv2d/kernel"] = layer.conv.kernel
        norm = numbered("batch_normalization", number)
        for kind, value in zip(KINDS, layer.bn.weights, strict=True):
            arrays[f"{scope}{norm}/{kind}"] = value
            arrays[f"{scope}{norm}/{kind}/Momentum"] = value
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
        scope = "resnet/"
        if group >= 0:
            block = sum(BLOCKS["resnet50"][:group]) + index
            block = numbered("bottleneck_block", block)
            scope += f"block_group{group + 1}/{block}/"
        conv = numbered("conv2d_fixed_padding", number)
        conv += "/" + numbered("conv2d", number)
        arrays[f"{scope}{conv}/kernel"] = layer.conv.kernel
        norm = numbered("batch_norm_relu", number)
        norm += "/" + numbered("sync_batch_normalization", number)
        for kind, value in zip(KINDS, layer.bn.weights, strict=True):
            arrays[f"{scope}{norm}/{kind}"] = value
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
        tensors=[tf.constant(array) for array in tensors],
    )
    return str(path)


def write_objects(arrays, path):
    """A checkpoint of TensorFlow 2, whose graph of objects has the names."""
    variables = [
        tf.Variable(array, name=name) for name, array in arrays.items()
    ]
    return tf.train.Checkpoint(
        model=tf.train.Checkpoint(all=variables), global_step=tf.Variable(3)
    ).write(str(path))


def import_run(run_dir, file_format, path, **options):
    conversion.import_weights(
        config.ImportSettings(
            str(run_dir),
            format=file_format,
            checkpoint=path,
            dataset="digits",
            image_size=SIDE,
            **options,
        )
    )
    return runs.Run.open(run_dir)


def assert_equal(layers, expected_layers):
    for layer, expected_layer in zip(layers, expected_layers, strict=True):
        for weight, expected_weight in zip(
            layer.weights, expected_layer.weights, strict=True
        ):
            np.testing.assert_array_equal(weight, expected_weight)


@pytest.mark.parametrize(
    ("file_format", "named", "write", "stem"),
    [
        ("google_supcon", as_google, write_named, "cifar"),
        ("simclr_tf2", as_simclr, write_objects, "imagenet"),
    ],
)
def test_a_checkpoint_of_tensorflow_becomes_a_run(
    file_format, named, write, stem, tmp_path
):
    model = make("resnet50", stem)
    path = write(named(model), tmp_path / "model.ckpt-17")
    run = import_run(tmp_path / "run", file_format, path)
    assert run.settings.architecture == "resnet50"
    assert (run.settings.stem, run.settings.width) == (stem, 1 / 32)
    assert run.settings.normalize_representation == (
        file_format == "google_supcon"
    )
    assert_equal(
        [layer for *_, layer in ordered_layers(model)],
        [layer for *_, layer in ordered_layers(run)],
    )
    assert_equal([model.classifier], [run.classifier("pretrained")])
    if file_format == "google_supcon":
        restored = builders.model(run.settings, 10)
        checkpoints.restore(
            run.checkpoint, projection_head=restored.projection_head
        )
        kernels = (restored.projection_head, model.projection_head)
        restored_kernel, kernel = (head.projection.kernel for head in kernels)
        np.testing.assert_array_equal(restored_kernel, kernel)


@pytest.mark.slow(but=["resnet50"])
@pytest.mark.parametrize("architecture", BLOCKS)
def test_names_of_torch_are_understood(architecture):
    for stem, file_format, arguments in (
        ("cifar", "supcontrast", ()),
        ("imagenet", "torchvision", ("downsample", "")),
    ):
        model, target = (make(architecture, stem) for _ in range(2))
        for variable in target.weights:
            variable.assign(tf.zeros_like(variable))
        weights = foreign.identify(as_torch(model, *arguments), file_format)
        assert (weights.architecture, weights.stem) == (architecture, stem)
        importing.assign(weights, target)
        assert_equal(
            [layer for *_, layer in ordered_layers(model)],
            [layer for *_, layer in ordered_layers(target)],
        )
        parts = [
            [stage_1_model.classifier]
            if file_format == "torchvision"
            else [
                *stage_1_model.projection_head.hidden,
                stage_1_model.projection_head.projection,
            ]
            for stage_1_model in (model, target)
        ]
        assert_equal(*parts)


@pytest.mark.slow(but=["resnet18"])
@pytest.mark.parametrize("architecture", BLOCKS)
def test_the_way_back_has_the_names_of_torchvision(architecture):
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
    symmetric, same = (
        models.resnet.ResNet(18, "imagenet", 0.1, stem_padding=padding)
        for padding in ("symmetric", "same")
    )
    images = tf.random.stateless_normal([2, 64, 64, 3], [0, 0])
    symmetric(images)
    same(images)
    same.set_weights(symmetric.get_weights())
    features = tf.nn.relu(symmetric.stem_conv(images))
    # -inf would do; after a ReLU nothing is below 0.
    features = tf.pad(features, [[0, 0], [1, 1], [1, 1], [0, 0]])
    features = tf.nn.max_pool2d(features, 3, 2, "VALID")
    for block in symmetric.blocks:
        features = block(features)
    np.testing.assert_allclose(
        symmetric(images), features, rtol=1e-4, atol=1e-5
    )
    assert np.abs(symmetric(images) - same(images)).max() > 1e-3


def without(name):
    return lambda arrays: arrays.pop(name)


def plus(name, shape=(3,)):
    return lambda arrays: arrays.update({name: np.zeros(shape, np.float32)})


@pytest.mark.parametrize(
    ("file_format", "change", "message"),
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
def test_what_is_something_else_is_named(file_format, change, message):
    model = make("resnet50", "cifar")
    converters = {"google_supcon": as_google, "simclr_tf2": as_simclr}
    arrays = converters.get(file_format, as_torch)(model)
    change(arrays)
    with pytest.raises(ValueError, match=f"`checkpoint` must .*({message})"):
        importing.assign(foreign.identify(arrays, file_format), model)


def test_a_shortcut_that_ours_has_not_is_refused():
    model = make("resnet18", "cifar")
    arrays = as_torch(model)
    for name in [name for name in arrays if ".layer2.0.shortcut." in name]:
        new_name = name.replace("layer2", "layer1")
        arrays[new_name] = arrays[name]
    weights = foreign.identify(arrays, "supcontrast")
    with pytest.raises(ValueError, match=r"of resnet18, .*: \[\(0, 0, -1\)\]"):
        importing.assign(weights, model)


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
    good_path = write_named(as_google(model), tmp_path / "whole")
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
        (
            good_path,
            {"drop": ("fc.",)},
            "`drop` must begin a name of the checkp",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            import_run(run_dir, "google_supcon", path, **options)
        assert not run_dir.exists()
    drop = ("ContrastiveModel/ClassificationHead",)
    run = import_run(run_dir, "google_supcon", other_classes, drop=drop)
    assert run.classifiers == ()


def test_a_pickle_is_not_unpickled(tmp_path):
    torch = pytest.importorskip("torch")
    model = make("resnet18", "cifar")
    state = {
        name: torch.tensor(value) for name, value in as_torch(model).items()
    }
    path = str(tmp_path / "ckpt.pth")
    opt = argparse.Namespace(epochs=3)
    torch.save({"model": state, "opt": opt, "epoch": 3}, path)
    run = import_run(tmp_path / "run", "supcontrast", path)
    assert_equal(
        [layer for *_, layer in ordered_layers(model)],
        [layer for *_, layer in ordered_layers(run)],
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
