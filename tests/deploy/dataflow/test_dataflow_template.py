"""Test the flex templates' parameters against the commands' flags and Google's own message types, and the images."""

import argparse
import re

import pytest
from google.cloud import dataflow
from google.protobuf import json_format

from beambert.deploy.dataflow import launcher, template
from beambert.deploy.dataflow.launcher import to_flags
from beambert.deploy.dataflow.template import COMMANDS, container_spec, metadata, parameters_of
from beambert.pipelines.errors import SubmitError
from tests.conftest import ROOT

IMAGES = ROOT / "deploy" / "images"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_stored_file_is_what_the_flags_say(command):
    stored = (template.FOLDER / f"{command}.json").read_text(encoding="utf-8")
    assert stored == template.to_json(metadata(command)), "run python -m beambert.deploy.dataflow.template"


@pytest.mark.parametrize("command", COMMANDS)
def test_google_reads_the_specification(command):
    """Parse field names and values strictly, with the message types of Google's client."""
    spec = container_spec(command, "us-docker.pkg.dev/p/r/beambert-corpus:0.1.0", "us-docker.pkg.dev/p/r/w:0.1.0")
    read = json_format.ParseDict(spec, dataflow.ContainerSpec.pb(dataflow.ContainerSpec()))
    assert len(read.metadata.parameters) == len(parameters_of(command))
    assert read.sdk_info.language == dataflow.SDKInfo.Language.PYTHON
    for parameter in read.metadata.parameters:
        assert parameter.help_text
        assert parameter.regexes


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_a_parameter_whose_rule_takes_its_default(command):
    parser = argparse.ArgumentParser()
    COMMANDS[command].add_arguments(parser)
    names = {name for action in parser._actions for name in action.option_strings}
    flags = names - {"-h", "--help", "--ignore_memory_estimate"}
    parameters = {f"--{each['name']}": each for each in metadata(command)["parameters"]}
    assert parameters.keys() == flags
    for name, parameter in parameters.items():
        if "defaultValue" in parameter:
            assert re.fullmatch(parameter["regexes"][0], parameter["defaultValue"]), name


# Valid and invalid values for each kind of flag.
VALUES = {
    "input": (
        ["gs://bucket/a.txt", "gs://bucket/*.gz gs://other/b"],
        ["a.txt", "gs://bucket/a.txt b", "s3://bucket/a"],
    ),
    "output": (["gs://bucket/data"], ["data", "gs://Bucket/data", "gs://bucket/a b"]),
    "vocab_size": (["30000"], ["0", "-1", "1e4", "many"]),
    "num_unused": (["0", "99"], ["-1"]),
    "validation_fraction": (["0.02", "0", ".5", "1e-3"], ["-0.1", "2 %", "half"]),
    "input_weights": (["1", "0.5 2"], ["0.5,2"]),
    "segmenter": (["rules", "lines"], ["Rules", "rulesx"]),
    "do_lower_case": (["true", "false"], ["yes", "True"]),
    "fix_mojibake": (["true", "false"], [""]),
    "language": (["en", "pt-BR", "simple"], ["english language"]),
    "encoding": (["latin-1", "utf-8"], ["latin 1"]),
    "skip_rules": (["repeated_lines,digits"], ["a, b"]),
}


@pytest.mark.parametrize("name", VALUES)
def test_rules_take_what_the_command_takes_and_nothing_else(name):
    (parameter,) = [each for each in metadata("corpus")["parameters"] if each["name"] == name]
    (rule,) = parameter["regexes"]
    good, bad = VALUES[name]
    assert [value for value in good if not re.fullmatch(rule, value)] == []
    assert [value for value in bad if re.fullmatch(rule, value)] == []


