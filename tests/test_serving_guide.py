"""The guide in docs/serving/ says what is served, in lines that work."""

from __future__ import annotations

import base64
import io
import json
import pathlib
import re
import shlex
import subprocess

import PIL.Image
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tests import model_server, small_export, tf_serving

PAGES = (tf_serving.ROOT / "docs" / "serving").glob("*.md")
README = "\n".join(page.read_text() for page in sorted(PAGES))


def blocks(language):
    # All in turn: the end of one must not count as the start of the next.
    fence = r"^ *```(\w*)\n(.*?)^ *```$"
    pairs = re.findall(fence, README, re.DOTALL | re.MULTILINE)
    return [text for kind, text in pairs if kind == language]


def lines(program):
    commands = [
        shlex.split(line)
        for block in blocks("")
        for line in block.splitlines()
        if line.startswith(f"{program} ")
    ]
    assert commands
    return commands


def documented_signatures():
    """Of every signature of the table, tensors as {name: (shape, dtype)}."""
    rows = re.findall(r"^\| `(\w+)` \| (`\w+` \[.*?) \| (.*) \|$", README, re.M)
    signatures = {}
    for name, *cells in rows:
        tensors = [
            {
                tensor: (shape.split(", "), dtype)
                for tensor, shape, dtype in re.findall(
                    r"`(\w+)` \[([\w, ]+)\] (string|float32|uint8)", cell
                )
            }
            for cell in cells
        ]
        reference = re.fullmatch(r"as `(\w+)`", cells[1])
        if reference:
            tensors[1] = signatures[reference[1]][1]
        signatures[name] = tuple(tensors)
    return signatures


def check_tensors(actual, documented, sizes):
    assert set(actual) == set(documented)
    for name, (letters, dtype) in documented.items():
        assert tf.as_dtype(actual[name].dtype).name == dtype, name
        shape = [d.size for d in actual[name].tensor_shape.dim]
        assert len(shape) == len(letters), name
        for size, letter in zip(shape, letters, strict=True):
            assert size == int(sizes.get(letter, letter)), (name, letter)


def test_an_export_has_the_documented_signatures(small_run):
    # What the graph leaves open is -1.
    sizes = {"N": -1, "H": -1, "W": -1, "C": 3, "k": 2, "dim": 26}
    directory = small_run / "export" / "1"
    signatures = model_server.read_signatures(directory)
    documented = documented_signatures()
    assert set(signatures) == set(documented)
    for name, signature in signatures.items():
        inputs, outputs = documented[name]
        check_tensors(signature.inputs, inputs, sizes)
        check_tensors(signature.outputs, outputs, sizes)
    names = (directory / "assets" / "class_names.txt").read_text()
    assert tuple(names.splitlines()) == small_export.NAMES


def test_docker_finds_models_and_configurations():
    for _, run, *arguments in lines("docker"):
        options, image, flags = split_docker(arguments)
        assert (run, image) == ("run", tf_serving.IMAGE)
        assert {"--rm", "--init"} <= set(options)
        published = [v for o, v in options.items() for v in v if o == "-p"]
        assert published == ["127.0.0.1:8501:8501", "127.0.0.1:8500:8500"]
        mounts = {}
        for mount in options["-v"]:
            source, target, mode = mount.split(":")
            assert mode == "ro"
            mounts[target] = source.removeprefix("$PWD/")
        flags = tf_serving.parse_flags(flags)
        for name, value in flags.items():
            if name.endswith("_file"):
                path = pathlib.PurePath(value)
                folder = tf_serving.ROOT / mounts[str(path.parent)]
                assert (folder / path.name).exists()
        names = [v.removeprefix("MODEL_NAME=") for v in options.get("-e", [])]
        if "model_config_file" in flags:
            assert not names
            names = list(tf_serving.served_models())
        for name in names:
            assert mounts[f"/models/{name}"] == f"runs/{name}/export"


def split_docker(arguments):
    """Options with their values, image, what follows it."""
    options, words = {}, list(arguments)
    while words[0].startswith("-"):
        option = words.pop(0)
        values = options.setdefault(option, [])
        if not option.startswith("--"):
            values.append(words.pop(0))
    return options, words[0], words[1:]


def test_curl_asks_for_what_the_server_has():
    model = r"http://localhost:8501/v1/models/(\w+)"
    version = r"(?:/versions/1|/labels/stable)?"
    for _, *options, url in lines("curl"):
        if options:
            flag, body = options
            assert flag == "-d" and body.startswith("@")
            assert body[1:] in (
                "runs/mine/export/1/assets.extra/request.json",
                "request.json",
            )
            assert re.fullmatch(f"{model}{version}:predict", url), url
        else:
            path = re.escape(tf_serving.monitoring_path())
            metrics = f"http://localhost:8501{path}"
            assert re.fullmatch(f"{model}(?:/metadata)?|{metrics}", url), url
        for name in re.findall(r"/models/(\w+)", url):
            assert name in tf_serving.served_models()


def test_the_shell_writes_a_request(tmp_path):
    photo = bytes(range(256)) * 400
    (tmp_path / "photo.jpg").write_bytes(photo)
    (line,) = re.findall(r"^printf .*$", README, re.MULTILINE)
    subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
    request = json.loads((tmp_path / "request.json").read_text())
    ((encoded,),) = [instance.values() for instance in request["instances"]]
    assert base64.b64decode(encoded) == photo


def test_documented_requests_and_answers_are_those_of_the_signatures():
    requests, answers = [], []
    for block in blocks("json"):
        body = json.loads(block)
        (answers if "predictions" in body else requests).append(body)
    assert len(requests) == 2 and len(answers) == 1
    for request in requests:
        inputs, _ = documented_signatures()[request["signature_name"]]
        rows = request.get("instances", [request.get("inputs")])
        for row in rows:
            assert set(row) == set(inputs)
            (value,) = row.values()
            (file,) = value if "inputs" in request else [value]
            image = PIL.Image.open(io.BytesIO(base64.b64decode(file["b64"])))
            image.load()
    _, outputs = documented_signatures()["serving_default"]
    for row in answers[0]["predictions"]:
        assert set(row) == set(outputs)
        assert row["predicted_class"] == row["top_classes"][0]


def test_the_lines_for_grpc_ask_a_server(
    small_run, image_folder, monkeypatch, tmp_path, capsys
):
    (code,) = blocks("python")
    photo = sorted((image_folder / "test" / "dark").iterdir())[0]
    (tmp_path / "photo.jpg").write_bytes(photo.read_bytes())
    monkeypatch.chdir(tmp_path)
    with model_server.ModelServer(small_run / "export", "mine") as server:
        assert "localhost:8500" in code
        exec(code.replace("localhost:8500", server.grpc), {})
        assert server.batch_sizes == [1]
    answers = [str([name.encode()]) for name in small_export.NAMES]
    assert capsys.readouterr().out.strip() in answers


def test_a_new_version_comes_in_by_the_documented_edit():
    (edit,) = blocks("proto")
    model = text_format.Parse(edit, model_server_config_pb2.ModelConfig())
    tf_serving.check_model(model)
    assert dict(model.version_labels) == {"stable": 1, "canary": 2}
