"""Checkpoints of other projects: small ones, made here, with their names."""

import argparse
import functools
import pathlib
import re
import sys
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, conversion, models, run_files
from supcon_tf.conversion import (
    checkpoint_files,
    convolutions,
    foreign,
    importing,
)
from supcon_tf.training import builders, checkpoints, runs, stages

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
SIDE = 32


@functools.cache
def make(architecture, stem, number=0):
    """A model of stage 1 whose running statistics are not 0 and 1."""
    encoder = models.Encoder(
        architecture, stem, 1 / 32, stem_padding="symmetric"
    )
    head = models.ProjectionHead(6, (8,), output_bias=True)
    model = models.SupConModel(encoder, head, models.layers.classifier(10))
    model.build((None, 2, SIDE, SIDE, 3))
    rng = np.random.default_rng(0)
    for variable in model.weights:
        if variable.dtype.is_floating:
            variable.assign(rng.uniform(0.2, 0.9, variable.shape) ** 2)
    return model


def blank(architecture, stem):
    """Another model, whose weights are 0."""
    model = make(architecture, stem, number=1)
    for variable in model.weights:
        variable.assign(tf.zeros_like(variable))
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


def to_torch(model, shortcut="shortcut", prefix="module.encoder."):
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


def to_google(model):
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


def to_simclr(model):
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


def import_settings(run_dir, file_format, path, **options):
    return config.ImportSettings(
        str(run_dir),
        format=file_format,
        checkpoint=path,
        dataset="digits",
        image_size=SIDE,
        **options,
    )


def assert_equal(layers, expected_layers):
    for layer, expected_layer in zip(layers, expected_layers, strict=True):
        for weight, expected_weight in zip(
            layer.weights, expected_layer.weights, strict=True
        ):
            np.testing.assert_array_equal(weight, expected_weight)


def assert_equal_encoders(model, expected):
    assert_equal(
        *([layer for *_, layer in ordered_layers(m)] for m in (model, expected))
    )


def head_layers(model):
    head = model.projection_head
    return [*head.hidden, head.projection]


@pytest.fixture(scope="module")
def google_checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("google") / "model.ckpt-17"
    return write_named(to_google(make("resnet50", "cifar")), path)


def test_a_checkpoint_becomes_a_run(google_checkpoint, tmp_path):
    model = make("resnet50", "cifar")
    conversion.import_weights(
        import_settings(tmp_path / "run", "google_supcon", google_checkpoint)
    )
    run = runs.Run.open(tmp_path / "run")
    assert run.settings.architecture == "resnet50"
    assert (run.settings.stem, run.settings.width) == ("cifar", 1 / 32)
    assert run.settings.normalize_representation
    assert_equal_encoders(run, model)
    assert_equal([run.classifier("pretrained")], [model.classifier])
    restored = builders.model(run.settings, 10)
    checkpoints.restore(
        run.checkpoint, projection_head=restored.projection_head
    )
    kernels = [head_layers(m)[-1].kernel for m in (restored, model)]
    np.testing.assert_array_equal(*kernels)


def test_a_checkpoint_of_simclr_sets_model_and_settings(tmp_path, monkeypatch):
    model, target = make("resnet50", "imagenet"), blank("resnet50", "imagenet")
    path = write_objects(to_simclr(model), tmp_path / "model.ckpt-17")
    monkeypatch.setattr(stages, "pretrain", lambda *arguments: arguments)
    settings, load = conversion.import_weights(
        import_settings(tmp_path / "run", "simclr_tf2", path)
    )
    assert (settings.stem, settings.width) == ("imagenet", 1 / 32)
    assert (settings.stem_padding, settings.epochs) == ("same", 0)
    assert not settings.normalize_representation
    assert (settings.image_mean, settings.image_std) == ((0.0,) * 3, (1.0,) * 3)
    load(settings, target)
    assert_equal_encoders(target, model)
    assert_equal([target.classifier], [model.classifier])


