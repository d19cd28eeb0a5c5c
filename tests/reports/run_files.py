"""Run directories as the tools write them, of random results."""

from __future__ import annotations

import json

import numpy as np

from supcon_tf import config, measures, run_files
from supcon_tf.reports import contents, learning

HOSTILE = (
    '<script>alert("1")</script>',
    "R&D 'quoted' \"name\"",
    "</figure></td><b>",
    "$x^2$ \\frac{1}{2}",
    "猫",
    "كلب",
    "Straßenbahn mit einem sehr langen Namen ohne Ende und ohne Not",
    "ein_name_ohne_leerzeichen_der_nirgends_umbrechen_kann_aber_muss",
)
DIGITS = tuple("0123456789")
ALL = ("evaluation", "corruptions", "samples", "reference", "diagnostics")


def bare_run(name="run", **filled):
    """A run of two classes with the given attributes alone."""
    run = contents.Run(run_files.RunDirectory(f"runs/{name}"), name)
    vars(run).update({"class_names": ("ant", "bee"), **filled})
    return run


def directory(path):
    """The run directory at a path."""
    return run_files.RunDirectory(path)


def write_run(
    path,
    class_names=DIGITS,
    *,
    skill=3.0,
    seed=0,
    size=8,
    test_examples=360,
    epochs=24,
    parts=ALL[:3],
    **settings,
):
    """Writes a run directory, of images of `size` pixels.

    `skill` is the distance of the right class' logit from the others, `parts`
    are the parts of ALL beside the losses of the pretraining, and `settings`
    are settings of the pretraining.
    """
    rng, files = np.random.default_rng(seed), run_files.RunDirectory(path)
    settings = {"epochs": epochs, "warmup_epochs": 1.0, **settings}
    files.create(config.PretrainSettings(str(path), **settings), class_names)
    _write_lines(files, _epochs(epochs, skill, "diagnostics" in parts))
    if "evaluation" not in parts:
        return path
    linear = files.stage("linear")
    linear.create(config.LinearSettings(str(path)), class_names)
    _write_lines(linear, _epochs(40, skill, has_diagnostics=False))
    labels = np.arange(test_examples) % len(class_names)
    probabilities = _probabilities(labels, len(class_names), skill, rng)
    linear.evaluation_file.write_text(
        json.dumps(_evaluation(labels, probabilities, parts, rng))
    )
    ids = [f"test/<i>{i:05}.png" for i in range(test_examples)]
    linear.write_predictions(probabilities, labels, ids, class_names)
    card = {
        "Model": {"Classes": ", ".join(class_names)},
        "Measures": {"All": "not measured", "Commands": ["python x.py --a=b"]},
    }
    record = files.export / "1" / run_files.EXPORT_RECORD
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"card": card}))
    if "samples" in parts:
        _write_samples(linear, labels, probabilities, class_names, size, rng)
    return path


def _epochs(epochs, skill, has_diagnostics):
    """The lines of metrics.jsonl: the loss, or all figures."""
    lines = []
    for epoch in range(1, epochs + 1):
        share = np.exp(-epoch * skill / 30) * 0.5 + 0.5
        line = {"epoch": epoch, "loss": 0.4844 * share}
        if has_diagnostics:
            names = (*learning._FIGURES, "loss/chance", "a user's figure <&>")
            line = dict.fromkeys(names, share) | line
        lines.append(line)
    return lines


