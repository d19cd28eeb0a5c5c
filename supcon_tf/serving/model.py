"""SavedModels that take image files or texts and need nothing else to run.

Signatures, of N >= 1 images:

  serving_default: `image_bytes` [N] string, the bytes of JPEG or PNG
    files (not base64), to `probabilities` [N, classes] float32,
    `class_names` [N, classes] string in the same order, `predicted_class`
    [N] string, `top_classes` [N, k] string, most probable first, and
    `top_probabilities` [N, k] float32. Where an image may have several labels,
    probabilities are of each by itself, and the names of `top_classes` whose
    probability is below the threshold are empty, as may be `predicted_class`.
  predict_images, predict_images_float: `images` [N, height, width, 3]
    uint8, or float32 in 0..255, rounded to nearest, to the same.
  represent, represent_images, represent_images_float: the same inputs to
    `representation` [N, dim] float32 of unit length.
  classify_by_neighbours: `image_bytes` to `similarities` [N, classes]
    float32, cosines to the prototypes, `class_names`, `predicted_class`,
    `top_classes` and `top_similarities`.

  search: `image_bytes` to the k most similar rows of a gallery, most similar
    first: `ids` [N, k] string, `similarities` [N, k] float32, cosines,
    `classes` [N, k] string, empty for a row without a class, and where the
    gallery has a threshold `is_known` [N] bool. The signatures of a classifier
    then have `is_known` too.

The first three need a classifier, classify_by_neighbours prototypes, search a
gallery. Decoding, crop (`data.decode_central_view`) and normalisation are
inside, and are those of evaluation. What cannot be decoded fails its request
with INVALID_ARGUMENT.

Of a language model, serving_default, represent, classify_by_neighbours and
search take `text` [N] string, UTF-8, two sentences with a tab between; the
tokenizer is inside. Class names are the asset `class_names.txt`, a line each.
In assets.extra/ lie requests that warm the server up and an example request;
see `requests`.
"""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from etils import epath

from supcon_tf import exceptions, measures, models, text
from supcon_tf.data import image_bytes
from supcon_tf.disk import files, rows
from supcon_tf.gallery import store
from supcon_tf.keras_2 import keras
from supcon_tf.serving import bank, fitted, inputs, requests

# Batches that are computed at once, and that wait beside those of the largest
# request, which must find room; beyond, UNAVAILABLE.
_BATCHES_AT_ONCE = 2
_WAITING_BATCHES = 64
_LARGEST_REQUEST = 4096  # images; split into batches

_Answer = dict[str, tf.Tensor]
# By signature "inputs" and "outputs", each by name with its dtype and shape.
Signatures = dict[str, dict[str, dict[str, tf.TensorSpec]]]


def export_saved_model(
    encoder: keras.Model,
    directory: epath.PathLike,
    *,
    image_size: int | None = None,
    max_pixels: int = 2**26,
    tokens: text.GraphTokenizer | None = None,
    **options: object,
) -> None:
    """Writes a SavedModel; the directory appears only when it is complete.

    The module says what its signatures take and return.

    Args:
      encoder: built encoder, or any other Keras model, which is taken as a
        `BackboneEncoder`; or a `LinearClassifier`, `ClassifierModel` or
        `SupConModel`, whose encoder is exported, with its classifier where
        there is one.
      directory: must not exist; TF Serving wants a number as its name.
      image_size: side of the encoder's images in pixels; None takes that of
        the images that it was built for.
      max_pixels: a file of more, by its header, is refused before it is
        decoded.
      tokens: the tokenizer of an encoder of texts; None for images.
      **options: of `ServedModel`, which describes them, where there are any:
        `class_names`, `classifier`, `prototypes`, `gallery`, `top_k`,
        `threshold`, `max_batch_size`, `batch_timeout`.

    Example:
      >>> import tempfile
      >>> import supcon_tf
      >>> import tensorflow as tf
      >>> from supcon_tf import serving
      >>> encoder = supcon_tf.load_encoder("runs/mine")
      >>> version = f"{tempfile.mkdtemp()}/1"
      >>> serving.export_saved_model(encoder, version, image_size=16)
      >>> sorted(tf.saved_model.load(version).signatures)
      ['represent', 'represent_images', 'represent_images_float']

    Raises:
      ValueError: `directory` exists, the class names do not fit, a classifier
        of several labels has no threshold, or `max_pixels` refuses ordinary
        photographs.
    """
    directory = new_directory(directory)
    if image_size is None:
        image_size = fitted.image_size(encoder)
    trained = encoder, options.pop("classifier", None)
    encoder, classifier = fitted.parts(*trained)
    # A softmax would share one probability among all labels of an image.
    exceptions.require(
        classifier is None
        or options.get("threshold") is not None
        or not any(map(fitted.has_several_labels, trained)),
        "`threshold` must be a probability, such as 0.5, for a classifier of "
        "several labels per image",
        None,
    )
    content = (
        inputs.Images(image_size, max_pixels)
        if tokens is None
        else inputs.Texts(tokens)
    )
    served = ServedModel(encoder, content, classifier=classifier, **options)
    write_version(served, directory)


