"""Test output files of Beam's flags: a job description never replaces an existing file."""

import pytest

from deploy.dataflow import flags as dataflow_flags
from pipelines.errors import OutputFileError


@pytest.mark.parametrize("flag", ["--dataflow_job_file", "--template_location"])
@pytest.mark.parametrize("equals", [True, False])
def test_a_file_that_exists_is_refused(flag, equals, tmp_path):
    there = tmp_path / "job.json"
    there.write_text("{}")

    def refuse(path):
        flags = [f"{flag}={path}"] if equals else [flag, str(path)]
        dataflow_flags.refuse_existing_files(["--experiments=x", *flags, "--no_auth"], [("--input", str(there))])

    with pytest.raises(OutputFileError, match=f"{flag} .*job.json is the same file as --input"):
        refuse(there)
    there.with_name("other.json").write_text("{}")
    with pytest.raises(OutputFileError, match=r"exists; delete it, or give another"):
        refuse(there.with_name("other.json"))
    refuse(tmp_path / "new.json")
    refuse("gs://bucket/job.json")
