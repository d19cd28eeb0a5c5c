"""Models and tokenizers of transformers from files, with errors that help.

The library's errors advise `from_pt=True` or `trust_remote_code=True`, which no
flag and no argument of ours can set. The errors here say what a user can do.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import types
from typing import TYPE_CHECKING

import h5py

from supcon_tf import exceptions
from supcon_tf.disk import files
from supcon_tf.host import proxies
from supcon_tf.keras_2 import keras
from supcon_tf.models import weights

if TYPE_CHECKING:
    import transformers

_MODEL = (
    "`model` must be a directory of a model of transformers, or the name of "
    "one that can be downloaded"
)
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # of a hub
_TOKENIZER = "`model` must have a tokenizer of transformers"
# Models whose layers `TextEncoder` knows.
_FAMILIES = "BERT, RoBERTa, DistilBERT, MiniLM, ELECTRA, MPNet or DeBERTa"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "tf_model.h5")
# From a word in the library's error to a remedy.
_REMEDIES = {
    "h5 file": "its tf_model.h5 is damaged: download it anew",
    "PyTorch": "PyTorch's weights and no model.safetensors; where torch is "
    "installed, AutoModel.from_pretrained(OLD).save_pretrained(NEW) of "
    "transformers writes it",
    "valid metadata": "its model.safetensors names no library; "
    "`save_pretrained` of transformers writes one that does",
    "deserializ": "its model.safetensors is damaged, or a pointer of Git LFS: "
    "download it anew, or `git lfs pull`",
    "custom code": "it needs code of its own, which is not run here; take "
    + _FAMILIES,
    "configuration class": f"TensorFlow has no such network; take {_FAMILIES}",
    "architecture": f"transformers knows no such network; take {_FAMILIES}",
    "no sequence length": f"its network is of another kind; take {_FAMILIES}",
    "model_type": "its config.json names no `model_type`",
    "NoneType": "it has no tokenizer.json, nor a vocabulary; the tokenizer "
    "that the model was trained with has them by its `save_pretrained`",
    "connect": "huggingface.co cannot be reached; take a directory with "
    "config.json, model.safetensors and tokenizer.json",
}


def load_network(
    library: types.ModuleType, path: str | os.PathLike[str]
) -> keras.Model:
    """Loads the network of a directory, or of a hub's name, with its weights.

    Raises:
      ValueError: no usable network is there; the message says why.
    """
    path = files.expanded(path, "model")
    _check_name(path, _MODEL)
    _check_folder(path)
    try:
        network, loading_info = library.TFAutoModel.from_pretrained(
            path, output_loading_info=True, trust_remote_code=False
        )
    except Exception as error:  # of safetensors, h5py, json, the hub, ...
        raise _loading_error(path, _MODEL, error) from error
    network = prepare(network)
    missing_names = [
        *loading_info["missing_keys"],
        *map(str, loading_info["mismatched_keys"]),
    ]
    missing_names = [name for name in missing_names if "pooler" not in name]
    exceptions.require(
        not missing_names,
        "`model` must have all weights of its network",
        f"{path} without {', '.join(missing_names[:5])}",
    )
    return network


def load_tokenizer(
    library: types.ModuleType, path: str | os.PathLike[str]
) -> transformers.PreTrainedTokenizerBase:
    """Loads the tokenizer of a directory, or of a hub's name.

    Raises:
      ValueError: no usable tokenizer is there; the message says why.
    """
    path = files.expanded(path, "model")
    _check_name(path, _TOKENIZER)
    tokenizer_class = library.AutoTokenizer
    options = {"trust_remote_code": False}
    try:
        # transformers 5 writes two settings that transformers 4 cannot read.
        file = pathlib.Path(path) / "tokenizer_config.json"
        config = json.loads(file.read_text()) if file.is_file() else {}
        if config.get("tokenizer_class") == "TokenizersBackend":
            tokenizer_class = library.PreTrainedTokenizerFast
        if isinstance(names := config.get("extra_special_tokens"), list):
            options["extra_special_tokens"] = {}
            options["additional_special_tokens"] = names
        return tokenizer_class.from_pretrained(path, **options)
    except Exception as error:  # of tokenizers, sentencepiece, json, ...
        raise _loading_error(path, _TOKENIZER, error) from error


def prepare(network: keras.Model) -> keras.Model:
    """Freezes the pooler of a network, which nothing uses; returns the network.

    Raises:
      ValueError: the network has not embeddings and blocks alone.
    """
    main_layer = network.layers[0]
    blocks = getattr(main_layer, "encoder", None)
    blocks = blocks or getattr(main_layer, "transformer", None)
    exceptions.require(
        len(network.layers) == 1
        and hasattr(main_layer, "embeddings")
        and hasattr(blocks, "layer")
        and hasattr(network.config, "max_position_embeddings"),
        f"`model` must be one of {_FAMILIES}",
        network.config.model_type,
    )
    if pooler := getattr(main_layer, "pooler", None):
        pooler.trainable = False
    return network


def _check_name(path: str | os.PathLike[str], rule: str) -> None:
    """Raises ValueError for a path that is no directory and no hub's name."""
    exceptions.require(
        os.path.isdir(path) or _NAME.fullmatch(os.fspath(path)) is not None,
        rule,
        f"{path}: there is no such directory",
    )


def _check_folder(path: str | os.PathLike[str]) -> None:
    """Raises ValueError for a directory that lacks files of a model.

    Also for a directory whose HDF5 files keep arrays in files elsewhere.
    """
    folder = pathlib.Path(path)
    if not folder.is_dir():
        return
    exceptions.require(
        (folder / "config.json").is_file(),
        _MODEL,
        f"{path}: it has no config.json; copy all files of the model",
    )
    for file in folder.glob("*.h5"):
        try:
            with h5py.File(file) as content:
                weights.check_whole(content)
        except OSError:
            pass  # a damaged file, for which transformers raises an error
        except ValueError as error:
            raise exceptions.InvalidValue(
                f"{_MODEL}, got {path}: {error}"
            ) from error
    if any((folder / name).is_file() for name in _WEIGHTS):
        return
    remedy = "it has no model.safetensors; copy all files of the model"
    if any(folder.glob("*.bin*")):
        remedy = _REMEDIES["PyTorch"]
    raise exceptions.InvalidValue(f"{_MODEL}, got {path}: {remedy}")


def _loading_error(
    path: str | os.PathLike[str], rule: str, error: Exception
) -> exceptions.InvalidValue:
    """Returns the error to raise in place of the library's, with a remedy."""
    remedies = [text for word, text in _REMEDIES.items() if word in str(error)]
    reason = (*remedies, exceptions.one_line(error))[0]
    if "connect" in str(error):
        reason += proxies.used_by_urllib("https://huggingface.co")
    return exceptions.InvalidValue(f"{rule}, got {path}: {reason}")
