"""Conversion: models for phones and for runtimes other than TensorFlow."""

from supcon_tf.conversion.onnx_model import to_onnx
from supcon_tf.conversion.results import conversion_table
from supcon_tf.conversion.stage import convert
from supcon_tf.conversion.tflite_model import to_tflite

__all__ = ["conversion_table", "convert", "to_onnx", "to_tflite"]