def new_directory(directory: epath.PathLike) -> epath.Path:
    """The path of an export, `~` expanded; ValueError if it exists."""
    path = epath.Path(files.expanded(directory, "directory"))
    exceptions.require(not path.exists(), "`directory` must not exist", path)
    return path


def write_version(
    served: ServedModel,
    directory: epath.Path,
    finish: Callable[[epath.Path, Signatures], None] = lambda *_: None,
) -> None:
    """Writes a served model and its requests, all of them or nothing.

    Args:
      served: the model.
      directory: must not exist.
      finish: adds files to the directory before it appears, by the directory
        and the signatures.
    """
    # TF Serving polls for numbers, so that it does not see a hidden name.
    with files.make_atomically(directory) as partial:
        signatures = served.save(partial)
        requests.write_requests(partial, served.content, signatures)
        finish(partial, signatures)


class ServedModel(tf.Module):
    """Encoder, classifier and prototypes, behind evaluation's preprocessing.

    Attributes:
      content: of the requests.

    Args:
      encoder: built encoder.
      content: of the requests, images or texts.
      class_names: one per logit and per prototype.
      classifier: from representations [N, dim] to logits [N, classes] float32,
        not to probabilities; a Keras layer or `tf.Module`.
      prototypes: [classes, dim] real, unit length; a row of zeros is a class
        without one, which is never predicted.
      gallery: examples to be searched, by the same encoder; None for none.
      top_k: classes in `top_classes`, and rows of `search`, at most all.
      threshold: None for one label per image; else the probability from which
        one of several labels is given.
      max_batch_size: images of several requests that the encoder takes at
        once, after each request has decoded its own; 0 for none, as it must be
        of texts.
      batch_timeout: how long a batch waits to be filled, seconds.

    Raises:
      ValueError: an argument breaks a rule above, the class names do not fit,
        texts are to be batched, or the gallery is empty or larger than a
        SavedModel may be.
    """

    def __init__(
        self,
        encoder: keras.Model,
        content: inputs.Images | inputs.Texts,
        *,
        class_names: Sequence[str] = (),
        classifier: Callable[[tf.Tensor], tf.Tensor] | None = None,
        prototypes: npt.ArrayLike | None = None,
        gallery: store.Gallery | None = None,
        top_k: int = 5,
        threshold: float | None = None,
        max_batch_size: int = 0,
        batch_timeout: float = 0.002,
    ):
        super().__init__()
        _check_numbers(top_k, threshold, max_batch_size, batch_timeout)
        exceptions.require(
            not max_batch_size or content.can_batch,
            "`max_batch_size` must be 0 for texts: the server's own batching "
            "joins requests",
            max_batch_size,
        )
        encoder = models.as_encoder(encoder)
        encoder.build(content.views.shape)
        dim = encoder.representation_dim
        _check_parts(dim, classifier, prototypes)
        _check_names(class_names, dim, classifier, prototypes)
        # The variables alone: a SavedModel would hold functions of layers that
        # nobody calls. `partial` hides a layer from the tracking.
        self.weights = [
            *models.layers.variables(encoder),
            *(
                variable
                for layer in (classifier, content)
                for variable in getattr(layer, "variables", ())
            ),
        ]
        self.encode = _traced_once(
            functools.partial(encoder, training=False), content.views
        )
        if max_batch_size:
            self.encode = _batched(
                self.encode, dim, max_batch_size, batch_timeout
            )
        self.content = content
        self.classify = classifier and functools.partial(classifier)
        self.is_unit_length = encoder.normalize
        self.threshold = threshold
        class_lines = [f"{name}\n" for name in rows.distinct(class_names)]
        self.class_lines = "".join(class_lines)
        self.num_classes = len(class_names)
        self.top_k = min(top_k, self.num_classes)
        self.prototypes = self.bank = None
        if prototypes is not None:
            self.prototypes = tf.Variable(
                prototypes, trainable=False, dtype=tf.float32
            )
        if gallery is not None:
            self.bank = bank.Bank(gallery, top_k)

    @property
    def num_parameters(self) -> int:
        """The count of floating-point numbers in the variables."""
        return sum(
            math.prod(variable.shape)
            for variable in self.variables
            if variable.dtype.is_floating
        )

    def save(self, directory: epath.Path) -> Signatures:
        """Writes the SavedModel and returns its signatures, sorted by name."""
        with tempfile.TemporaryDirectory() as scratch:
            if self.num_classes:
                file = f"{scratch}/class_names.txt"
                self.class_names = bank.line_table(file, self.class_lines)
            if self.bank is not None:
                self.bank.make_tables(scratch)
            functions = self._signatures()
            tf.saved_model.save(self, str(directory), signatures=functions)
        return {
            name: {
                "inputs": {request.name: request},
                "outputs": function.structured_outputs,
            }
            for name, function in sorted(functions.items())
            for request in function.structured_input_signature[0]
        }

    def _signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """The signatures that this model can answer, by name."""
        signatures = {}
        for suffix, spec, preprocess in self.content.kinds():
            answers = {f"represent{suffix}": self._represent}
            if self.classify is not None:
                name = f"predict{suffix}" if suffix else "serving_default"
                answers[name] = self._classify
            if self.prototypes is not None and not suffix:
                answers["classify_by_neighbours"] = self._compare
            if self.bank is not None and not suffix:
                answers["search"] = self._search
            preprocess = _traced_once(preprocess, spec)
            for name, answer in answers.items():
                signatures[name] = _signature(spec, preprocess, answer)
        return signatures

    def _classify(self, views: tf.Tensor) -> _Answer:
        """Probabilities and the classes of the highest."""
        representations = self.encode(views)  # [N, dim]
        logits = self.classify(representations)
        activation = tf.nn.softmax if self.threshold is None else tf.sigmoid
        answer = self._answer(
            "probabilities", activation(logits), self.threshold
        )
        if self.bank is not None:
            answer |= self.bank.belonging(representations)
        return answer

    def _compare(self, views: tf.Tensor) -> _Answer:
        """Cosine similarities to the prototypes, as in evaluation."""
        unit = tf.math.l2_normalize(self.encode(views), axis=1)  # [N, dim]
        similarities = tf.matmul(  # [N, classes]
            unit, self.prototypes, transpose_b=True
        )
        exists = tf.reduce_any(self.prototypes != 0, axis=1)  # [classes]
        return self._answer(
            "similarities", tf.where(exists, similarities, -1.0)
        )

    def _search(self, views: tf.Tensor) -> _Answer:
        """The most similar rows of the gallery."""
        return self.bank.search(self.encode(views))

    def _represent(self, views: tf.Tensor) -> _Answer:
        """Representations of unit length, whatever the encoder returns."""
        representation = self.encode(views)  # [N, dim]
        if not self.is_unit_length:
            representation = tf.math.l2_normalize(representation, axis=1)
        return {"representation": representation}

    def _answer(
        self, kind: str, scores: tf.Tensor, threshold: float | None = None
    ) -> _Answer:
        """Scores [N, classes] with the names of their classes."""
        top_scores, indices = tf.math.top_k(scores, self.top_k)  # [N, k]
        classes = tf.range(self.num_classes, dtype=tf.int64)
        names = self.class_names.lookup(classes)
        top_names = tf.gather(names, indices)  # [N, k]
        if threshold is not None:
            top_names = tf.where(top_scores >= threshold, top_names, "")
        return {
            kind: scores,
            "class_names": tf.tile(names[tf.newaxis], [tf.shape(scores)[0], 1]),
            "predicted_class": top_names[:, 0],
            "top_classes": top_names,
            f"top_{kind}": top_scores,
        }


