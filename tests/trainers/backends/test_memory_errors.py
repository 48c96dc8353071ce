import pytest

jax = pytest.importorskip("jax")

from beambert.trainers.backends.jax.distribution import exceeded_memory, memory_error  # noqa: E402

# Messages of the TPU compiler and of a GPU at run time.
TPU = (
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (41.12G) exceeds "
    "available HBM (15.75G)."
)
GPU = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."


@pytest.mark.parametrize(
    ("text", "sizes"), [(TPU, " (41.12GiB of temporary data, 15.75GiB available)"), (GPU, "")], ids=["TPU", "GPU"]
)
def test_message_names_the_flags(text, sizes):
    assert memory_error(jax.errors.JaxRuntimeError(text)) == (
        f"the step does not fit into the memory of a device{sizes}: raise --gradient_accumulation_steps, use "
        "--activation_checkpointing or lower --train_batch_size"
    )


def test_sizes_of_a_tpu_program_are_read():
    sizes = exceeded_memory(jax.errors.JaxRuntimeError(TPU))
    assert sizes == (round(41.12 * 2**30), round(15.75 * 2**30))
    megabytes = "RESOURCE_EXHAUSTED: temporaries (1.5T) exceeds available HBM (512.00M)."
    assert exceeded_memory(jax.errors.JaxRuntimeError(megabytes)) == (1.5 * 2**40, 2**29)
    assert exceeded_memory(jax.errors.JaxRuntimeError(GPU)) is None


def test_other_errors_have_no_message():
    assert memory_error(jax.errors.JaxRuntimeError("INTERNAL: RESOURCE_EXHAUSTED is not the status")) is None
