"""The configuration of `beambert submit dataflow`."""

from dataclasses import dataclass

from beambert.common.command_line.flags import FlagConfig
from beambert.pipelines.errors import SubmitError


@dataclass(frozen=True, kw_only=True)
class DataflowConfig(FlagConfig):
    """Options of `beambert submit dataflow`; the help of each flag describes its field.

    None stands for an option without a fixed default that was not given.
    """

    project: str
    region: str
    temp_location: str
    staging_location: str | None = None
    job_name: str | None = None
    labels: tuple[str, ...] = ()

    sdk_container_image: str | None = None
    setup_file: str | None = None

    worker_machine_type: str | None = None
    num_workers: int | None = None
    max_num_workers: int = 20
    autoscaling_algorithm: str = "THROUGHPUT_BASED"
    disk_size_gb: int = 30
    service_account_email: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    use_public_ips: bool = False

    dry_run: bool = False
    dataflow_endpoint: str | None = None
    no_auth: bool = False

    def __post_init__(self) -> None:
        """Validate the numbers of workers.

        Raises:
            SubmitError: the worker options contradict each other.
        """
        if self.num_workers and self.num_workers > self.max_num_workers:
            raise SubmitError(
                f"invalid --num_workers {self.num_workers}: must be at most --max_num_workers {self.max_num_workers}"
            )
        if self.autoscaling_algorithm == "NONE" and not self.num_workers:
            raise SubmitError("--autoscaling_algorithm NONE requires --num_workers, the fixed number of workers")
