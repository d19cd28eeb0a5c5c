"""Language models as encoders: against NumPy, of every family, in training."""

import numpy as np
import pytest
import tensorflow as tf
import transformers

from supcon_tf import losses, models, text, training
from supcon_tf.keras_2 import keras
from tests import reference
from tests.text import bert

SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
# Where a family has other names, or needs more.
FAMILIES = {
    "bert": {},
    "roberta": {"pad_token_id": 1, "type_vocab_size": 1},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "electra": {"embedding_size": 8},
    "mpnet": {"pad_token_id": 1},
    "deberta": {},
    "deberta-v2": {},
}


def family_config(family, **changes):
    return SIZES | {"model_type": family} | FAMILIES[family] | changes


def built_encoder(family="bert", **options):
    keras.utils.set_random_seed(0)
    encoder = text.TextEncoder(family_config(family), **options)
    encoder.build((None, None, 2))
    return encoder


def random_tokens(*lengths):
    """Random sentences of two parts, of these lengths, behind seeds of 0."""
    rng = np.random.default_rng(0)
    tokens = np.full([len(lengths), 1 + max(lengths), 2], [-1, 0], np.int32)
    tokens[:, 0] = 0
    for row, length in zip(tokens[:, 1:], lengths, strict=True):
        row[:length, 0] = rng.integers(4, 60, length)
        row[:length, 1] = np.arange(length) >= length // 2
    return tokens


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_bert_is_that_of_numpy(pooling):
    encoder = built_encoder(pooling=pooling, normalize=False)
    rng = np.random.default_rng(1)
    for variable in encoder.weights:  # biases and gammas that matter
        variable.assign(variable + 0.1 * rng.normal(size=variable.shape))
    weights = {
        variable.name.split("/bert/")[1][:-2]: variable.numpy()
        for variable in encoder.weights
    }
    tokens = random_tokens(5, 9, 1)
    representations = encoder(tokens).numpy()
    for row, sentence in zip(representations, tokens, strict=True):
        ids, parts = sentence[1:][sentence[1:, 0] >= 0].T
        states = bert.states(
            weights, ids, parts, layers=2, heads=2, epsilon=1e-12
        )
        expected = states[0] if pooling == "cls" else states.mean(axis=0)
        np.testing.assert_allclose(row, expected, atol=1e-5)


