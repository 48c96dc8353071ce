"""Test that every file and directory that a command writes obeys the umask."""

import os
import stat

import pytest

import beambert
from tests.conftest import with_slow
from tests.every_output import command_of
from tests.test_output_matrix import RESUMED

# Flags with which a command writes additional files, or files of another kind.
MORE = {
    "features": ("features", ["--format", "jsonl"]),
    "features npz": ("features", ["--format", "npz"]),
    "features parquet": ("features", ["--format", "parquet"]),
    "export litert": ("export", ["--to", "litert"]),
    "finetune predict": ("finetune", ["--do_train", "--do_predict"]),
}


# These commands run others of this list.
SLOW = ("finetune predict", "seeds", "tune")


@pytest.mark.parametrize(
    ("command", "umask"),
    with_slow(
        [*((command, 0o027) for command in sorted({*RESUMED, *MORE})), ("build", 0o022)],
        [(command, 0o027) for command in SLOW],
    ),
)
def test_files_and_directories_are_as_the_umask_says(command, umask, outputs, tmp_path, capsys):
    name, flags = MORE.get(command, (command, []))
    folder = tmp_path / "made"
    before = os.umask(umask)
    try:
        folder.mkdir()
        assert beambert.main([*command_of(name, outputs, folder / "output"), *flags]) == 0, capsys.readouterr().err
    finally:
        os.umask(before)
    written = [folder, *folder.rglob("*")]
    assert any(path.is_file() for path in written)
    modes = {str(path.relative_to(folder)): oct(stat.S_IMODE(path.stat().st_mode)) for path in written}
    allowed = {True: oct(0o777 & ~umask), False: oct(0o666 & ~umask)}
    assert modes == {str(path.relative_to(folder)): allowed[path.is_dir()] for path in written}
