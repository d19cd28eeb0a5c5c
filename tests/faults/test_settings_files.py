"""Every command names a damaged settings.flags, in one line.

tests/settings/test_settings.py has the kinds of damage and their lines.
"""

import pytest

from tests import forks, processes

COMMANDS = (
    "evaluate --run_dir={run}",
    "pretrain --run_dir={run} --resume",
    "pretrain --run_dir={run} --resume --flagfile={run}/settings.flags",
    "report --run_dir={other} {run}",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_the_damage(command, copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    with open(run.settings_file, "a") as file:
        file.write("--flagfile=/etc/passwd\n")
    text = command.format(run=run.path, other=tmp_path / "other")
    tool, *flags = text.split()
    process = forks.run(processes.ROOT / "tools" / f"{tool}.py", *flags)
    assert process.returncode == 1, process.stderr
    (line,) = process.stderr.splitlines()
    assert "must be a setting, as no file of a run includes another" in line