@pytest.mark.slow(but=["bert"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_each_family_trains(family, tmp_path):
    """From files, and padding behind a sentence does not matter."""
    saved_encoder = built_encoder(family)
    saved_encoder.network.save_pretrained(tmp_path)
    encoder = text.TextEncoder.from_pretrained(tmp_path, dropout=0.0)
    tokens = random_tokens(6, 3)
    expected = saved_encoder(tokens).numpy()
    for training_mode in (False, True):  # the same without dropout
        representations = encoder(tokens, training=training_mode)
        np.testing.assert_allclose(representations, expected, atol=1e-5)
    assert expected.shape == (2, 16)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(encoder(tokens[1:, :4]), expected[1:], atol=1e-5)
    names = [layer.name for layer in models.ordered_layers(encoder)]
    assert names[0] == "embeddings" and len(names) == 3
    model = models.SupConModel(
        encoder,
        models.NoProjectionHead(),
        models.layers.classifier(2),
        classifier_weight=0.5,
    )
    # Eagerly: tracing takes far longer.
    loss = losses.SupConLoss(0.3)
    model.compile(training.AdamW(1e-2), loss, run_eagerly=True)
    views = random_tokens(6, 3, 5, 8)[:, np.newaxis]
    model.build(views.shape)
    old_weights = [weight.numpy() for weight in encoder.trainable_weights]
    model.train_on_batch(views, np.array([0, 1, 0, 1]))
    for old_weight, weight in zip(
        old_weights, encoder.trainable_weights, strict=True
    ):
        assert (old_weight != weight.numpy()).any(), weight.name


def test_supcon_alone_reaches_the_embeddings():
    """By the paper's loss on [CLS] at unit length."""
    encoder = built_encoder(normalize=False)
    labels = [0, 1, 0, 1]
    tokens = random_tokens(6, 3, 5, 8)
    head = models.NoProjectionHead()
    with tf.GradientTape() as tape:
        z = head(encoder(tokens, training=False))
        values = losses.supcon_loss(z[:, tf.newaxis], labels, temperature=0.3)
        loss = tf.reduce_mean(values)
    expected = reference.supcon_loss(
        z.numpy()[:, np.newaxis], labels, temperature=0.3
    )
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    embeddings = models.ordered_layers(encoder)[0].weights
    for gradient in tape.gradient(loss, embeddings):
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0


def test_a_model_is_rebuilt_from_its_config_and_its_files(tmp_path):
    encoder = built_encoder(pooling="mean")
    tokens = random_tokens(4, 7)
    expected = encoder(tokens)
    rebuilt = text.TextEncoder.from_config(encoder.get_config())
    rebuilt.build((None, None, 2))
    path = str(tmp_path / "encoder.weights.h5")
    encoder.save_weights(path)
    rebuilt.load_weights(path)
    np.testing.assert_array_equal(rebuilt(tokens), expected)


@pytest.mark.parametrize("family, limit", [("bert", 40), ("roberta", 38)])
def test_the_positions_bound_the_length(family, limit):
    encoder = built_encoder(family)
    assert encoder.max_length == limit
    assert np.isfinite(encoder(random_tokens(limit))).all()


@pytest.mark.slow
def test_keras_saves_the_model(tmp_path):
    encoder = built_encoder(normalize=False)
    classifier = models.layers.classifier(2)
    parts = encoder, models.NoProjectionHead(), classifier
    model = models.SupConModel(*parts, classifier_weight=0.5)
    # Eagerly, since tracing a step takes longest.
    optimizer = training.AdamW(1e-2)
    model.compile(optimizer, losses.SupConLoss(0.3), run_eagerly=True)
    tokens = random_tokens(6, 3, 5, 8)
    batch = tokens[:, np.newaxis], np.array([0, 1, 0, 1])
    model.train_on_batch(*batch)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    expected = encoder(tokens)
    np.testing.assert_array_equal(loaded.encoder(tokens), expected)
    assert np.isfinite(loaded.train_on_batch(*batch)).all()


@pytest.mark.slow(but=["bert", "deberta-v2"])
@pytest.mark.parametrize("family", ["bert", "distilbert", "deberta-v2"])
def test_dropout_is_a_function_of_the_seeds(family):
    encoder = built_encoder(family)
    tokens = np.repeat(random_tokens(6), 2, axis=0)

    def represent():
        return encoder(tokens, training=True).numpy()

    random = [represent() for _ in range(2)]  # of seeds of 0
    assert np.abs(random[0] - random[1]).max() > 1e-3
    assert np.abs(random[0][0] - random[0][1]).max() > 1e-3
    representations = []
    for seeds in ([[1, 2], [3, 4]], [[1, 2], [3, 4]], [[1, 2], [3, 5]]):
        tokens[:, 0] = seeds
        representations.append(represent())
    np.testing.assert_array_equal(representations[0], representations[1])
    assert np.abs(representations[0] - representations[2]).max() > 1e-3


def test_gradient_caching_without_seeds_drops_the_same_twice():
    """Of tokens as `text.tokenize` makes them."""
    model = models.SupConModel(
        built_encoder(), models.NoProjectionHead(), gradient_cache_chunks=2
    )
    views = random_tokens(6, 6)[:, np.newaxis]
    model.build(views.shape)
    forward, passes = model._forward_images, []

    def record(*args, **options):
        outputs = forward(*args, **options)
        passes.append(outputs[0].numpy())
        return outputs

    model._forward_images = record
    with tf.GradientTape() as tape:
        z = model(tf.constant(views), training=True)
    tape.gradient(z, model.trainable_weights)
    first, second = np.split(np.array(passes), 2)
    np.testing.assert_array_equal(first, second)
    assert np.abs(first[0] - first[1]).max() > 1e-3
    assert (views[:, :, 0] == 0).all()


@pytest.mark.slow
def test_gradient_caching_drops_the_same_twice():
    """Its gradient is that of its chunks, each passed once."""
    encoder = built_encoder(normalize=False)
    head = models.NoProjectionHead()
    labels = tf.constant([0, 1, 0, 1])
    views = random_tokens(6, 3, 5, 8)[:, np.newaxis]
    views[:, 0, 0] = [[1, 2], [3, 4], [5, 6], [7, 8]]
    model = models.SupConModel(encoder, head, gradient_cache_chunks=2)
    model.build(views.shape)
    weights = encoder.trainable_weights

    def gradients(forward):
        @tf.function
        def compute():
            with tf.GradientTape() as tape:
                z = forward()
                values = losses.supcon_loss(z, labels, temperature=0.3)
                loss = tf.reduce_mean(values)
            return z, tape.gradient(loss, weights)

        z, gradient = compute()
        return z, [tf.convert_to_tensor(tensor) for tensor in gradient]

    z, cached = gradients(lambda: model(views, training=True))
    expected_z, expected = gradients(
        lambda: tf.concat(
            [
                head(encoder(part[:, 0], training=True))[:, tf.newaxis]
                for part in np.split(views, 2)
            ],
            axis=0,
        )
    )
    np.testing.assert_allclose(z, expected_z, atol=1e-6)
    for gradient, expected_gradient in zip(cached, expected, strict=True):
        np.testing.assert_allclose(gradient, expected_gradient, atol=1e-5)


def test_layers_freeze_and_share_the_learning_rate():
    encoder = built_encoder()
    models.freeze(encoder, ("embeddings", "layer_._0"))
    names = {weight.name for weight in encoder.trainable_weights}
    assert names and all("layer_._1" in name for name in names)
    shares = models.learning_rate_shares(encoder, 0.5)
    assert {share for _, share in shares} == {0.5}


def test_what_is_wrong_is_named(tmp_path):
    for options, message in (
        ({"config": {"model_type": "resnet50"}}, "`config` must have a model"),
        (
            {"config": family_config("bert"), "pooling": "max"},
            "`pooling` must be",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            text.TextEncoder(**options)
    encoder = built_encoder()
    with pytest.raises(ValueError, match=r"`tokens` must be \[batch, 1 \+ len"):
        encoder(np.zeros([2, 3], np.int32))
    with pytest.raises(
        ValueError, match="`dropout` must be at least 0 and bel"
    ):
        built_encoder(dropout=1.0)
    model = models.SupConModel(encoder, models.NoProjectionHead())
    with pytest.raises(
        ValueError, match=r"must be \[batch, views, 1 \+ length"
    ):
        model(random_tokens(3))
    built_encoder().network.save_pretrained(tmp_path / "small")
    with pytest.raises(ValueError, match="must have all weights"):
        changed = family_config("bert", num_hidden_layers=3)
        transformers.BertConfig(**changed).save_pretrained(tmp_path / "small")
        text.TextEncoder.from_pretrained(tmp_path / "small")
