"""Damaged settings.flags: a line names the damage."""

import pytest

from tests import forks, processes


@pytest.fixture(scope="module")
def run(copy_run, tmp_path_factory):
    return copy_run(tmp_path_factory.mktemp("run") / "run")


DAMAGES = {
    "leading blank": (
        lambda text: text.replace("--epochs", " --epochs"),
        "settings.flags:53 must begin with --, got ' --epochs=2'",
    ),
    "no flag": (
        lambda text: text.replace("--epochs", "epochs"),
        "settings.flags:53 must be a flag, --NAME=VALUE, got 'epochs=2'",
    ),
    "included": (
        lambda text: f"{text}--flagfile=/etc/passwd\n",
        "must be a setting, as no file of a run includes another",
    ),
    "cut": (lambda text: text[:200], "/settings.flags must end with the line"),
    "empty": (lambda text: "", "/settings.flags must hold settings, but is da"),
}
COMMANDS = (
    ("evaluate",),
    ("pretrain", "--resume"),
    ("pretrain", "--resume", "--flagfile={run}/settings.flags"),
    ("report", "{run}"),
)


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_settings_are_named(name, run, tmp_path):
    text = run.settings_file.read_text()
    damage, message = DAMAGES[name]
    number = text.splitlines().index("--epochs=2") + 1
    run.settings_file.write_text(damage(text))
    try:
        for tool, *flags in COMMANDS:
            directory = tmp_path if tool == "report" else run.path
            process = forks.run(
                processes.ROOT / "tools" / f"{tool}.py",
                f"--run_dir={directory}",
                *(flag.format(run=run.path) for flag in flags),
            )
            assert process.returncode == 1, process.stderr
            (line,) = process.stderr.splitlines()
            assert message.replace(":53", f":{number}") in line, tool
    finally:
        run.settings_file.write_text(text)