@pytest.mark.parametrize(
    ("architecture", "stem", "file_format", "names", "layers"),
    [
        ("resnet18", "cifar", "supcontrast", (), head_layers),
        (
            *("resnet50", "imagenet", "torchvision", ("downsample", "")),
            lambda model: [model.classifier],
        ),
    ],
)
def test_names_of_torch_are_understood(
    architecture, stem, file_format, names, layers
):
    model, target = make(architecture, stem), blank(architecture, stem)
    weights = foreign.identify(to_torch(model, *names), file_format)
    assert (weights.architecture, weights.stem) == (architecture, stem)
    importing.assign(weights, target)
    assert_equal_encoders(target, model)
    assert_equal(layers(target), layers(model))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # SupContrast on several GPUs wraps the encoder, and not the head.
        (r"^module\.(encoder\.)?", lambda m: m[1] and "encoder.module." or ""),
        (r"^module\.", "_orig_mod."),
        (r"^module\.", "module._orig_mod."),
    ],
)
def test_names_of_wrapped_models_are_understood(old, new):
    model, target = make("resnet18", "cifar"), blank("resnet18", "cifar")
    arrays = {
        re.sub(old, new, name): array for name, array in to_torch(model).items()
    }
    importing.assign(foreign.identify(arrays, "supcontrast"), target)
    assert_equal_encoders(target, model)
    assert_equal(head_layers(target), head_layers(model))


@pytest.mark.parametrize("drop", ["teacher.", "module.teacher."])
def test_dropped_names_are_those_of_the_errors_or_of_the_file(drop):
    arrays = to_torch(make("resnet18", "cifar"))
    plus("module.teacher.weight")(arrays)
    with pytest.raises(ValueError, match=r"1 more: teacher\.weight"):
        foreign.identify(arrays, "supcontrast")
    assert foreign.identify(arrays, "supcontrast", (drop,)).head


def test_weights_that_are_not_finite_are_refused():
    model = make("resnet18", "cifar")
    arrays = to_torch(model)
    name = "module.encoder.layer2.0.bn1.running_mean"
    arrays[name] = np.full_like(arrays[name], np.nan)
    weights = foreign.identify(arrays, "supcontrast")
    with pytest.raises(ValueError, match=r"others in encoder.layer2.0.bn1.ru"):
        importing.assign(weights, blank("resnet18", "cifar"))


