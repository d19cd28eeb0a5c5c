"""The commands: `supcon NAME` of an installation, tools/NAME.py of a checkout.

Their docstrings are the help. A room of the package is imported by its first
use here, and TensorFlow with it: once the settings are right, so that `--help`
and a wrong flag answer at once.
"""

from __future__ import annotations

import functools
import inspect
import os
import pathlib
import re
import signal
import sys
import threading
import typing
import warnings

import supcon_tf
from supcon_tf import config, exceptions, run_files, scores
from supcon_tf.cli import command_line
from supcon_tf.clients import paths
from supcon_tf.disk import files
from supcon_tf.host import trust
from supcon_tf.settings import Settings, from_flagfile

# A copy of flags/ in the package.
PRESETS = pathlib.Path(__file__).parent.parent / "flags"


def demo(settings: config.DemoSettings) -> None:
    """The whole method on real images in minutes.

      python tools/demo.py

    Pretrains on scikit-learn's digits, trains the linear classifier, evaluates
    and exports, and does the same with an encoder of random weights, so that
    the gain is visible. It ends with report.html, the two side by side.
    """
    folder, results = settings.run_dir, {}
    for name, epochs in (("supcon", settings.epochs), ("untrained", 0)):
        run_dir = f"{folder}/{name}"
        options = (f"--run_dir={run_dir}", "--overwrite")
        pretraining = from_flagfile(
            config.PretrainSettings,
            PRESETS / "supcon_digits_resnet18.flags",
            *options,
            f"--epochs={epochs}",
        )
        linear = from_flagfile(
            config.LinearSettings, PRESETS / "linear_digits.flags", *options
        )
        print(f"\n=== {run_dir}: {epochs} epochs of pretraining", flush=True)
        supcon_tf.training.pretrain(pretraining)
        supcon_tf.training.train_linear(linear)
        results[name] = supcon_tf.evaluation.evaluate(
            config.EvaluateSettings(run_dir, knn_neighbors=20)
        )
    export_dir = supcon_tf.serving.export(
        config.ExportSettings(f"{folder}/supcon")
    )
    page = supcon_tf.reports.write_report(
        [f"{folder}/untrained", f"{folder}/supcon"],
        f"{folder}/report.html",
        ["random weights", "SupCon"],
    )
    names = {"untrained": results["untrained"], "SupCon": results["supcon"]}
    print("\n360 held-out digits, encoder with random weights, and with SupCon")
    print(supcon_tf.evaluation.results_table(names))
    print(f"\nrun directories  {folder}/supcon, .../untrained")
    print(f"evaluation       {folder}/supcon/linear/evaluation.json")
    print(f"learning curves  tensorboard --logdir {folder}")
    print(f"SavedModel       {export_dir}")
    print(f"report           {page}: open it in a browser")


def pretrain(settings: config.PretrainSettings) -> None:
    r"""Stage 1: pretrains an encoder with the supervised contrastive loss.

      python tools/pretrain.py --flagfile=flags/supcon_digits_resnet18.flags \
        --run_dir=runs/digits

    Writes settings.flags, classes.json, checkpoints/, metrics.jsonl and
    tensorboard/ into the run directory.
    """
    supcon_tf.training.pretrain(settings)


def train_linear(settings: config.LinearSettings) -> None:
    """Stage 2: trains a linear classifier on the frozen encoder of a run.

      python tools/train_linear.py --run_dir=runs/digits

    Writes settings.flags, checkpoints/, metrics.jsonl and tensorboard/ into the
    sub-directory `linear` of the run directory.
    """
    supcon_tf.training.train_linear(settings)


def finetune(settings: config.FinetuneSettings) -> None:
    r"""Makes a classifier of your images from a pretrained network.

      python tools/finetune.py --data_dir=DIR --run_dir=runs/mine

    DIR has one sub-folder of images per class. Tries a linear classifier on the
    network as it is, and trainings of both; validation images, held out from
    the training images, choose. Then measures the test images, once. Writes
    settings.flags, classes.json, finetune.json, checkpoints/, evaluation.json,
    report.html and export/1 into the run directory. The same command with
    --resume goes on.
    """
    run = supcon_tf.finetuning.finetune_images(settings)
    if not supcon_tf.distribute.is_first_machine():
        return
    functions = trust.repeated(vars(settings))
    evaluate(config.EvaluateSettings(settings.run_dir, **functions))
    if not run.exports() or run.outdated_export():
        export_settings = config.ExportSettings(settings.run_dir, **functions)
        supcon_tf.serving.export(export_settings)
    command = run_files.command("predict", run_dir=run.path)
    print(f"ask it       {command} photo.jpg")


