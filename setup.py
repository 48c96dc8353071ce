"""Packaging. A `setup.py`, because Dataflow ships the code to its workers with `--setup_file`.

The extras keep each machine slim: a data worker installs `[data]` and no TensorFlow, a training
host installs `[train]` and no Beam. `requirements.lock` pins all of them together, with hashes.
"""

from pathlib import Path

from setuptools import Extension, find_packages, setup

DATA = [
    "apache-beam==2.77.*",
    "google-crc32c>=1.5",
    "pyarrow>=18",
    "sentencex>=1.0.30",
]
CLEAN = ["ftfy>=6.2", "py3langid>=0.4,<0.5"]
GCP = ["apache-beam[gcp]==2.77.*", "google-cloud-storage>=2.18", "requests>=2.31"]
TRAIN = ["google-crc32c>=1.5", "keras>=3.12,<4", "orjson>=3.10", "tensorboard>=2.19", "tensorflow>=2.20,<2.22"]
CONVERT = ["safetensors>=0.4"]
# `beambert export --to onnx`.
ONNX = ["onnx>=1.19", "tf2onnx>=1.17"]
# The model under the JAX backend of Keras, on the CPU; for an accelerator install the jax of its maker.
JAX = ["jax>=0.5"]
# What benchmarks and tests measure against.
BENCH = ["mwparserfromhell>=0.6", "tensorflow-text>=2.20,<2.22", "tokenizers>=0.20"]
# `make docs`: the site from Markdown, with the API reference from docstrings. Sphinx 9.1 needs Python 3.12.
DOCS = ["furo>=2025.9", "myst-parser>=4", "sphinx>=8.2,<9.1", "sphinx-copybutton>=0.5.2"]
DEV = [
    "codespell>=2.4",
    "cryptography>=42",
    "gcp-storage-emulator>=2026.7",
    "hypothesis>=6.100",
    "mypy>=1.11",
    "onnxruntime>=1.22",
    "pytest>=8",
    "pytest-xdist>=3.6",
    "ruff>=0.6",
    "setuptools>=77",
    "types-setuptools",
]

setup(
    name="beambert",
    version="0.1.0",
    description="From raw text to a pretrained BERT: Apache Beam data pipelines and TensorFlow trainers",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",
    packages=find_packages(
        include=[
            f"{package}{suffix}"
            for package in ("beambert_common", "tokenizer", "bert_model", "pipelines", "trainers", "deploy")
            for suffix in ("", ".*")
        ]
    ),
    py_modules=["beambert"],
    # The prices that `beambert plan` counts with; what `beambert submit tpu` installs on the machine.
    package_data={"deploy.plan": ["prices.toml"], "deploy.tpu": ["installer.lock", "requirements.lock"]},
    # Where there is no C compiler the tokenizer runs in Python, with the same results.
    ext_modules=[Extension("tokenizer._native", ["tokenizer/_native.c"], extra_compile_args=["-O3"], optional=True)],
    install_requires=["msgspec>=0.19", "numpy>=1.26", "rich>=13"],
    extras_require={
        "data": DATA,
        "clean": CLEAN,
        "gcp": GCP,
        "train": TRAIN,
        "convert": CONVERT,
        "onnx": ONNX,
        "jax": JAX,
        "bench": BENCH,
        "docs": DOCS,
        "dev": DEV,
    },
    entry_points={"console_scripts": ["beambert = beambert:main"]},
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
)
