"""The encoder of a run on another data set: linear, fine-tuned, few-shot.

`evaluation` exports these names too.
"""

from supcon_tf.transfer.transfer import transfer_encoder, transfer_table