def finetune_text(settings: config.FinetuneTextSettings) -> None:
    r"""Fine-tunes a language model on labelled sentences, by SupCon and CE.

      python tools/finetune_text.py --model=roberta-base \
        --train_file=train.tsv --test_file=test.tsv --run_dir=runs/texts

    The weights of the epoch that is best on the validation sentences stay, for
    tools/evaluate.py to measure on the test file. Writes settings.flags,
    classes.json, language_model/, checkpoints/, best/, metrics.jsonl and
    tensorboard/ into the run directory.
    """
    supcon_tf.training.finetune_text(settings)


def evaluate(settings: config.EvaluateSettings) -> None:
    """Measures a run on its test split: numbers, and a page to look at.

      python tools/evaluate.py --run_dir=runs/digits

    Prints a table; writes evaluation.json and report.html into the linear stage
    that it measures, runs/digits/linear, and beside them predictions.npz,
    representations.npz and samples.npz. A run without such a stage has them
    itself.
    """
    results = supcon_tf.evaluation.evaluate(settings)
    run = supcon_tf.training.RunDirectory(settings.run_dir)
    if run.tool == "finetune":
        results = scores.linear_results(results)
    owner = run.evaluation_owner(settings.linear_stage)
    print(supcon_tf.evaluation.results_table({str(owner.path): results}))
    page = supcon_tf.reports.write_report([owner.path], owner.report_file)
    print(f"\nreport       {page}")


def report(settings: config.ReportSettings) -> None:
    """Puts runs side by side on one page: report.html.

      python tools/report.py runs/supcon runs/cross_entropy --run_dir=runs/both

    Linear stages, runs/supcon/linear and runs/supcon/fast, are compared like
    runs. Reads only what lies in these directories, most of it written by
    tools/evaluate.py, and writes one file that needs no network.
    """
    file = f"{settings.run_dir}/report.html"
    print(supcon_tf.reports.write_report(settings.runs, file))


def transfer(settings: config.TransferSettings) -> None:
    r"""Takes the encoder of a run to another data set: linear or fine-tuned.

      python tools/transfer.py --run_dir=runs/digits --name=flowers \
        --dataset=folder --data_dir=flowers --method=linear

    Prints a table; writes settings.flags, classes.json, transfer.json and
    predictions.npz, and of a fine-tuning the run directory tuned/, into that
    sub-directory of the run directory.
    """
    measured = supcon_tf.transfer.transfer_encoder(settings)
    print(supcon_tf.transfer.transfer_table(measured))


def sweep(settings: config.SweepSettings) -> None:
    r"""Runs a grid of settings: both stages and the evaluation of every cell.

      python tools/sweep.py --flagfile=flags/supcon_digits_resnet18.flags \
        --linear_flagfile=flags/linear_digits.flags --run_dir=runs/sweep \
        --sweep=temperature=0.05,0.07,0.1,0.2,0.5 \
        --sweep=objective=supcon,simclr

    All flags of tools/pretrain.py set what does not vary;
    --sweep=linear.NAME=... varies stage 2 on a shared stage 1, and values of
    seed are repetitions. A cell that fails is recorded, and the others are run;
    the same command again skips finished cells, goes on with interrupted ones
    and tries failed ones again. Prints a table; writes sweep.md, sweep.json and
    the paper's Fig. 4, sweep.png and sweep.svg, after every cell. With
    --parallel=K, K cells run at a time, each on its share of the cores. Exit
    code 1 if a cell failed.
    """
    _show_sweep(supcon_tf.sweeps.run_sweep(settings), settings.run_dir)


def sweep_text(settings: config.SweepTextSettings) -> None:
    r"""Runs a grid of settings on texts: each a fine-tuning and its evaluation.

      python tools/sweep_text.py --model=roberta-base --train_file=train.tsv \
        --test_file=test.tsv --train_examples=100 \
        --sweep=classifier_weight=0.1,0.5,0.9 --sweep=temperature=0.1,0.3 \
        --sweep=draw=0,1,2 --run_dir=runs/sweep

    All flags of tools/finetune_text.py set what does not vary; values of draw
    and of seed are repetitions. The table marks the best by the validation
    sentences. All else is as in tools/sweep.py.
    """
    _show_sweep(supcon_tf.sweeps.run_sweep(settings), settings.run_dir)


def reproduce(settings: config.ReproduceSettings) -> None:
    """Runs a table or a figure of the paper, ours beside the published.

      python tools/reproduce.py --table=fig4d --data_dir=DIR --run_dir=runs/4d

    It is a sweep, whose table and figure are written as by tools/sweep.py; the
    same command again goes on. Run it in the root of a checkout, where the
    presets are.
    """
    _show_sweep(supcon_tf.sweeps.reproduce(settings), settings.run_dir)


