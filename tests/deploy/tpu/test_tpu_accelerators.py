"""Test TPU types against tables of Google's documentation and of xpk, and the errors for types that do not exist."""

import pytest

from beambert.deploy.tpu.accelerators import CLOUD_TPU, GKE, tpu_type
from beambert.pipelines.errors import SubmitError

# Type, hosts, chips, topology. From the pages "TPU v4", "TPU v5e", "TPU v5p", "TPU v6e" of cloud.google.com/tpu/docs.
DOCUMENTED = [
    ("v4-8", 1, 4, "2x2x1"),
    ("v4-32", 4, 16, "2x2x4"),
    ("v5litepod-1", 1, 1, "1x1"),
    ("v5litepod-4", 1, 4, "2x2"),
    ("v5litepod-8", 1, 8, "2x4"),
    ("v5litepod-16", 4, 16, "4x4"),
    ("v5litepod-256", 64, 256, "16x16"),
    ("v5p-8", 1, 4, "2x2x1"),
    ("v5p-16", 2, 8, "2x2x2"),
    ("v5p-64", 8, 32, "2x4x4"),
    ("v5p-128", 16, 64, "4x4x4"),
    ("v5p-256", 32, 128, "4x4x8"),
    ("v5p-512", 64, 256, "4x8x8"),
    ("v5p-2048", 256, 1024, "8x8x16"),
    ("v5p-8192", 1024, 4096, "16x16x16"),
    ("v5p-12288", 1536, 6144, "16x16x24"),
    ("v6e-8", 1, 8, "2x4"),
    ("v6e-16", 4, 16, "4x4"),
    ("v6e-128", 32, 128, "8x16"),
]
# Type, hosts, topology, node label, machine type. From system_characteristics.py of xpk.
XPK = [
    ("v5litepod-32", 8, "4x8", "tpu-v5-lite-podslice", "ct5lp-hightpu-4t"),
    ("v5p-384", 48, "4x4x12", "tpu-v5p-slice", "ct5p-hightpu-4t"),
    ("v5p-1536", 192, "8x8x12", "tpu-v5p-slice", "ct5p-hightpu-4t"),
    ("v6e-1", 1, "1x1", "tpu-v6e-slice", "ct6e-standard-1t"),
    ("v6e-256", 64, "16x16", "tpu-v6e-slice", "ct6e-standard-4t"),
    ("tpu7x-8", 1, "2x2x1", "tpu7x", "tpu7x-standard-4t"),
    ("tpu7x-128", 16, "4x4x4", "tpu7x", "tpu7x-standard-4t"),
    ("tpu7x-9216", 1152, "12x16x24", "tpu7x", "tpu7x-standard-4t"),
]


@pytest.mark.parametrize(("name", "hosts", "chips", "topology"), DOCUMENTED)
def test_types_have_the_hosts_and_chips_of_the_documentation(name, hosts, chips, topology):
    assert tpu_type(name)[2:] == (chips, hosts, topology)


@pytest.mark.parametrize(("name", "hosts", "topology", "label", "machine"), XPK)
def test_nodes_have_the_labels_and_machines_of_xpk(name, hosts, topology, label, machine):
    found = tpu_type(name, GKE)
    assert (found.hosts, found.topology, found.generation.gke_accelerator, found.machine_type) == (
        hosts,
        topology,
        label,
        machine,
    )
    # The sides of the topology multiply to the number of chips.
    product = 1
    for side in topology.split("x"):
        product *= int(side)
    assert found.chips == product == found.hosts * found.chips_per_host


@pytest.mark.parametrize(
    ("name", "engine", "message"),
    [
        ("v5e-16", CLOUD_TPU, "use v5litepod-16"),
        ("h100", CLOUD_TPU, "unknown --accelerator_type h100: use one of v2-N"),
        ("v6e-x", CLOUD_TPU, "unknown --accelerator_type v6e-x"),
        ("v6e-0", CLOUD_TPU, "unknown --accelerator_type v6e-0"),
        ("v6e-12", CLOUD_TPU, "does not exist: use one of v6e-4, v6e-8, v6e-16"),
        ("v6e-512", CLOUD_TPU, "does not exist: use one of v6e-64, v6e-128, v6e-256"),
        ("v5p-4", CLOUD_TPU, "does not exist: use one of v5p-8, v5p-16"),
        ("v5p-17", CLOUD_TPU, "does not exist"),
        ("v3-32", CLOUD_TPU, "use v3-8"),
        ("tpu7x-8", CLOUD_TPU, "not available with --engine cloud-tpu: use --engine gke"),
        ("v2-8", GKE, "not available with --engine gke: use --engine cloud-tpu"),
    ],
)
def test_the_error_for_an_invalid_type_is_one_line_with_valid_types(name, engine, message):
    with pytest.raises(SubmitError) as caught:
        tpu_type(name, engine)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
