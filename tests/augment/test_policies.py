import functools
import inspect
import itertools

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import augment
from supcon_tf.augment import affine, color, dispatch, randomness, warp
from tests.augment import inputs

_ALWAYS = {
    "jitter_probability": 1.0,
    "grayscale_probability": 1.0,
    "warp_probability": 1.0,
    "blur_probability": 1.0,
    "rotation_probability": 1.0,
}
_NEVER = dict.fromkeys(_ALWAYS, 0.0)
_POLICIES = {
    "identity": augment.Identity(),
    "imagenet": augment.AutoAugment(),
    "v0": augment.AutoAugment("v0"),
    "rand": augment.RandAugment(3),
    "sim": augment.SimAugment(strength=1.0),
    "stacked": augment.StackedRandAugment(),
}


@pytest.fixture(params=_POLICIES.values(), ids=_POLICIES)
def policy(request):
    return request.param


def _images(count: int, side: int = 32) -> tf.Tensor:
    return inputs.noise(count, side, side, 3)


def test_dispatch_gives_each_image_its_operation_and_arguments():
    images = _images(7, 2)
    choice = tf.constant([2, 0, 2, 3, 0, 3, 2])  # nobody chose 1
    amounts = tf.range(7, dtype=tf.int32)

    def paint(index):
        def operation(part, amount):
            color = tf.cast(amount * 10 + index, tf.uint8)
            return tf.zeros_like(part) + color[:, None, None, None]

        return operation

    operations = [paint(index) for index in range(4)]
    result = dispatch.dispatch(choice, operations, images, amounts).numpy()
    expected = amounts.numpy() * 10 + choice.numpy()
    np.testing.assert_array_equal(result[:, 0, 0, 0], expected)
    assert result.shape == images.shape


def test_policies_take_images_of_one_pixel(policy):
    views = policy(_images(5, 1), inputs.seeds(5))
    assert views.shape == (5, 1, 1, 3) and views.dtype == tf.uint8


def test_all_off_changes_nothing():
    images, seeds = _images(4), inputs.seeds(4)
    for policy in (
        augment.Identity(),
        augment.SimAugment(**_NEVER),
        augment.RandAugment(probability=0.0),
    ):
        np.testing.assert_array_equal(policy(images, seeds), images)


@pytest.mark.slow(but=["imagenet", "sim"])
def test_same_everywhere(policy):
    images = inputs.noise(12, 48, 37, 3)
    inputs.assert_same_everywhere(policy, images, inputs.seeds(12))


@pytest.mark.parametrize("name", ["imagenet", "rand", "sim"])
def test_seeds_decide(name):
    policy = _POLICIES[name]
    images = tf.repeat(_images(1), 32, axis=0)
    views = policy(images, inputs.seeds(32)).numpy()
    np.testing.assert_array_equal(views, policy(images, inputs.seeds(32)))
    assert len({view.tobytes() for view in views}) >= 12
    other_views = policy(images, inputs.seeds(32, root=12)).numpy()
    assert np.mean((views != other_views).any(axis=(1, 2, 3))) > 0.7


def test_order_is_rotation_jitter_grayscale_warp_blur():
    images, seeds = _images(6, 32), inputs.seeds(6)
    policy = augment.SimAugment(strength=0.7, **_ALWAYS)
    draws = randomness.uniform(seeds, 7, randomness.Stream.SIM_AUGMENT)
    width, angle = draws[:, 4], draws[:, 6]
    steps = {
        "rotation": lambda part: affine.rotate(part, 60.0 * angle - 30.0),
        "jitter": lambda part: color.color_jitter(part, seeds, 0.7),
        "grayscale": color.to_grayscale,
        "warp": lambda part: warp.random_warp(part, seeds),
        "blur": lambda part: color.gaussian_blur(part, 0.1 + 1.9 * width),
    }
    views = policy(images, seeds).numpy()

    @functools.cache
    def composed(order):
        return steps[order[-1]](composed(order[:-1])) if order else images

    order = tuple(steps)
    np.testing.assert_array_equal(composed(order), views)
    for i in range(4):  # the order decides: two neighbours in turn swap
        swapped = (*order[:i], order[i + 1], order[i], *order[i + 2 :])
        assert not np.array_equal(composed(swapped), views), swapped