def _show_sweep(results: dict[str, object], run_dir: str) -> None:
    print(f"\n{supcon_tf.sweeps.sweep_table(results)}")
    print(f"\nfigure       {run_dir}/sweep.png")
    failed = [cell for cell in results["cells"] if cell["status"] == "failed"]
    if failed:
        sys.exit(
            f"error: {len(failed)} of {len(results['cells'])} cells failed; "
            "the same command, without --overwrite, tries them again"
        )


def export(settings: config.ExportSettings) -> None:
    """Exports a run as a SavedModel for TF Serving.

      python tools/export.py --run_dir=runs/digits

    Writes export/<version>/ into the run directory, with a model card in
    assets.extra/model_card.md.
    """
    supcon_tf.serving.export(settings)


def index(settings: config.IndexSettings) -> None:
    r"""Makes a gallery of labelled images or texts, and adds or removes rows.

      python tools/index.py --run_dir=runs/mine --data_dir=DIR --name=products

    encodes the images of DIR, one sub-folder per class, by the encoder of the
    run. New images, of new classes too, need no training:

      python tools/index.py --run_dir=runs/mine --name=products --add=NEW

    Writes galleries/products/ into the run directory. tools/search.py answers
    from it.
    """
    supcon_tf.gallery.index(settings)


def search(settings: config.SearchSettings) -> None:
    r"""Searches a gallery for images or texts: similar rows, and the class.

      python tools/search.py --run_dir=runs/mine --gallery=products \
        photo.jpg folder/

    A query that is similar to no row is "unknown". Writes a table to stdout,
    or JSON lines or a page to the output file. An image that cannot be read has
    an error in the place of its answer, and makes the exit code 1.
    """
    run = run_files.RunDirectory(settings.run_dir)
    paths.print_outdated(run.outdated_export())
    # Warnings say the same with a line of code, or tell of the gallery in the
    # export, which is not searched.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Its newest export (is of|has) ")
        model = supcon_tf.load(
            settings.run_dir, architecture=settings.architecture
        )
    searcher = model.gallery(settings.gallery)
    failed = supcon_tf.gallery.search(settings, searcher)
    if settings.output:
        print(settings.output)
    if failed:
        sys.exit(f"error: no answer for {failed} of them, see `error`")


def predict(settings: config.PredictSettings) -> None:
    r"""Asks an exported model about images or texts: classes, representations.

      python tools/predict.py --run_dir=runs/digits photo.jpg folder/

    asks the newest version of runs/digits/export in this process, and

      python tools/predict.py --run_dir=runs/digits photo.jpg folder/ \
        --server=http://localhost:8501 --output=answers.jsonl

    the model `digits` of a TF Serving, by REST, which needs no TensorFlow here.
    Of a run on texts,

      python tools/predict.py --run_dir=runs/texts --text="a fine film" \
        --text_files=lines.txt

    asks about a text and the lines of a file. Writes CSV to stdout, or
    the output file once all is answered. An image that the model refuses has an
    error in its row, and makes the exit code 1.
    """
    try:
        failed = supcon_tf.clients.predict(settings)
    except KeyboardInterrupt:
        os._exit(130)  # at once, whatever threads wait for
    if settings.output:
        print(settings.output)
    if failed:
        sys.exit(f"error: no answer for {failed} of them, see `error`")


def import_weights(settings: config.ImportSettings) -> None:
    r"""Makes a run directory from a checkpoint of another project.

      python tools/import_weights.py --format=torchvision \
        --checkpoint=resnet50.pth --drop=fc. --data_dir=DIR --image_size=224 \
        --run_dir=runs/resnet50

    The data are those that the later tools read. Writes what tools/pretrain.py
    writes, of no epochs.
    """
    supcon_tf.conversion.import_weights(settings)


def convert(settings: config.ConvertSettings) -> None:
    """Converts a run for phones and other runtimes: TFLite, ONNX.

      python tools/convert.py --run_dir=runs/digits

    Writes converted/ into the run directory, and prints how every file does on
    the test images beside the model that it was made from.
    """
    results = supcon_tf.conversion.convert(settings)
    print(supcon_tf.conversion.conversion_table(results))


