"""Packaging. A `setup.py`, because Dataflow ships the code to its workers with `--setup_file`.

The extras keep each machine slim: a data worker installs `[data]` and no TensorFlow, a training
host installs `[train]`, `[jax]`, `[tpu]` or `[cuda]` and no Beam. `requirements.lock` pins all of them together, with
hashes, except `[wikiextractor]` and the libraries of accelerators in `[tpu]` and `[cuda]`.
"""

from pathlib import Path

from setuptools import Extension, find_packages, setup

DATA = [
    "apache-beam==2.77.*",
    "google-crc32c>=1.5",
    "pyarrow>=18",
    "sentencex>=1.0.30",
    # Beam requires it too; 0.19 is the first version that reports the end of a frame.
    "zstandard>=0.19",
]
# python-stdnum has the license LGPL-2.1-or-later; it is imported, not changed.
CLEAN = ["ftfy>=6.2", "phonenumbers>=9", "py3langid>=0.4,<0.5", "python-stdnum>=2"]
# Web pages and archives: parser, text extraction and WARC reader, all of one project.
WEB = ["fastwarc>=2.0.1", "resiliparse>=2.0.1"]
# `--format array_record`. From 0.8.1 on, it has wheels for Python 3.13.
ARRAY_RECORD = ["array-record>=0.8.1"]
# Beam YAML, for examples/pretraining_data.yaml.
YAML = ["apache-beam[yaml]==2.77.*"]
# License AGPL-3.0, so only where it is chosen: neither the lock nor an image has it.
WIKIEXTRACTOR = ["wikiextractor==3.1.0"]
# gs:// for training and inference; [gcp] also has what Beam needs.
GCS = ["google-cloud-storage>=2.18", "requests>=2.31"]
GCP = ["apache-beam[gcp]==2.77.*", "google-cloud-storage>=2.18", "requests>=2.31"]
TRAIN = ["google-crc32c>=1.5", "keras>=3.12,<4", "orjson>=3.10", "tensorboard>=2.19", "tensorflow>=2.20,<2.22"]
# ml-dtypes has bfloat16, which numpy lacks; h5py reads models of KerasHub.
CONVERT = ["google-crc32c>=1.5", "h5py>=3.11", "ml-dtypes>=0.5", "safetensors>=0.4"]
# `beambert export --to onnx`; onnxruntime quantizes.
ONNX = ["onnx>=1.19", "onnxruntime>=1.22", "tf2onnx>=1.17"]
# `beambert export --tokenizer tensorflow_text`. Its minor version is that of TensorFlow.
TENSORFLOW_TEXT = ["tensorflow-text>=2.20,<2.22"]
# Training and inference with JAX, without TensorFlow: on the CPU, on Cloud TPU and on NVIDIA GPUs. From 0.8 on, JAX has
# `jax.shard_map` with check_vma, `jax_num_cpu_devices` and packages for CUDA 13.
JAX = ["google-crc32c>=1.5", "jax>=0.8", "keras>=3.12,<4", "orjson>=3.10"]
TPU = ["google-crc32c>=1.5", "jax[tpu]>=0.8", "keras>=3.12,<4", "orjson>=3.10"]
CUDA = ["google-crc32c>=1.5", "jax[cuda13]>=0.8", "keras>=3.12,<4", "orjson>=3.10"]
# What benchmarks and tests measure against, besides [tensorflow-text].
BENCH = ["tokenizers>=0.20"]
# `make docs`: the site from Markdown, with the API reference from docstrings. Sphinx 9.1 needs Python 3.12.
DOCS = ["furo>=2025.9", "myst-parser>=4", "sphinx>=8.2,<9.1", "sphinx-copybutton>=0.5.2"]
DEV = [
    "codespell>=2.4",
    "cryptography>=42",
    "gcp-storage-emulator>=2026.7",
    "grain>=0.2.12",
    "hypothesis>=6.100",
    "mypy>=1.11",
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
    # beambert/ has a link to each package of the repository's root.
    packages=find_packages(include=["beambert", "beambert.*"]),
    # Names and templates of Wikipedia's editions; abbreviations for sentence segmentation; templates of reports;
    # what `beambert submit tpu` installs on the machine.
    package_data={
        "beambert": ["py.typed"],
        "beambert.pipelines.formats.wikipedia": ["editions.toml", "templates.toml"],
        "beambert.pipelines.segmentation": ["abbreviations.toml"],
        "beambert.reporting": ["templates/*"],
        "beambert.deploy.tpu": ["*.lock"],
    },
    # Where there is no C compiler the tokenizer and the parser of examples run in Python, with the same results.
    ext_modules=[
        Extension(name, [f"{name.replace('.', '/')}.c"], extra_compile_args=["-O3"], optional=True)
        for name in ("beambert.tokenizer._native", "beambert.trainers.data._examples")
    ],
    install_requires=["jinja2>=3.1", "markupsafe>=2.1", "msgspec>=0.19", "numpy>=1.26", "rich>=13"],
    extras_require={
        "data": DATA,
        "clean": CLEAN,
        "web": WEB,
        "array-record": ARRAY_RECORD,
        "wikiextractor": WIKIEXTRACTOR,
        "gcp": GCP,
        "gcs": GCS,
        "yaml": YAML,
        "train": TRAIN,
        "convert": CONVERT,
        "onnx": ONNX,
        "tensorflow-text": TENSORFLOW_TEXT,
        "jax": JAX,
        "tpu": TPU,
        "cuda": CUDA,
        "bench": BENCH,
        "docs": DOCS,
        "dev": DEV,
    },
    entry_points={"console_scripts": ["beambert = beambert.cli:main"]},
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
)
