"""What stands between Keras 3 and this package, which is of Keras 2."""

from supcon_tf import exceptions, keras_2

if keras_2.PACKAGE == "keras":
    raise exceptions.MissingPackage(
        "supcon_tf.keras_3 must have Keras 3, which comes with TensorFlow 2.19 "
        "and later on Python 3.12 and later, got Keras 2 alone"
    )

from supcon_tf.keras_3.backbone import Backbone
