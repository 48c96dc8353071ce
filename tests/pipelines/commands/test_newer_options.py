"""Tests of outputs recorded before an option existed: they equal outputs with the default of that option."""

import json
from pathlib import Path

import beambert


def test_options_missing_in_an_older_manifest_do_not_differ(tmp_path, capsys):
    command = ["build", "--input", str(tmp_path / "in.txt"), "--input_format", "sentences", "--vocab_size", "40"]
    command += ["--output", str(tmp_path / "data"), "--validation_fraction", "0"]
    (tmp_path / "in.txt").write_text("\n".join(f"Day {n} was wet.\nThe river rose {n} feet.\n" for n in range(9)))
    assert beambert.main(command) == 0
    _forget(tmp_path / "data" / "corpus.json", "near_duplicates", ("read", "document_unit"))
    _forget(tmp_path / "data" / "dataset.json", "ragged")
    assert beambert.main([*command, "--compression", "gzip"]) == 1
    error = capsys.readouterr().err
    assert "compression: 'none' recorded, 'gzip' requested" in error
    assert "ragged" not in error


def test_a_non_default_value_of_a_newer_option_is_another_corpus(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("\n".join(f"Day {n} was wet.\nThe river rose {n} feet.\n" for n in range(9)))
    command = ["corpus", "--input", str(tmp_path / "in.txt"), "--input_format", "sentences", "--vocab_size", "40"]
    command += ["--output", str(tmp_path / "data"), "--validation_fraction", "0"]
    assert beambert.main(command) == 0
    _forget(tmp_path / "data" / "corpus.json", "near_duplicates", ("read", "wikitext_extractor"))
    assert beambert.main(command) == 0
    assert beambert.main([*command, "--drop_near_duplicates"]) == 1
    assert "near_duplicates: False recorded, True requested" in capsys.readouterr().err


def _forget(manifest: Path, *names: str | tuple[str, str]) -> None:
    """Remove options from a manifest, as in one that was written before they existed."""
    content = json.loads(manifest.read_text())
    for name in names:
        if isinstance(name, tuple):
            del content["options"][name[0]][name[1]]
        else:
            del content["options"][name]
    manifest.write_text(json.dumps(content))