def _traced_once(
    function: Callable[[tf.Tensor], tf.Tensor], spec: tf.TensorSpec
) -> Callable[[tf.Tensor], tf.Tensor]:
    """A part of the graph that all signatures share."""
    traced = tf.function(function, input_signature=[spec])
    # As an attribute of a module, the function itself would be saved again.
    return lambda images: traced(images)


def _signature(
    spec: tf.TensorSpec,
    preprocess: Callable[[tf.Tensor], tf.Tensor],
    answer: Callable[[tf.Tensor], _Answer],
) -> tf.types.experimental.ConcreteFunction:
    """Traces one signature, which refuses a request without images."""

    def function(inputs: tf.Tensor) -> _Answer:
        inputs = image_bytes.require(
            tf.shape(inputs)[0] > 0,
            inputs,
            f"{spec.name} must not be empty, got 0",
        )
        return answer(preprocess(inputs))

    return tf.function(function, input_signature=[spec]).get_concrete_function()


def _batched(
    encode: Callable[[tf.Tensor], tf.Tensor],
    dim: int,
    size: int,
    timeout: float,
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Encodes the images of several requests at once.

    The graph does so after each request has decoded its files: a file that
    cannot be decoded fails its request alone. The batching of the server joins
    requests before, which then fail together.
    """
    powers_of_two = [1 << power for power in range(size.bit_length())]
    large_batches = math.ceil(_LARGEST_REQUEST / size)
    batched = tf.nondifferentiable_batch_function(
        num_batch_threads=_BATCHES_AT_ONCE,
        max_batch_size=max(size, _LARGEST_REQUEST),
        batch_timeout_micros=round(timeout * 1e6),
        allowed_batch_sizes=sorted({*powers_of_two, size}),
        max_enqueued_batches=_WAITING_BATCHES + large_batches,
    )(encode)
    # A batch function forgets the shape.
    return lambda views: tf.ensure_shape(batched(views), [None, dim])


def _check_numbers(
    top_k: int,
    threshold: float | None,
    max_batch_size: int,
    batch_timeout: float,
) -> None:
    """Raises ValueError for a number that breaks the rule of `ServedModel`."""
    measures.neighbors.check_counts(top_k=top_k)
    exceptions.require(
        threshold is None or 0 < threshold < 1,
        "`threshold` must be None, or above 0 and below 1",
        threshold,
    )
    exceptions.require(
        isinstance(max_batch_size, int) and max_batch_size >= 0,
        "`max_batch_size` must be an integer, 0 or more",
        max_batch_size,
    )
    exceptions.require(
        batch_timeout >= 0, "`batch_timeout` must be 0 or more", batch_timeout
    )


def _check_parts(
    dim: int,
    classifier: Callable[[tf.Tensor], tf.Tensor] | None,
    prototypes: npt.ArrayLike | None,
) -> None:
    """Raises ValueError for what cannot follow representations [N, dim]."""
    if classifier is not None:
        models.layers.check_logits(classifier, dim)
        _check_variables(classifier, dim)
    if prototypes is None:
        return
    lengths = np.linalg.norm(np.asarray(prototypes, np.float64), axis=-1)
    exceptions.require(
        np.shape(prototypes)[1:] == (dim,),
        f"`prototypes` must be [classes, {dim}]",
        list(np.shape(prototypes)),
    )
    is_unit = np.isclose(lengths, 1, atol=1e-3) | (lengths == 0)
    exceptions.require(
        is_unit.all(),
        "`prototypes` must have rows of length 1, or 0 for no prototype",
        f"a row of length {lengths[~is_unit].max(initial=0):.3g}",
    )


def _check_variables(
    classifier: Callable[[tf.Tensor], tf.Tensor], dim: int
) -> None:
    """Raises ValueError for variables that a SavedModel would not find."""
    spec = tf.TensorSpec([None, dim], tf.float32)
    traced = tf.function(classifier).get_concrete_function(spec)
    own = {v.ref() for v in getattr(classifier, "variables", ())}
    others = [v.name for v in traced.variables if v.ref() not in own]
    exceptions.require(
        not others,
        "`classifier` must be a Keras layer or tf.Module that has its "
        "variables as attributes",
        f"{classifier}, which reads {exceptions.listed(others)}",
    )


def _check_names(
    class_names: Sequence[str],
    dim: int,
    classifier: Callable[[tf.Tensor], tf.Tensor] | None,
    prototypes: npt.ArrayLike | None,
) -> None:
    """Raises ValueError unless each class has a name, a line of text."""
    counts = set()
    if classifier is not None:
        counts.add(int(classifier(tf.zeros([1, dim])).shape[1]))
    if prototypes is not None:
        counts.add(len(prototypes))
    counts = counts or {0}
    exceptions.require(
        counts == {len(class_names)},
        f"`class_names` must be {max(counts)} names",
        len(class_names),
    )
    exceptions.require(
        not isinstance(class_names, str | set | frozenset),
        "`class_names` must be a sequence of names",
        repr(class_names),
    )
    for name in class_names:
        exceptions.require(
            isinstance(name, str)
            and name.encode("utf-8", "ignore").decode().splitlines() == [name],
            "`class_names` must be a line of text each",
            repr(name),
        )
