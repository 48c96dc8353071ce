# syntax=docker/dockerfile:1
# Image for training on TPUs in Kubernetes (beambert submit tpu --engine gke): beambert with JAX and the packages that
# TPU VMs get. Build from the repository's root; docs/guides/gke-tpu.md has the commands.
#
# The base image has an exact tag. Pass an immutable digest of the registry with --build-arg.
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm

# The compiler of the tokenizer's native code is only in this stage.
FROM ${PYTHON_IMAGE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY deploy/images/build.txt /tmp/build.txt
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/build.txt
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY beambert beambert
COPY tokenizer tokenizer
COPY bert_model bert_model
COPY pipelines pipelines
COPY trainers trainers
COPY adaptation adaptation
COPY reporting reporting
COPY deploy deploy
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${PYTHON_IMAGE}
COPY deploy/tpu/requirements-jax.lock /tmp/requirements.lock
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.lock && rm /tmp/requirements.lock
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --no-deps /tmp/wheels/*.whl && rm -r /tmp/wheels && python -c "import beambert.tokenizer._native"
# JAX_PLATFORMS has the value of deploy/tpu/worker.py.
ENV JAX_PLATFORMS=tpu,cpu \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --create-home --uid 10001 beambert
USER 10001
ENTRYPOINT ["beambert"]