@pytest.mark.parametrize("architecture", BLOCKS)
def test_exported_weights_have_the_names_of_torchvision(
    architecture, monkeypatch
):
    model = make(architecture, "imagenet")
    encoder, classifier = model.encoder, model.classifier
    # Networks of torchvision are wider, which would take seconds.
    for name, value, message in (
        (
            "width",
            1,
            "`formats` must be without torchvision, but for a ResNet-",
        ),
        (
            "normalize",
            False,
            "`classifier` must be none for torchvision, whose",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            convolutions.torchvision_state(encoder, classifier)
        monkeypatch.setattr(encoder, name, value)
    cosines = models.layers.classifier(10, cosine=True)
    with pytest.raises(ValueError, match="must be none or linear for torchv"):
        convolutions.torchvision_state(encoder, cosines)
    expected = to_torch(model, "downsample", "")
    state = convolutions.torchvision_state(encoder, classifier)
    assert state.keys() == expected.keys()
    for name, value in state.items():
        if not name.endswith("tracked"):
            np.testing.assert_array_equal(value, expected[name])


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


def renamed(old, new, keeps=False):
    def change(arrays):
        for name in [name for name in arrays if old in name]:
            array = arrays[name] if keeps else arrays.pop(name)
            arrays[name.replace(old, new)] = array

    return change


def plus(name, shape=(3,)):
    return lambda arrays: arrays.update({name: np.zeros(shape, np.float32)})


@pytest.mark.parametrize(
    ("file_format", "change", "message"),
    [
        ("google_supcon", plus("ContrastiveModel/EMA"), "1 more: Contrastive"),
        (
            "google_supcon",
            without("ContrastiveModel/Encoder/batch_normalization/beta"),
            "a convolution and a batch norm for each of the 53 positions",
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
        (
            "google_supcon",
            renamed("BottleneckBlock", "ResidualBlock"),
            "be of bottlenecks, ResNet-50",
        ),
        (
            "supcontrast",
            renamed("layer2.0.shortcut.", "layer1.1.shortcut.", keeps=True),
            r"of resnet50, .*: \[\(0, 1, -1\)\]",
        ),
        ("torchvision", lambda arrays: None, "more: |no ResNet|known depth"),
    ],
)
def test_a_checkpoint_of_another_network_is_named(file_format, change, message):
    model = make("resnet50", "cifar")
    converters = {"google_supcon": to_google, "simclr_tf2": to_simclr}
    arrays = converters.get(file_format, to_torch)(model)
    change(arrays)
    with pytest.raises(ValueError, match=f"`checkpoint` must .*({message})"):
        importing.assign(foreign.identify(arrays, file_format), model)


def test_a_run_that_is_there_is_not_resumed(tmp_path):
    run = run_files.RunDirectory(tmp_path / "run")
    run.create(config.PretrainSettings(str(run.path)), ("cat", "dog"))
    settings = import_settings(run.path, "google_supcon", "none")
    with pytest.raises(ValueError, match="a run already; replace it by --over"):
        conversion.import_weights(settings)


def test_no_run_is_begun_by_a_bad_checkpoint(google_checkpoint, tmp_path):
    arrays = to_google(make("resnet50", "cifar"))
    for name, array in arrays.items():
        if "ClassificationHead" in name:
            arrays[name] = array[..., :7]
    seven_classes = write_named(arrays, tmp_path / "seven")
    broken = tmp_path / "broken.index"
    broken.write_bytes(
        pathlib.Path(f"{google_checkpoint}.index").read_bytes()[:100]
    )
    for path, drop, message in (
        (seven_classes, (), "`drop` must name the classifier .* of 7 classes"),
        (str(broken.with_suffix("")), (), "must be a checkpoint of TensorFlow"),
        (str(tmp_path / "none"), (), "must be a checkpoint of TensorFlow, got"),
        (google_checkpoint, ("fc.",), "`drop` must begin a name of the checkp"),
    ):
        settings = import_settings(
            tmp_path / "run", "google_supcon", path, drop=drop
        )
        with pytest.raises(ValueError, match=message):
            conversion.import_weights(settings)
        assert not (tmp_path / "run").exists()
    drop = ("ContrastiveModel/ClassificationHead",)
    weights = foreign.identify(arrays, "google_supcon", drop)
    assert weights.classifier == () and weights.head


def test_pixels_are_those_of_the_data_of_supcontrast(tmp_path, monkeypatch):
    arrays = to_torch(make("resnet18", "cifar"))
    monkeypatch.setattr(stages, "pretrain", lambda *arguments: arguments)
    monkeypatch.setattr(checkpoint_files, "read", lambda *_: arrays)

    def pixels(data_set, **options):
        content = {"opt": argparse.Namespace(dataset=data_set)}
        monkeypatch.setattr(checkpoint_files, "_load_torch", lambda _: content)
        settings, _ = conversion.import_weights(
            import_settings(tmp_path, "supcontrast", "ckpt.pth", **options)
        )
        return settings.image_mean, settings.image_std

    ones = (1.0, 1.0, 1.0)
    assert pixels("cifar10")[1] == (0.2023, 0.1994, 0.2010)
    assert pixels("cifar100")[1] == (0.2675, 0.2565, 0.2761)
    assert pixels("cifar100", image_std=ones)[1] == ones
    with pytest.raises(ValueError, match="must be given for a checkpoint of S"):
        pixels("path", image_mean=ones)
    assert pixels("path", image_mean=ones, image_std=ones) == (ones, ones)


def test_a_pickle_is_not_unpickled(tmp_path):
    torch = pytest.importorskip("torch")
    model = make("resnet18", "cifar")
    state = {
        name: torch.tensor(value) for name, value in to_torch(model).items()
    }
    path = str(tmp_path / "ckpt.pth")
    opt = argparse.Namespace(epochs=3)
    torch.save({"model": state, "opt": opt, "epoch": 3}, path)
    conversion.import_weights(
        import_settings(tmp_path / "run", "supcontrast", path)
    )
    assert_equal_encoders(runs.Run.open(tmp_path / "run"), model)
    halves = {name: value.bfloat16() for name, value in state.items()}
    torch.save(halves, path)
    arrays = checkpoint_files.read(path, "supcontrast")
    assert {array.dtype for array in arrays.values()} == {np.dtype("float32")}
    torch.save({"net": state, "epoch": 3}, path)
    with pytest.raises(ValueError, match="called model or state.* net, epoch"):
        checkpoint_files.read(path, "supcontrast")
    torch.save({"model": state, "evil": re.compile("x")}, path)
    with pytest.raises(ValueError, match="must be a state dict of torch, got"):
        checkpoint_files.read(path, "supcontrast")


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
        checkpoint_files.read(str(path), "torchvision")


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"supcon_tf\[torch\]"):
        checkpoint_files.read("x.pth", "supcontrast")
