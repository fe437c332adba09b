# For artifact evaluators: the suite with one CUDA stack, on a host with an NVIDIA driver and its container toolkit.
#
#   docker build -t nnzbench .                       CUDA 13 (T4 and later)
#   docker build -t nnzbench --build-arg CUDA=12 .   CUDA 12.9 (V100 too, and older drivers)
#   docker run --rm --gpus all -v "$PWD/results:/nnzbench/results" nnzbench make bench VENV=
#   docker run --rm nnzbench nnzbench best 4096x11008@0.9 --gpu h200     without a GPU
#
# The CUDA libraries are Python packages of the extra cuda12 or cuda13; the image needs only the host's driver.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim-bookworm

ARG CUDA=13
ARG EXTRAS=cuda${CUDA},vendor${CUDA},cluster

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes g++ git make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /nnzbench
COPY . .
RUN pip install --no-cache-dir --editable ".[${EXTRAS}]"

ENV PYTHON=python \
    NNZBENCH_CACHE=/nnzbench/build/cache \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
CMD ["nnzbench", "doctor"]
