"""Test that every file and directory that a command writes obeys the umask."""

import os
import stat
from pathlib import Path

import pytest

from beambert import cli
from tests.every_output import MADE_BY, UMASK, command_of


def assert_modes(folder: Path) -> None:
    """Assert that a directory, and all files and directories below it, have the mode that the umask leaves."""
    written = [folder, *folder.rglob("*")]
    assert any(path.is_file() for path in written)
    modes = {str(path.relative_to(folder)): oct(stat.S_IMODE(path.stat().st_mode)) for path in written}
    allowed = {True: oct(0o777 & ~UMASK), False: oct(0o666 & ~UMASK)}
    assert modes == {str(path.relative_to(folder)): allowed[path.is_dir()] for path in written}


@pytest.mark.parametrize("name", MADE_BY)
def test_outputs_are_as_the_umask_says(name, outputs):
    assert_modes(outputs / name)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("vocab", []),
        ("predict", []),
        ("evaluate", []),
        ("extend-vocab", []),
        *(("features", ["--format", name]) for name in ("jsonl", "npz", "parquet")),
        *(
            pytest.param(command, flags, marks=pytest.mark.slow)
            for command, flags in [
                ("export", []),
                ("export", ["--to", "litert"]),
                ("finetune", ["--do_train", "--do_predict"]),
                ("tune", []),
            ]
        ),
    ],
)
def test_files_are_as_the_umask_says(command, flags, outputs, tmp_path, capsys):
    before = os.umask(UMASK)
    try:
        (tmp_path / "made").mkdir()
        argv = [*command_of(command, outputs, tmp_path / "made/output"), *flags]
        assert cli.main(argv) == 0, capsys.readouterr().err
    finally:
        os.umask(before)
    assert_modes(tmp_path / "made")