def test_parameters_become_flags():
    """Check that parameters at their defaults give the same arguments as omitted flags."""
    parser = argparse.ArgumentParser()
    COMMANDS["corpus"].add_arguments(parser)
    defaults = [f"--{p['name']}={p['defaultValue']}" for p in metadata("corpus")["parameters"] if "defaultValue" in p]
    given = ["--input=gs://bucket/a gs://bucket/b", "--output=gs://bucket/o"]
    flags = to_flags([*given, *defaults, "--job_name=x"], parameters_of("corpus"))
    args, rest = parser.parse_known_args(flags)
    plain = parser.parse_args(["--input", "gs://bucket/a", "gs://bucket/b", "--output", "gs://bucket/o"])
    assert args == plain
    assert rest == ["--job_name=x"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["vocab.txt", "notes/todo.txt"])
def test_an_output_with_any_other_file_is_refused(tmp_path, command, name):
    launcher._require_empty_output(command, "gs://bucket/corpus", str(tmp_path))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(SubmitError) as caught:
        launcher._require_empty_output(command, "gs://bucket/corpus", str(tmp_path))
    assert str(caught.value) == (
        f"output {tmp_path} contains {name.partition('/')[0]}: use an empty output, because a template does not resume"
    )


def test_the_output_of_pretraining_data_may_be_its_corpus(tmp_path):
    for name in ("corpus.json", "vocab.txt", "corpus/a.parquet", "rejected/a.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    launcher._require_empty_output("pretraining-data", f"{tmp_path}/", str(tmp_path))
    (tmp_path / "report.html").touch()
    with pytest.raises(SubmitError, match=r"contains report\.html: use an empty output"):
        launcher._require_empty_output("pretraining-data", str(tmp_path), str(tmp_path))


def pins(path) -> set[tuple[str, str]]:
    return set(re.findall(r"^([a-z0-9._-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_image_has_what_the_lock_has_and_no_tensorflow():
    """Compare the pinned packages; `make lock` corrects a difference."""
    image, lock = pins(IMAGES / "requirements.txt"), pins(ROOT / "requirements.lock")
    assert image <= lock
    names = {name for name, _ in image}
    assert {"apache-beam", "google-cloud-storage", "sentencex", "ftfy", "numpy", "pyarrow"} <= names
    assert not {"tensorflow", "keras", "pytest"} & names
    text = (IMAGES / "requirements.txt").read_text(encoding="utf-8")
    assert text.count("--hash=sha256:") >= len(image)


def test_the_images_are_pinned_and_run_as_unprivileged_users():
    text = (IMAGES / "Dockerfile").read_text(encoding="utf-8")
    bases = re.findall(r"^ARG \w+_IMAGE=(\S+)$", text, re.MULTILINE)
    assert len(bases) == 3
    for base in bases:
        # A full version or a digest.
        assert re.search(r":\d+(\.\d+\.\d+|\d+_RC\d+)|@sha256:", base), base
    beam = dict(pins(IMAGES / "requirements.txt"))["apache-beam"]
    assert f"apache/beam_python3.11_sdk:{beam}" in text
    # The last USER instruction of each published image, or else that of its base, is effective.
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    users = {}
    for stage in stages:
        base, name = re.match(r"(\S+)(?: AS (\S+))?", stage).groups()
        users[name] = (re.findall(r"^USER (\S+)", stage, re.MULTILINE) or [users.get(base, "0")])[-1]
    assert {users[name] for name in ("worker", "corpus", "pretraining-data", None)} == {"10001"}
    # Flink's own image has this user ID too, since both images write to one volume.
    assert users["flink"] == "9999"


def test_the_ignore_file_excludes_nothing_that_the_images_copy():
    text, ignored = ((IMAGES / name).read_text() for name in ("Dockerfile", "Dockerfile.dockerignore"))
    text = text.replace("\\\n", " ")
    packages = set(re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE))
    assert "deploy" in packages
    assert [name for name in packages if f"!{name}\n" not in ignored] == []


def test_cloud_build_makes_every_image():
    text = (IMAGES / "cloudbuild.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"--target=([a-z-]+)", text)) == {"worker", *COMMANDS}
