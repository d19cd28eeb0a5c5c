"""Data: from files, TFDS or arrays to batches of views.

`load` or `from_arrays` makes a `Source`, one split of a labelled image set;
`make_views` turns it into training batches, `make_examples` into evaluation
batches; `views_of` makes views of any other dataset. A batch of `make_views`
is finished: mixed, and made by a data service, where one is named.
`through_service` gives other views to a service.
"""

from supcon_tf import tracing
from supcon_tf.data.dataset_views import views_of
from supcon_tf.data.examples import make_examples
from supcon_tf.data.faults import reading
from supcon_tf.data.images import (
    decode_and_crop,
    decode_central_view,
    decode_image,
    random_resized_crop_jpeg,
)
from supcon_tf.data.loading import has_validation, load
from supcon_tf.data.pipeline import make_views, steps_per_epoch
from supcon_tf.data.sampling import class_balanced
from supcon_tf.data.service import check_service, through_service
from supcon_tf.data.sources import Source, from_arrays
from supcon_tf.data.subsets import train_and_validation
from supcon_tf.data.tfrecord_writer import write_tfrecords
from supcon_tf.data.tokens import from_tokens, make_token_views
