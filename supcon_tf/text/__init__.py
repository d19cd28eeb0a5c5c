"""Texts: files of labelled sentences, their tokens, and language models."""

from supcon_tf import keras_2, tracing
from supcon_tf.text.encoder import TextEncoder, import_transformers
from supcon_tf.text.files import Texts, read_texts
from supcon_tf.text.in_graph import GraphTokenizer
from supcon_tf.text.tokenizer import load_tokenizer, to_source, tokenize
