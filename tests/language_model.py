"""A tiny language model in files, and sentences that it can learn."""

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef", "##b"]


def write_model(folder):
    """A BERT of one block with random weights, and its tokenizer."""
    import numpy as np

    from supcon_tf.keras_2 import keras
    from supcon_tf.text import encoder

    transformers = encoder.import_transformers()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(
        str(folder / "vocab.txt"), model_max_length=12
    ).save_pretrained(folder)
    keras.utils.set_random_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24}
    model = transformers.TFBertModel(
        transformers.BertConfig(
            vocab_size=len(WORDS),
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=10,
            **sizes,
        )
    )
    model(np.zeros([1, 1], np.int32))
    model.save_pretrained(folder)


def write_sentences(path, count):
    """The first word says the label."""
    rows = [f"{'ab'[i % 2]} {'cdef'[i % 4]}\t{i % 2}" for i in range(count)]
    path.write_text("\n".join(["sentence\tlabel", *rows]))