def make_tfrecords(settings: config.MakeTfrecordsSettings) -> None:
    r"""Writes images as TFRecord files, for --dataset=tfrecord.

      python tools/make_tfrecords.py --data_dir=images --run_dir=records
      python tools/pretrain.py --dataset=tfrecord --data_dir=records \
        --run_dir=runs/mine

    Takes any data set that a training takes. The same command goes on where it
    was stopped.
    """
    files.check_writable("run_dir", settings.run_dir)
    splits = {
        split: supcon_tf.training.input_pipeline.source(settings, split)
        for split in ("train", "test")
    }
    if supcon_tf.data.has_validation(settings.dataset, settings.data_dir):
        supcon_tf.training.console.print_line(
            "note",
            "the images of val are left out: TFRecord files have a training "
            "and a test split alone",
        )
    supcon_tf.data.write_tfrecords(
        splits,
        settings.run_dir,
        seed=settings.seed,
        tell=functools.partial(print, flush=True),
    )


def show_augment(settings: config.ShowAugmentSettings) -> None:
    r"""Shows what the augmentation does to images, before anything is trained.

      python tools/show_augment.py --augmentation=autoaugment
      python tools/show_augment.py --dataset=folder --data_dir=DIR \
        --image_size=160

    Writes views.png, the first views that training makes of some images, and
    operations.png, the first under every operation, into the run directory.
    """
    for path in supcon_tf.evaluation.show_augment(settings):
        print(path)


def data_service(settings: config.DataServiceSettings) -> None:
    r"""Serves views to training: reads and augments in processes of its own.

      python tools/data_service.py

    runs a dispatcher and a worker, and prints what to give to
    tools/pretrain.py: --data_service=grpc://localhost:5050. Only this machine
    reaches them. For workers on other machines, a dispatcher with --host, and
    on each of them

      python tools/data_service.py --role=worker \
        --dispatcher=grpc://HOST:5050 --host=NAME_OF_THE_MACHINE

    Then whoever reaches a port reads and writes files there, without a
    password: keep them inside a private network, see docs/security.md.

    Workers may come and go during a run, and must see the images under the same
    paths. SIGTERM ends each. Writes nothing but, with --journal, the
    dispatcher's journal into the run directory.
    """
    from supcon_tf.data import service

    for number in (signal.SIGTERM, signal.SIGINT):
        # Not sys.exit: a server is stopped by waiting for those that it talks
        # to, up to an hour for one that is gone. There is nothing to save.
        signal.signal(number, lambda *_: os._exit(0))
    address, host, servers = settings.dispatcher, settings.host, []
    if settings.role != "worker":
        journal = settings.run_dir if settings.journal else None
        with exceptions.argument("run_dir", "journal"):
            dispatcher = service.start_dispatcher(settings.port, journal, host)
        servers.append(dispatcher)
        address = f"grpc://{host}:{servers[0].target.rpartition(':')[2]}"
        print(f"dispatcher   --data_service={address}", flush=True)
    if settings.role != "dispatcher":
        port = settings.worker_port
        servers.append(service.start_worker(address, host, port))
        print(f"worker       at {host}", flush=True)
    threading.Event().wait()


def doctor() -> None:
    """Prints versions, devices, and known traps of this installation.

      python tools/doctor.py

    Prints a line each; one that begins with BAD ends in the command that mends
    it.
    """
    sys.exit(min(supcon_tf.doctor.main(), 1))


# All functions above, by name.
COMMANDS = {
    name: command
    for name, command in dict(globals()).items()
    if inspect.isfunction(command)
    and command.__module__ == __name__
    and not name.startswith("_")
}
# The setting of arguments without a flag.
POSITIONAL = {"predict": "images", "report": "runs", "search": "images"}


def run(name: str) -> None:
    """Runs a command with the flags of this process."""
    command = COMMANDS[name]
    about = inspect.getdoc(command)
    if sys.argv[0] == f"supcon {name}":
        about = re.sub(r"python\stools/(\w+)\.py", r"supcon \1", about)
    settings_class = settings_of(name)
    if settings_class is None:
        command_line.run_without_flags(command, about)
    else:
        command_line.run(command, settings_class, POSITIONAL.get(name), about)


def settings_of(name: str) -> type[Settings] | None:
    """The class of a command's settings; None where it has no flags."""
    return typing.get_type_hints(COMMANDS[name]).get("settings")


@command_line.any_output()
def main() -> None:
    """The console script `supcon`: its first argument names the command."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in COMMANDS:
        sys.argv[:2] = [f"supcon {name}"]
        run(name)
    elif name in ("--help", "-h", "help"):
        print("supcon COMMAND --help tells more.\n")
        for name, command in COMMANDS.items():
            print(f"  {name:<16}{command.__doc__.splitlines()[0]}")
    else:
        names = ", ".join(COMMANDS)
        sys.exit(f"error: no command {name}; there are {names}")
