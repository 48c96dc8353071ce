from apache_beam.internal.gcp import auth
from apache_beam.options.pipeline_options import PipelineOptions

from tests.deploy.dataflow.gcp_stand_in import stand_in


def test_a_stand_in_has_credentials_of_its_own(tmp_path, monkeypatch):
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        with stand_in(folder) as here:
            for variable, value in here.environment.items():
                monkeypatch.setenv(variable, value)
            credentials = auth.get_service_credentials(PipelineOptions()).get_google_auth_credentials()
            # The credentials renew an access token at this address after an hour.
            assert credentials._token_uri == f"{here.endpoint}/token"
