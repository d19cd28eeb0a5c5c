"""Image augmentation on batches, stateless: same seeds, same pixels.

A view is an independent draw of crop and flip, made by the data pipeline,
and then of a policy: `policy(images, seeds)`, uint8 to uint8, same shape.
MixUp and CutMix come after the views: `mix(views, labels, seed)`.
"""

from supcon_tf import tracing
from supcon_tf.augment.geometry import (
    central_view,
    crop_box,
    random_flip,
    random_resized_crop,
    resize_crop,
)
from supcon_tf.augment.mixing import CutMix, MixUp
from supcon_tf.augment.named import policy
from supcon_tf.augment.policies import (
    AutoAugment,
    Identity,
    RandAugment,
    SimAugment,
    StackedRandAugment,
)
from supcon_tf.augment.randomness import fold_in
