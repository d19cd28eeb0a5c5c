"""What stands between Keras 3 and this package, which is of Keras 2."""

from supcon_tf.models.of_keras_3 import Backbone
