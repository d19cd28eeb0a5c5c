"""Tokens as a source: batches by the step, their seeds and length."""

import numpy as np
import pytest

from supcon_tf import data


def padded_tokens(*lengths):
    """Sentences of these lengths, behind seeds of 0."""
    tokens = np.full([len(lengths), 1 + max(lengths), 2], [-1, 0], np.int32)
    tokens[:, 0] = 0
    for index, length in enumerate(lengths):
        tokens[index, 1 : 1 + length, 0] = 100 * index + np.arange(length)
    return tokens


def test_training_is_a_function_of_the_step():
    """Batches entered anywhere are those of the whole run, and of workers."""
    tokens = padded_tokens(*range(1, 24))
    source = data.from_tokens(tokens, np.arange(23) % 2, ["a", "b"])

    def batches(count, **options):
        dataset = data.make_token_views(source, 6, 2, seed=3, **options)
        return [
            (batch.numpy(), targets.numpy())
            for batch, targets in dataset.take(count)
        ]

    sequence = batches(7)
    resumed = batches(3, start_step=4)
    for batch, expected in zip(resumed, sequence[4:], strict=True):
        for array, expected_array in zip(batch, expected, strict=True):
            np.testing.assert_array_equal(array, expected_array)
    parts = [batches(7, shard=(index, 2)) for index in range(2)]
    for (views, labels), *workers in zip(sequence, *parts, strict=True):
        np.testing.assert_array_equal(
            labels, np.concatenate([targets for _, targets in workers])
        )
        longest = (views[:, 0, 1:, 0] >= 0).sum(axis=1).max()
        assert views.shape == (6, 2, 1 + min(-(-longest // 8) * 8, 23), 2)
        np.testing.assert_array_equal(views[:, 0, 1:], views[:, 1, 1:])
        assert (views[:, 0, 0] != views[:, 1, 0]).any(axis=1).all()
        for rows, (part, _) in zip(np.split(views, 2), workers, strict=True):
            length = part.shape[2]
            np.testing.assert_array_equal(rows[:, :, :length], part)
            assert (rows[:, :, length:, 0] == -1).all()
    seeds = np.concatenate([views[:, :, 0] for views, _ in sequence])
    assert len(np.unique(seeds.reshape(-1, 2), axis=0)) == 84
    balanced = data.make_token_views(source, 6, images_per_class=3)
    assert all(targets.numpy().sum() == 3 for _, targets in balanced.take(5))
    examples = [*data.make_examples(source, 10)]
    assert [len(targets) for _, targets in examples] == [10, 10, 3]
    np.testing.assert_array_equal(examples[0][0], tokens[:10, :17])


def test_mistakes_are_named():
    tokens = padded_tokens(3, 5)
    for change, message in (
        ({"tokens": tokens[..., 0]}, r"`tokens` must be \[batch, 1 \+ length"),
        ({"tokens": tokens[:0]}, "`tokens` must have examples, of one token"),
        ({"tokens": tokens[:, :1]}, "`tokens` must have examples, of one tok"),
        ({"tokens": np.full([2, 3, 2], -1)}, "`tokens` must have examples, of"),
        ({"labels": [0, 2]}, "`labels` must be 2 integers in 0..1, one per"),
        ({"labels": [0]}, "`labels` must be 2 integers in 0..1, one per"),
    ):
        arguments = {"tokens": tokens, "labels": [0, 1]} | change
        with pytest.raises(ValueError, match=message):
            data.from_tokens(**arguments, class_names=["a", "b"])
    source = data.from_tokens(tokens, [0, 1], ["a", "b"])
    with pytest.raises(ValueError, match="`batch_size` must be in 1..num_exam"):
        data.make_token_views(source, 3)
