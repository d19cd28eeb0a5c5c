"""Conversion: models for phones and for runtimes other than TensorFlow."""

from supcon_tf.conversion.comparison import conversion_table
from supcon_tf.conversion.convert import convert
from supcon_tf.conversion.formats import to_onnx, to_tflite
from supcon_tf.conversion.importing import import_weights