@pytest.mark.parametrize("name", _ALWAYS)
def test_probabilities(name, probability=0.2):
    count = 1000
    images = tf.repeat(_images(1, 20), count, axis=0)
    policy = augment.SimAugment(**{**_NEVER, name: probability})
    views = policy(images, inputs.seeds(count)).numpy()
    changed = (views != images.numpy()).any(axis=(1, 2, 3))
    if name == "grayscale_probability":
        gray = (np.ptp(views, axis=-1) == 0).all(axis=(1, 2))
        np.testing.assert_array_equal(changed, gray)
    # A sigma near 0.1 and a warp of near length 0 change no byte.
    slack = 0.15 * probability if name[0] in "bwr" else 0.0
    noise = 4.5 * np.sqrt(probability * (1.0 - probability) / count)
    assert probability - slack - noise <= changed.mean() <= probability + noise


def test_probability_zero_leaves_the_operation_out_of_the_graph():
    def operation_types(policy):
        graph = tf.function(policy).get_concrete_function(
            tf.TensorSpec([None, 32, 32, 3], tf.uint8),
            tf.TensorSpec([None, 2], tf.int32),
        )
        return [node.op for node in graph.graph.as_graph_def().node]

    assert "DynamicPartition" not in operation_types(
        augment.SimAugment(**_NEVER)
    )
    # One partition each of images, argument and positions, per operation.
    warp_and_blur = dict(jitter_probability=0.0, grayscale_probability=0.0)
    for blur_probability, operations in ((0.0, 1), (0.5, 2)):
        policy = augment.SimAugment(
            **warp_and_blur, blur_probability=blur_probability
        )
        types = operation_types(policy)
        assert types.count("DynamicPartition") == 3 * operations


def test_stacked_is_rand_augment_then_sim_augment():
    arguments = (2, 7.0, 14, 0.9, (1, 2, 3))
    strengths = (0.8, 0.7, 0.1, 0.3, 0.4)
    images, seeds = _images(24), inputs.seeds(24)
    first = augment.RandAugment(*arguments)
    second = augment.SimAugment(*strengths)
    stacked = augment.StackedRandAugment(*arguments, *strengths)
    views = stacked(images, seeds).numpy()
    expected = second(first(images, seeds), seeds)
    np.testing.assert_array_equal(views, expected)
    backwards = first(second(images, seeds), seeds)
    assert (views != backwards.numpy()).any()


@pytest.mark.parametrize(
    "policy",
    [
        augment.AutoAugment("svhn", (1, 2, 3)),
        augment.RandAugment(3, 6.5, 14, 0.5, (1, 2, 3)),
        augment.SimAugment(1.0, 0.7, 0.1, 0.3, 0.4, 0.5),
        augment.StackedRandAugment(3, 5.0, 14, 0.5, (1, 2, 3), 1.0, 0.7),
        augment.Identity(),
    ],
)
def test_config_rebuilds_the_policy(policy):
    config = policy.get_config()
    names = inspect.signature(type(policy)).parameters
    assert list(config) == list(names)
    rebuilt = type(policy)(**config)
    assert vars(rebuilt) == vars(policy)


def test_errors():
    for name, value in itertools.product(_ALWAYS, (-0.1, 1.1, float("nan"))):
        message = rf"`{name}` must be in \[0, 1\], got {value}"
        with pytest.raises(ValueError, match=message):
            augment.SimAugment(**{name: value})
    with pytest.raises(ValueError, match=r"`strength` must be in \[0, 2.5\]"):
        augment.SimAugment(strength=2.6)
    for policy in _POLICIES.values():
        for images in (
            tf.zeros([2, 4, 4, 3], tf.int32),
            tf.zeros([4, 4, 3], tf.uint8),
            tf.zeros([2, 4, 4, 17], tf.uint8),
        ):
            with pytest.raises(ValueError, match="`images` must be "):
                policy(images, inputs.seeds(len(images)))
    with pytest.raises(ValueError, match="one of imagenet, v0.* got 'v1'"):
        augment.AutoAugment("v1")
    for arguments, message in (
        ({"num_layers": 0}, "`num_layers` must be >= 1, got 0"),
        ({"magnitude": 10.5}, "`magnitude` must be in .* got 10.5"),
        ({"num_operations": 15}, "`num_operations` must be 14 or 16, got 15"),
        ({"probability": -0.1}, "`probability` must be in .* got -0.1"),
        ({"fill": (1, 2, 300)}, "`fill` must be three numbers .* 300"),
    ):
        with pytest.raises(ValueError, match=message):
            augment.RandAugment(**arguments)
    with pytest.raises(ValueError, match=r"`seeds` must be \[batch, 2\] int32"):
        augment.SimAugment()(_images(2), tf.zeros([2, 3], tf.int32))
