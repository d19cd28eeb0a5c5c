"""Galleries: representations of examples, searched, and grown without training.

`index` makes a gallery from the encoder of a run, and changes it; `Searcher`
answers for images and texts; `Gallery` is what is on disk.
"""

from supcon_tf.gallery.answers import Answer, Match
from supcon_tf.gallery.approximate import Index
from supcon_tf.gallery.indexing import index
from supcon_tf.gallery.searching import Searcher, search
from supcon_tf.gallery.store import Gallery, Threshold, open_gallery
