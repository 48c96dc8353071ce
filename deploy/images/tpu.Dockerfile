# syntax=docker/dockerfile:1
# Image for training on TPUs in Kubernetes (deploy/kubernetes/tpu-jobset.yaml): beambert and the packages that
# `beambert submit tpu` installs. Build from the repository's root; docs/guides/kubernetes.md has the commands.
#
# The base image has an exact tag. Pass an immutable digest of the registry with --build-arg.
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm

# The compiler of the tokenizer's native code is only in this stage.
FROM ${PYTHON_IMAGE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir setuptools==80.9.0 wheel==0.45.1
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE beambert.py ./
COPY beambert_common beambert_common
COPY tokenizer tokenizer
COPY bert_model bert_model
COPY pipelines pipelines
COPY trainers trainers
COPY deploy deploy
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${PYTHON_IMAGE}
COPY deploy/tpu/requirements.lock /tmp/requirements.lock
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.lock && rm /tmp/requirements.lock
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --no-deps /tmp/wheels/*.whl && rm -r /tmp/wheels && python -c "import tokenizer._native"
# The same values as in tpu_worker.py.
ENV PJRT_DEVICE=TPU \
    NEXT_PLUGGABLE_DEVICE_USE_C_API=true \
    TF_PLUGGABLE_DEVICE_LIBRARY_PATH=/usr/local/lib/python3.11/site-packages/libtpu/libtpu.so \
    TF_XLA_FLAGS="--tf_mlir_enable_mlir_bridge=true --tf_mlir_enable_convert_control_to_data_outputs_pass=true --tf_mlir_enable_merge_control_flow_pass=true" \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --create-home --uid 10001 beambert
USER 10001
ENTRYPOINT ["beambert"]
