"""Settings, the flags derived from them, and flagfiles."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re

import pytest
from absl import flags

from supcon_tf import config, exceptions, run_files, settings
from supcon_tf.config import sweep
from tests.tool_settings import PROGRAMS

ROOT = pathlib.Path(__file__).parents[2]


def parse(settings_class, *arguments):
    values = flags.FlagValues()
    settings.define_flags(settings_class, values)
    values(["tool", *arguments])
    return settings.from_flags(settings_class, values)


@pytest.mark.parametrize("settings_class", PROGRAMS.values())
def test_flags_have_the_dataclass_defaults_and_a_help_text(settings_class):
    values = {}
    if re.search("transfer|import|index|finetune.py", settings_class.__doc__):
        values = {"data_dir": "y"}  # to another data set, which must be named
    if "checkpoint" in settings_class.__dataclass_fields__:
        values["checkpoint"] = "c"
    if "model" in settings_class.__dataclass_fields__:
        values |= {"train_file": "t.tsv", "model": "m"}
    arguments = [f"--{name}={value}" for name, value in values.items()]
    if settings_class is config.SearchSettings:
        values, arguments = {"images": ("a.png",)}, ["--images=a.png"]
    parsed = parse(settings_class, "--run_dir=x", *arguments)
    assert parsed == settings_class("x", **values)
    for field in dataclasses.fields(settings_class):
        text = field.metadata["help"]
        assert text.endswith(".") and "\n" not in text, field.name


def test_a_help_text_is_silent_on_the_default_of_another_class():
    fields = config.OptimizerSettings.__dataclass_fields__
    for tool in (config.LinearSettings, config.FinetuneTextSettings):
        for name in ("learning_rate", "weight_decay"):
            text = tool.__dataclass_fields__[name].metadata["help"]
            start, end, _ = fields[name].metadata["help"].partition(". Default")
            assert end and text == f"{start}."
    text = config.LinearSettings.__dataclass_fields__["warmup_epochs"]
    assert text.metadata["help"].endswith("rises linearly from 0.")


def test_flagfile_round_trip(tmp_path):
    pretraining = config.PretrainSettings(
        "runs/with space = # '\"\u2028\x85é",
        temperature=0.07,
        crop_area=(),
        hidden_dims=(64, 32),
        horizontal_flip=False,
        positives_cap=3,
        data_dir="/data/a b",
        image_size=32,
        image_std=(0.2, 0.21, 0.22),
        overwrite=True,
    )
    path = tmp_path / "settings.flags"
    path.write_text(settings.to_flagfile(pretraining))
    read_settings = settings.from_flagfile(config.PretrainSettings, path)
    # --overwrite is a word to one command, not part of the run.
    assert read_settings == dataclasses.replace(pretraining, overwrite=False)
    changed = settings.from_flagfile(
        config.PretrainSettings, path, "--temperature=0.5"
    )
    assert changed == dataclasses.replace(read_settings, temperature=0.5)
    default = config.PretrainSettings("x")
    path.write_text(settings.to_flagfile(default))
    assert settings.from_flagfile(config.PretrainSettings, path) == default


def test_bad_flagfiles_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no settings file"):
        settings.from_flagfile(config.LinearSettings, tmp_path / "none")
    path = tmp_path / "bad.flags"
    path.write_text("--run_dir=x\n--temprature=0.1\n")
    with pytest.raises(ValueError, match="bad.flags:2: Unknown.*temprature"):
        settings.from_flagfile(config.PretrainSettings, path)


def test_a_flagfile_of_ones_own_is_read_as_absl_reads_it(tmp_path):
    (tmp_path / "base.flags").write_text("--seed=3\n")
    path = tmp_path / "own.flags"
    path.write_bytes(
        b"\xef\xbb\xbf  --epochs=9\r\n  # a comment\r\n// another\r\n"
        b"-temperature=0.5\r\n--flagfile=%s\r\n\r\n--run_dir=x"
        % bytes(tmp_path / "base.flags")
    )
    pretraining = settings.from_flagfile(config.PretrainSettings, path)
    assert (pretraining.epochs, pretraining.temperature, pretraining.seed) == (
        9,
        0.5,
        3,
    )


def recorded(tmp_path, change):
    """Reads what a run has recorded, changed by hand."""
    path = tmp_path / "settings.flags"
    pretraining = config.PretrainSettings("x", epochs=9, data_dir="é")
    path.write_bytes(change(settings.to_flagfile(pretraining).encode()))
    return settings.from_flagfile(config.PretrainSettings, path, recorded=True)


CHANGES = {
    "a leading blank": (
        lambda text: text.replace(b"--epochs", b" --epochs"),
        r"settings.flags:\d+ must begin with --, got ' --epochs=9'",
    ),
    "one dash": (
        lambda text: text.replace(b"--epochs", b"-epochs"),
        r"settings.flags:\d+ must begin with --, got '-epochs=9'",
    ),
    "no dashes": (
        lambda text: text.replace(b"--epochs", b"epochs"),
        r"settings.flags:\d+ must be a flag, --NAME=VALUE, got 'epochs=9'",
    ),
    "the end of all flags": (
        lambda text: text.replace(b"--epochs", b"--\n--epochs"),
        r"settings.flags:\d+ must be a flag, --NAME=VALUE, got '--'",
    ),
    "another file": (
        lambda text: b"--flagfile=/etc/passwd\n" + text,
        "settings.flags:1 must be a setting, as no file of a run includes",
    ),
    "what may be undefined": (
        lambda text: b"--undefok=epoch\n" + text,
        "settings.flags:1 must be a setting",
    ),
    "an unknown flag": (
        lambda text: text.replace(b"--epochs", b"--epoch"),
        r"settings.flags:\d+: Unknown command line flag 'epoch'",
    ),
    "a wrong value": (
        lambda text: text.replace(b"--epochs=9", b"--epochs=nine"),
        r"settings.flags:\d+: flag --epochs=nine: ",
    ),
    "nothing": (lambda text: b"", "settings.flags must hold settings, but is"),
    "only the comments": (
        lambda text: b"# nothing\n",
        "settings.flags must hold settings, but is damaged, got none",
    ),
    "its first lines": (
        lambda text: b"".join(text.splitlines(keepends=True)[:5]),
        "settings.flags must end with the line # end, but is cut in line 5",
    ),
    "half a line": (
        lambda text: text[: len(text) // 2],
        r"must end with the line # end, but is cut in line \d+; take it from",
    ),
    "half a line of an earlier version": (
        lambda text: b"--run_dir=x\n--epochs=1",
        "must end with the line # end, but is cut in line 2",
    ),
    "another encoding": (
        lambda text: text.decode().encode("utf-16"),
        "settings.flags must be UTF-8, got other bytes",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_damaged_record_is_refused_with_file_and_line(name, tmp_path):
    change, message = CHANGES[name]
    with pytest.raises(ValueError, match=message):
        recorded(tmp_path, change)


def test_a_record_may_pass_through_an_editor(tmp_path):
    expected = recorded(tmp_path, lambda text: text)
    assert expected.epochs == 9 and expected.data_dir == "é"
    for change in (
        lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"),
        lambda text: text.rstrip(b"\n"),
        lambda text: text.replace(b"--epochs", b"\n  # so many\n--epochs"),
        # Of earlier versions.
        lambda text: b"".join(text.splitlines(keepends=True)[1:-1]),
    ):
        assert recorded(tmp_path, change) == expected


# Texts that are no paths.
WORDS = {
    *("architecture", "boxes", "corruptions", "data_service", "dataset"),
    *("dispatcher", "drop", "freeze", "gallery", "host", "implementations"),
    *("label_column", "label_noise", "linear_stage", "measures", "metric"),
    *("model_name", "name", "remove", "remove_class", "server", "signature"),
    *("sizes", "split_by", "sweep", "test_split", "text", "text_columns"),
    *("tfrecord_features", "tpu", "train_split", "unknown_classes"),
    "unsupervised_classes",
}


@pytest.mark.parametrize("settings_class", PROGRAMS.values())
def test_every_text_is_a_path_or_known_to_be_none(settings_class):
    for field in dataclasses.fields(settings_class):
        is_text = "str" in field.type and not field.metadata["choices"]
        is_path = is_text and field.name not in WORDS
        assert field.metadata["path"] == is_path, field.name


def test_a_tilde_of_a_path_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    flagfile = tmp_path / "settings.flags"
    flagfile.write_text("--run_dir=~/run\n--data_dir=~/images\n")
    pretraining = settings.from_flagfile(
        config.PretrainSettings, "~/settings.flags"
    )
    expected = f"{tmp_path}/run", f"{tmp_path}/images"
    assert (pretraining.run_dir, pretraining.data_dir) == expected
    read_settings = parse(
        config.PretrainSettings, "--flagfile=~/settings.flags"
    )
    assert read_settings == pretraining
    report = config.ReportSettings("x", runs=("~/a", "b"))
    assert report.runs == (f"{tmp_path}/a", "b")
    with pytest.raises(
        ValueError, match="`run_dir` must be of a user .*~no0/x"
    ):
        config.PretrainSettings("~no0/x")


def test_an_address_of_the_web_is_no_path():
    address = "https://a.org/b.h5"
    rule = "must be of this machine, .* download it first, got https://a.org/b"
    with pytest.raises(ValueError, match=f"--weights {rule}"):
        config.PretrainSettings("x", weights=address)
    with pytest.raises(ValueError, match=f"--images {rule}"):
        config.PredictSettings("x", images=("a.png", address))
    options = {"dataset": "mine:load", "data_dir": address}
    assert config.PretrainSettings("x", **options).data_dir == address
    with pytest.raises(ValueError, match=f"--data_dir {rule}"):
        config.PretrainSettings("x", data_dir=address)


def test_a_name_with_a_comma_in_a_list_of_files_is_quoted():
    parsed = parse(config.PredictSettings, '--images="a,b.jpg",c d.jpg')
    assert parsed.images == ("a,b.jpg", "c d.jpg")


@pytest.mark.parametrize("path", ["a\nb", "a\rb", "a\udcffb"])
def test_a_path_is_a_line_of_utf_8(path):
    with pytest.raises(
        ValueError, match="--run_dir must be UTF-8 without line"
    ):
        config.PretrainSettings(path)
    with pytest.raises(ValueError, match="--data_dir must be UTF-8 without"):
        config.PretrainSettings("x", data_dir=path)


def test_a_text_is_utf_8_and_the_path_of_an_image_may_be_other_bytes():
    settings = config.PredictSettings("x", images=("a\udcff.jpg",))
    assert settings.images == ("a\udcff.jpg",)
    message = r"--text must be UTF-8, got 'a\\udcff'"
    with pytest.raises(ValueError, match=message):
        config.PredictSettings("x", text=("two\nlines", "a\udcff"))


# What is wrong, and what the error says of it.
BROKEN = [
    ({"run_dir": ""}, "--run_dir must be given"),
    ({"temperature": 0.0}, "--temperature must be above 0, got 0.0"),
    ({"num_views": "8"}, "--num_views must be int, got '8'"),
    ({"num_views": True}, "--num_views must be int, got True"),
    ({"batch_size": 1}, "--batch_size must be at least 2 with --objective"),
    ({"dataset": "digits", "data_dir": "x"}, "--data_dir must be left .*x"),
    ({"horizontal_flip": 1}, "--horizontal_flip must be bool, got 1"),
    ({"warp_probability": 1.5}, "must be at most 1, got 1.5"),
    # Many a rule holds for them, and no step counts so many epochs.
    ({"decay_epochs": math.inf}, "--decay_epochs must be finite, got inf"),
    ({"image_mean": (0.5, math.nan, 0.5)}, "must be finite, got 0.5,nan,0.5"),
    ({"formulation": "mean"}, "--formulation must be one of out, in, got"),
    ({"crop_area": (0.5,)}, "--crop_area must be empty or two numbers"),
    ({"epochs": 5, "warmup_epochs": 10}, "at most --epochs, got 10 and 5"),
    ({"batch_size": 10, "images_per_class": 3}, "must divide .*, got 3 and 10"),
    ({"keep_every": 15}, "--keep_every must be a multiple .*, got 15 and 10"),
    ({"profile": (3, 2)}, "--profile must be empty or two steps .*got 3,2"),
    ({"dataset": "folder"}, "--data_dir must be given with --dataset=f"),
    ({"skip_bad_images": True, "check_images": False}, "come with --check_im"),
    ({"architecture": "vgg8", "stem": "cifar"}, "--stem must be left out"),
    ({"num_views": 4, "positives_cap": 2}, "--positives_cap .* at least 3"),
    ({"image_mean": (0.5,)}, "--image_mean must be three numbers"),
    ({"image_mean": (*"rgb",)}, r"must be tuple\[float, ...\], got \('r', 'g"),
    ({"objective": "simclr", "num_views": 1}, "--num_views must be at least 2"),
    ({"label_smoothing": 0.1}, "left out with --objective=supcon: only ce can"),
    ({"objective": "npairs", "paco_alpha": 5.0}, "npairs: only paco, paco.ce"),
    ({"margin": 1.0}, "with --denominator=all: only one_positive, sincere"),
    ({"data_service": "grpc://h:1", "auto_shard": "file"}, "must be element"),
    ({"objective": "bcl", "mixing": "mixup"}, "only supcon, ce, supcon.ce can"),
    ({"positives": "soft"}, "must be any, all or jaccard with --mixing=none"),
    (
        {"mixing": "cutmix", "positives": "any"},
        "--positives must be soft or cosine with --mixing=cutmix, got any",
    ),
    (
        {"mixing": "mixup", "hierarchy": "names"},
        "--hierarchy must be left out with --mixing=mixup, got names",
    ),
    ({"mixing": "mixup", "multi_label": True}, "--mixing must be left out for"),
    (
        {"objective": "ce", "init_from": "x", "init_head": True},
        "--init_head must be left out with --objective=ce, which has no proj",
    ),
]


@pytest.mark.parametrize(("overrides", "message"), BROKEN)
def test_broken_rules_are_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        config.PretrainSettings(**{"run_dir": "x", **overrides})


@pytest.mark.parametrize(
    "name", [*run_files.TAKEN_NAMES, "Encoded", "a/b", "a.b", "..", ""]
)
def test_stage_names_are_plain_and_free(name):
    rule = "must be letters, digits, - and _, and none of best, cells, .*, got"
    for tool in (config.LinearSettings, config.TransferSettings):
        with pytest.raises(ValueError, match=f"--name {rule} '{name}'"):
            tool("x", name=name)
    with pytest.raises(ValueError, match=f"--linear_stage {rule} '{name}'"):
        config.EvaluateSettings("x", linear_stage=name)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "flags").glob("*.flags")), ids=lambda p: p.stem
)
def test_presets_parse_and_say_where_they_come_from(path, monkeypatch):
    monkeypatch.chdir(ROOT)  # where a preset that includes one looks for it
    header = path.read_text().split("\n--")[0]
    tool, options = re.search(r"python (tools/\S+) (.*)", header).groups()
    first, *flags = options.split()
    assert first == f"--flagfile=flags/{path.name}"
    settings.from_flagfile(PROGRAMS[tool], path, *flags)
    assert "Cost" in header or "seconds" in header


BASELINES = {  # settings that are not those of SupCon
    "ce": {"objective": "ce"},
    "ce_smoothing": {"objective": "ce", "label_smoothing": 0.1},
    "mixup": {"objective": "ce", "mixing": "mixup", "mixing_alpha": 1.0},
    "cutmix": {"objective": "ce", "mixing": "cutmix"},
    "simclr": {  # which learns from its views alone: the paper's
        "objective": "simclr",
        "temperature": 0.5,
        "scale_by_temperature": False,
        "hidden_dims": (2048, 2048),
        "crop_area": (0.2, 1.0),
        "jitter_strength": 0.5,
    },
    "npairs": {"objective": "npairs"},
    "supcon_in": {"formulation": "in"},
}


def test_baselines_have_the_budget_of_supcon(monkeypatch):
    """But for loss, learning rate and norm, all is equal."""
    monkeypatch.chdir(ROOT)

    def preset(method):
        name = f"flags/{method}_cifar10_resnet18.flags"
        return settings.from_flagfile(
            config.PretrainSettings, name, "--run_dir=x"
        )

    supcon = preset("supcon")
    for method, options in BASELINES.items():
        baseline = preset(method)
        tuned = {
            "learning_rate": baseline.learning_rate,
            "normalize_representation": baseline.normalize_representation,
        }
        assert baseline == dataclasses.replace(supcon, **options, **tuned), (
            method
        )
    names = {path.stem for path in ROOT.glob("flags/*_cifar10_resnet18.flags")}
    assert names == {
        f"{method}_cifar10_resnet18" for method in ("supcon", *BASELINES)
    }


def test_rmsprop_of_stage_1_is_that_of_the_papers_code():
    """Whose epsilon of 1 leaves a step of SGD: so does the learning rate."""
    pretrain = config.PretrainSettings("x", optimizer="rmsprop")
    assert (pretrain.epsilon, pretrain.default_learning_rate) == (1.0, 5.0)
    small = dataclasses.replace(pretrain, optimizer_epsilon=1e-3)
    assert (small.epsilon, small.default_learning_rate) == (1e-3, 0.01)
    assert config.LinearSettings("x", optimizer="rmsprop").epsilon == 1e-3


def test_every_objective_takes_its_own_options():
    for objective, options in {
        "npairs": {"num_views": 1, "cross_replica": False},
        "simclr": {"temperature": 0.5},
        "triplet": {"cross_replica": False},
        "ce": {"num_views": 1},
        "max_margin": {"num_views": 1},
    }.items():
        config.PretrainSettings("x", objective=objective, **options)


def test_positives_follow_the_labels(tmp_path):
    """Runs that are older than soft labels have recorded `any` of all."""
    for options, expected in (
        ({}, None),
        ({"multi_label": True}, "any"),
        ({"multi_label": True, "positives": "all"}, "all"),
        ({"multi_label": False, "mixing": "mixup"}, "soft"),
        ({"mixing": "mixup", "positives": "cosine"}, "cosine"),
        ({"mixing": "mixup", "positives_cap": 3}, "soft"),
    ):
        pretraining = config.PretrainSettings("x", **options)
        assert pretraining.kind_of_positives == expected
    path = tmp_path / "settings.flags"
    for options in (
        {"objective": "ce", "multi_label": False},
        {"multi_label": True},
    ):
        pretraining = config.PretrainSettings("x", **options)
        path.write_text(settings.to_flagfile(pretraining))
        read_settings = settings.from_flagfile(
            config.PretrainSettings, path, "--positives=any"
        )
        assert read_settings == pretraining
    texts = config.FinetuneTextSettings(
        "x", model="m", train_file="t.tsv", positives="any"
    )
    assert texts.kind_of_positives is None


@dataclasses.dataclass(frozen=True)
class Lists(settings.Settings):
    colors: tuple[str, ...] = settings.setting(
        ("red", "blue"), choices=("red", "green", "blue")
    )
    """Colours."""
    words: tuple[str, ...] = ()
    """Words."""
    lines: tuple[str, ...] = settings.setting((), repeated=True)
    """Lines."""
    limit: float | None = settings.setting(None, at_least=1)
    """Limit."""
    silent: bool = settings.setting(False, resumable=True)
    """Silent."""


def test_a_field_with_another_default_has_the_help_and_rules_of_its_base():
    fields = config.LinearSettings.__dataclass_fields__
    base_field = config.PretrainSettings.__dataclass_fields__["learning_rate"]
    assert fields["learning_rate"].default == 2.5 != base_field.default
    help_text = fields["learning_rate"].metadata["help"]
    start, *_ = base_field.metadata["help"].partition(" Default: ")
    assert help_text == start
    assert help_text.startswith("Peak learning rate for a batch of 256 images")
    with pytest.raises(ValueError, match="--learning_rate must be above 0"):
        config.LinearSettings("x", learning_rate=0.0)
    with pytest.raises(KeyError, match="volume"):  # has no help at all

        class Silent(settings.Settings):
            volume: int = 3


def test_lists_of_words_are_separated_by_commas():
    assert parse(Lists, "--run_dir=x") == Lists("x")
    parsed = parse(Lists, "--run_dir=x", "--colors=green,red", "--words=a b,c")
    assert parsed == Lists("x", ("green", "red"), ("a b", "c"))
    assert parse(Lists, "--run_dir=x", "--colors=").colors == ()
    message = "--colors must be one of red, green, blue, got 'pink'"
    with pytest.raises(ValueError, match=message):
        parse(Lists, "--run_dir=x", "--colors=red,pink")
    with pytest.raises(ValueError, match="--words must be tuple.*got 'ab'"):
        Lists("x", words="ab")


def test_a_repeated_flag_keeps_its_commas(tmp_path):
    parsed = parse(Lists, "--run_dir=x", "--lines=a,b", "--lines=c=d,e")
    assert parsed.lines == ("a,b", "c=d,e")
    path = tmp_path / "settings.flags"
    path.write_text(settings.to_flagfile(parsed))
    assert "--lines=a,b\n--lines=c=d,e\n" in path.read_text()
    assert settings.from_flagfile(Lists, path) == parsed


def test_a_word_keeps_its_commas_and_quotes(tmp_path):
    lists = Lists("x", words=("a,b", 'c"d', "e"))
    path = tmp_path / "settings.flags"
    path.write_text(settings.to_flagfile(lists))
    assert settings.from_flagfile(Lists, path) == lists
    for words in ((), ("",)):
        path.write_text(settings.to_flagfile(Lists("x", words=words)))
        assert settings.from_flagfile(Lists, path).words == words


@pytest.mark.parametrize("settings_class", [config.PretrainSettings, Lists])
def test_every_default_comes_back_from_its_text(settings_class):
    for field in dataclasses.fields(settings_class):
        if field.name != "run_dir":
            text = sweep.axis_text(field.default)
            assert sweep.axis_value(field, text) == field.default, field.name


def test_a_text_that_is_no_value_is_named():
    fields, read = Lists.__dataclass_fields__, sweep.axis_value
    assert read(fields["words"], "a+b") == ("a", "b")
    assert read(fields["silent"], "True") is True
    for name, text, message in (
        ("limit", "low", "--limit must be float | None, got 'low'"),
        ("limit", "0.5", "--limit must be at least 1, got 0.5"),
        ("silent", "1", "--silent must be bool, got '1'"),
        ("colors", "red+pink", "--colors must be one of red, green, blue"),
    ):
        with pytest.raises(ValueError, match=message.replace("|", "[|]")):
            read(fields[name], text)


def test_changes_are_those_that_make_another_run():
    before = config.PretrainSettings("a", epochs=20)
    after = dataclasses.replace(
        before, run_dir="b", temperature=0.2, keep_checkpoints=9, overwrite=True
    )
    assert settings.changes(before, before) == []
    assert settings.changes(before, after) == ["--temperature=0.2 (was 0.1)"]


def test_a_finished_run_keeps_what_its_results_depend_on(tmp_path):
    before = config.PretrainSettings("a", data_dir=str(tmp_path), epochs=20)
    after = dataclasses.replace(
        before,
        data_dir=str(tmp_path.parent),
        drop_duplicates=True,
        epochs=40,
        strategy="mirrored",
    )
    assert settings.changes(before, after) == []
    names = {
        change.partition("=")[0]
        for change in settings.changes(before, after, is_finished=True)
    }
    assert names == {"--data_dir", "--drop_duplicates", "--epochs"}


def test_a_folder_of_images_is_what_a_data_dir_means():
    assert config.PretrainSettings("x").dataset == "digits"
    assert config.PretrainSettings("x", data_dir="y").dataset == "folder"
    assert parse(config.PretrainSettings, "--run_dir=x", "--data_dir=y") == (
        config.PretrainSettings("x", dataset="folder", data_dir="y")
    )
    cifar = config.PretrainSettings("x", dataset="tfds:cifar10", data_dir="y")
    assert cifar.dataset == "tfds:cifar10"
    with pytest.raises(ValueError, match="--data_dir or --dataset must be giv"):
        config.TransferSettings("x")


@pytest.mark.parametrize(("epochs", "warmup"), [(4, 0.4), (100, 10), (350, 10)])
def test_the_warm_up_fits_the_epochs(epochs, warmup):
    settings = config.PretrainSettings("x", epochs=epochs)
    assert settings.warmup_epochs is None
    assert settings.default_warmup_epochs == warmup


def test_a_run_that_goes_on_may_grow_and_keeps_what_it_resolved():
    before = config.PretrainSettings(
        "a", epochs=20, batch_size=32, warmup_epochs=2.0
    )
    longer = settings.adopt(config.PretrainSettings("a", epochs=40), before)
    assert (longer.batch_size, longer.warmup_epochs) == (32, 2.0)
    assert settings.changes(before, longer) == []
    shorter = dataclasses.replace(longer, epochs=10)
    assert settings.changes(before, shorter) == ["--epochs=10 (was 20)"]


def test_every_check_raises_what_a_user_can_mend():
    """Every `raise` of the package but those of defects and of programs."""
    allowed = {"InvalidValue", "MissingPackage", "Preempted", "SystemExit"}
    allowed |= {"AttributeError"}
    for path in sorted((ROOT / "supcon_tf").rglob("*.py")):
        raised = re.findall(r"^ *raise ([A-Z]\w+)\(", path.read_text(), re.M)
        # The package itself imports nothing at its start, also no exceptions.
        if path == ROOT / "supcon_tf" / "__init__.py":
            raised.remove("ImportError")
        for name in raised:
            assert name in allowed, f"{path} raises {name}"
    assert issubclass(exceptions.InvalidValue, ValueError)
