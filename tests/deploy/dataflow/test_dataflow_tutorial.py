"""Test the dry run of the tutorial `laptop-to-dataflow.md` with a bucket of the stand-in for Google Cloud."""

import pytest

from tests.conftest import ROOT
from tests.deploy.dataflow.gcp_stand_in import stand_in
from tests.tutorials import blocks, run_page

TUTORIAL = ROOT / "docs" / "tutorials" / "laptop-to-dataflow.md"


@pytest.mark.slow
def test_dry_run_prints_what_the_tutorial_shows(tmp_path):
    steps = list(blocks(TUTORIAL.read_text(encoding="utf-8")))
    texts = next(block for block in steps if block.language == "python")
    position = next(n for n, block in enumerate(steps) if "not run" in block.directives and "--dry_run" in block.text)
    command, output = steps[position : position + 2]
    page, directory = tmp_path / "page.md", tmp_path / "work"
    page.write_text(f"```python\n{texts.text}\n```\n")
    run_page(page, directory)
    (tmp_path / "cloud").mkdir()
    with stand_in(tmp_path / "cloud") as cloud, pytest.MonkeyPatch.context() as patch:
        for name, value in cloud.environment.items():
            patch.setenv(name, value)
        cloud.make_bucket("my-bucket")
        for path in sorted((directory / "texts").iterdir()):
            cloud.bucket("my-bucket").blob(f"texts/{path.name}").upload_from_filename(path)
        page.write_text(f"```sh\n{command.text}\n```\n\n```text\n{output.text}\n```\n")
        run_page(page, tmp_path / "dry-run")
        assert not cloud.jobs
        assert {name.split("/")[0] for name in cloud.contents("", "my-bucket")} == {"texts"}