def _write_lines(files, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    files.metrics_file.write_text(text + '{"epoch": 99, "lo')  # killed there


def _probabilities(labels, num_classes, skill, rng):
    logits = rng.normal(size=(len(labels), num_classes))
    logits[np.arange(len(labels)), labels] += skill
    # Neighbouring classes resemble each other.
    logits[np.arange(len(labels)), (labels + 1) % num_classes] += skill / 3
    scores = np.exp(1.5 * logits)
    return (scores / scores.sum(1, keepdims=True)).astype(np.float32)


def _evaluation(labels, probabilities, parts, rng):
    """The content of evaluation.json."""
    linear = measures.classification_summary(probabilities, labels)
    accuracy = linear["top_1"]
    results = {
        "dataset": "digits",
        "image_size": 8,
        "objective": "supcon",
        "test_examples": len(labels),
        "bank_examples": 1437,
        "encoder": "checkpoints/step-00000528",
        "linear": linear,
        "knn": linear | {"k": 200, "temperature": 0.07},
        "knn_majority": linear | {"k": 200},
        "prototype": {
            "top_1": accuracy - 0.02,
            "top_5": 0.99,
            "per_class_recall": linear["per_class_recall"],
        },
        "retrieval": {
            "recall_at": {"1": accuracy - 0.01, "5": 0.99, "10": 0.995},
            "map_at_r": accuracy - 0.1,
        },
        "representations": {"alignment": 0.31, "uniformity": -2.9},
    }
    has_reference = "reference" in parts
    if has_reference:
        edges = np.linspace(0, 1, 41).tolist()
        known, unknown = rng.integers(0, 9, [2, 40]).tolist()
        histogram = {"edges": edges, "known": known, "unknown": unknown}
        results["unknown"] = {
            "images": 90,
            "k": 16,
            "max_softmax": {"fpr95": 0.4, "histogram": histogram},
        }
    if "corruptions" in parts:
        results["corruptions"] = {
            "source": "generated",
            "images": len(labels),
            "severities": [1, 2, 3, 4, 5],
            "reference": "alexnet" if has_reference else None,
            "linear": _robustness(accuracy, linear["ece"], has_reference),
        }
    return results


def _robustness(accuracy, ece, has_reference):
    """A classifier's results on corrupted images."""
    severities = {
        str(severity): {
            "top_1": accuracy * (1 - 0.07 * severity),
            "ece": 0.02 + 0.03 * severity,
        }
        for severity in range(1, 6)
    }
    percents = {"mce": 71.3, "relative_mce": 102.9} if has_reference else {}
    return {
        "clean": {"top_1": accuracy, "ece": ece},
        "results": dict.fromkeys(config.CORRUPTIONS, severities),
        "by_severity": severities,
        "mean_corruption_error_unnormalized": 0.3,
        "mean_ece": 0.11,
        **percents,
    }


def _write_samples(files, labels, probabilities, class_names, size, rng):
    num_classes = len(class_names)
    prototypes = rng.integers(0, 256, [num_classes, size, size, 3])

    def images(class_ids):
        noise = rng.normal(0, 40, [*np.shape(class_ids), size, size, 3])
        return np.clip(prototypes[class_ids] + noise, 0, 255).astype(np.uint8)

    predicted = probabilities.argmax(1)
    wrong = np.flatnonzero(predicted != labels)[:4]
    right = np.flatnonzero(predicted == labels)[: 8 - len(wrong)]
    positions = np.concatenate([wrong, right])
    neighbors = np.where(
        rng.uniform(size=[len(positions), 8]) < 0.8,
        labels[positions, None],
        predicted[positions, None],
    )
    mistakes = np.flatnonzero(predicted != labels)
    surest = np.argsort(-probabilities.max(1)[mistakes], kind="stable")
    mistakes = mistakes[surest[:10]]
    run_files.write_arrays(
        files.samples_file,
        images=images(labels[positions]),
        labels=labels[positions],
        predicted=predicted[positions],
        neighbors=images(neighbors),
        neighbor_labels=neighbors,
        neighbor_similarities=-np.sort(
            -rng.uniform(0.6, 1, neighbors.shape).astype(np.float32)
        ),
        views=images(np.repeat(np.arange(4)[:, None] % num_classes, 6, 1)),
        view_labels=np.arange(4) % num_classes,
        mistakes=images(labels[mistakes]),
        mistake_positions=mistakes,
    )
    angles = 2 * np.pi * labels / num_classes
    plane = 40 * np.stack([np.cos(angles), np.sin(angles)], 1)
    run_files.write_arrays(
        files.representations_file,
        representations=rng.normal(size=[len(labels), 16]).astype(np.float32),
        labels=labels,
        ids=np.array([str(i) for i in range(len(labels))]),
        plane=(plane + rng.normal(0, 4, plane.shape)).astype(np.float32),
        plane_method=np.array("tsne"),
        class_names=np.array(class_names),
    )
