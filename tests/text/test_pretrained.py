"""Files of language models that others wrote: read, or why not."""

import json
import pickle
import shutil

import h5py
import numpy as np
import pytest
import safetensors.numpy

from supcon_tf import text
from tests import language_model
from tests.faults.test_opened_files import Unpickled

WEIGHTS = ("tf_model.h5", "model.safetensors")
TOKENIZER_FILES = ("vocab.txt", "tokenizer.json")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    language_model.write_model(folder)
    return folder


@pytest.fixture
def folder(model, tmp_path):
    return shutil.copytree(model, tmp_path / "copy")


def remove(folder, *names):
    for name in names:
        (folder / name).unlink(missing_ok=True)


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def torch_state(folder):
    """The weights by PyTorch's names, as a safetensors file has them."""
    transformers = text.import_transformers()
    from transformers import modeling_tf_pytorch_utils as torch_names

    state = {}
    for weight in transformers.TFBertModel.from_pretrained(folder).weights:
        value = weight.numpy()
        name, transpose = torch_names.convert_tf_weight_name_to_pt_weight_name(
            weight.name, tf_weight_shape=value.shape
        )
        is_simple = transpose is torch_names.TransposeType.SIMPLE
        state[name] = value.T.copy() if is_simple else value
    return state


def represent(folder):
    encoder = text.TextEncoder.from_pretrained(folder)
    tokens = text.tokenize(text.load_tokenizer(folder), [("a b",)], 8)
    return encoder(tokens).numpy()


def test_safetensors_of_pytorch_are_read(folder):
    """In one file, and in shards with an index."""
    expected = represent(folder)
    state = torch_state(folder)
    remove(folder, *WEIGHTS)
    file = folder / "model.safetensors"
    safetensors.numpy.save_file(state, file, {"format": "pt"})
    np.testing.assert_allclose(represent(folder), expected, atol=1e-6)
    file.unlink()
    index = {"metadata": {"total_size": 1}, "weight_map": {}}
    for number, (name, array) in enumerate(state.items()):
        index["weight_map"][name] = f"{number}.safetensors"
        safetensors.numpy.save_file(
            {name: array}, folder / f"{number}.safetensors", {"format": "pt"}
        )
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    np.testing.assert_allclose(represent(folder), expected, atol=1e-6)


def test_files_of_transformers_5_are_read(folder):
    expected = represent(folder)
    change(
        folder / "config.json", transformers_version="5.2.0", dtype="float32"
    )
    change(
        folder / "tokenizer_config.json",
        tokenizer_class="TokenizersBackend",
        extra_special_tokens=["[CLS]"],
    )
    remove(folder, "vocab.txt", "special_tokens_map.json")
    np.testing.assert_allclose(represent(folder), expected, atol=1e-6)


def pytorch_only(folder):
    remove(folder, *WEIGHTS)
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04" + bytes(100))


def pytorch_shards_only(folder):
    remove(folder, *WEIGHTS)
    (folder / "pytorch_model.bin.index.json").write_text("{}")


def git_lfs(folder):
    remove(folder, *WEIGHTS)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\n"
    (folder / "model.safetensors").write_text(pointer)


def without_library(folder):
    state = torch_state(folder)
    remove(folder, *WEIGHTS)
    safetensors.numpy.save_file(state, folder / "model.safetensors")


def truncated(folder):
    file = folder / "tf_model.h5"
    file.write_bytes(file.read_bytes()[:200])


def external_link(folder):
    (folder / "model.safetensors").unlink(missing_ok=True)
    with h5py.File(folder / "tf_model.h5", "r+") as file:
        names = []
        file.visit(names.append)
        (first, *_) = [name for name in names if name.endswith(":0")]
        del file[first]
        file[first] = h5py.ExternalLink("/home/me/mine.h5", "kernel")


def custom_code(folder):
    classes = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    change(folder / "config.json", model_type="own", auto_map=classes)


def kind(name):
    return lambda folder: change(folder / "config.json", model_type=name)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (pytorch_only, "no model.safetensors; .*save_pretrained"),
        (pytorch_shards_only, "PyTorch's weights .*save_pretrained"),
        (lambda folder: remove(folder, *WEIGHTS), "has no model.safetensors;"),
        (lambda folder: remove(folder, "config.json"), "has no config.json;"),
        (git_lfs, "a pointer of Git LFS: .* `git lfs pull`"),
        (truncated, "tf_model.h5 is damaged: download it anew"),
        (external_link, "hold its arrays itself, got .* in /home/me/mine.h5"),
        (without_library, "names no library; `save_pretrained`"),
        (custom_code, "code of its own, which is not run here; take BERT"),
        (kind("modernbert"), "TensorFlow has no such network; take BERT"),
        (kind("unheard-of"), "knows no such network; take BERT"),
        (kind("gpt2"), "one of BERT, .* or DeBERTa, got gpt2"),
        (kind("t5"), "one of BERT, .* or DeBERTa, got t5"),
        (kind("albert"), "one of BERT, .* or DeBERTa, got albert"),
        (kind("xlnet"), "another kind; take BERT"),
        (kind("roberta"), "have all weights of its network, got .* witho"),
    ],
)
def test_why_a_model_cannot_be_used_is_said(folder, spoil, message):
    """In one line, and no argument of the library is advised."""
    spoil(folder)
    rule = f"^`model` must .*{message}"
    with pytest.raises(ValueError, match=rule) as raised:
        text.TextEncoder.from_pretrained(folder)
    for advice in ("from_pt", "trust_remote_code", "\n"):
        assert advice not in str(raised.value)


def test_a_tokenizer_unpickles_nothing(folder, tmp_path):
    """A class of transformers would unpickle its vocabulary."""
    remove(folder, *TOKENIZER_FILES)
    (folder / "vocab.pkl").write_bytes(
        pickle.dumps(Unpickled(tmp_path / "ran"))
    )
    config = {"tokenizer_class": "TransfoXLTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="`model` must have a tokenizer"):
        text.load_tokenizer(folder)
    assert not (tmp_path / "ran").exists()


def test_why_a_tokenizer_cannot_be_used_is_said(folder, tmp_path):
    remove(folder, *TOKENIZER_FILES)
    with pytest.raises(ValueError, match="it has no tokenizer.json, nor a vo"):
        text.load_tokenizer(folder)
    for path in (tmp_path / "none", "../model", "a/b/c"):
        for load in (text.load_tokenizer, text.TextEncoder.from_pretrained):
            with pytest.raises(ValueError, match=f"got {path}: there is no su"):
                load(path)
