# Start with `make demo` and `make test`; both create .venv first.
VENV := .venv
BIN := $(VENV)/bin
# Input of the benchmarks.
DATA ?= ../shared/data

# The first interpreter that is 3.11, 3.12 or 3.13; `make PYTHON=/path/to/python setup` overrides.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)

.PHONY: help setup demo test test-all test-real-text test-parity test-readers test-tpu-compile report-tpu-compile check format docs bench-tokenizer bench-vocab bench-segmentation bench-pii bench-corpus bench-html bench-splitting bench-data bench-inference bench-input bench-train bench-scale bench-rehearsal bench-extremes bench-peers bench-near-duplicates bench-quality-filter bench-rules bench-quality reproduce fuzz chaos tutorials flink-up flink-down test-flink test-tpu test-dataflow lock clean

help:
	@echo "make demo    install into .venv, build data, pretrain a tiny BERT and fill masks (about 3 minutes)"
	@echo "make test    lint, type-check and run the tests of every change (6 to 11 minutes on 2 cores)"
	@echo "make test-all    run the slower tests, which make test leaves out (about 11 minutes on 2 cores)"
	@echo "make test-real-text   pretrain and fine-tune a mini on real text in $(DATA) (about 20 minutes)"
	@echo "make test-parity   compare the models with those of transformers (downloads 3 GB into .venv-parity)"
	@echo "make test-readers   read shards and descriptions with torch, grain, datasets and mlcroissant (downloads 4 GB into .venv-readers)"
	@echo "make test-tpu-compile   compile training steps for TPUs without a TPU (downloads 600 MB into .venv-tpu; 10 minutes)"
	@echo "make report-tpu-compile   memory and collectives of complete steps on six TPU topologies (about 40 minutes)"
	@echo "make fuzz    run all commands on 5,000 hostile inputs and flags; SEED=N selects others (about 15 minutes)"
	@echo "make tutorials   run every tutorial and compare its output (about 10 minutes)"
	@echo "make flink-up   start a Flink cluster on this machine (needs Java 17, downloads 290 MB once); make flink-down stops it"
	@echo "make chaos   kill processes, fill disks and change files, and compare the results (about 90 minutes; DISTURBANCES=100 for fewer)"
	@echo "make test-flink   run only the tests of Flink, on a real cluster and with 20 MB of text (several minutes)"
	@echo "make test-tpu   run only the tests of Cloud TPU, with training on stand-ins of its hosts (several minutes)"
	@echo "make test-dataflow   test beambert submit dataflow against a local stand-in with 20 MB of text (several minutes)"
	@echo "make setup   install into .venv"
	@echo "make check   run ruff, codespell, mypy and the checks of documents and import layers;  make format   format with ruff"
	@echo "make docs    build the documentation site in docs/_build (a broken link or anchor is an error)"
	@echo "make bench-tokenizer   tokenizer speed compared with tensorflow_text and Hugging Face, on $(DATA)"
	@echo "make bench-vocab   vocabulary learner compared with two others, on $(DATA) (about 8 minutes)"
	@echo "make bench-segmentation   sentence segmentation by language: golden rules, F1, speed"
	@echo "make bench-pii   precision, recall and speed of the rules for personal data, on $(DATA)"
	@echo "make bench-corpus   time and memory of both jobs on 60 and 600 MB, with one and two processes (about 6 minutes)"
	@echo "make bench-html   extraction of web pages compared with other libraries (about 2 minutes); ARGS='--crawl 500' builds a WARC file of 500 MB"
	@echo "make bench-splitting   one file of 500 MB read by one and two workers (about 15 minutes)"
	@echo "make bench-data   CPU time by stage and memory of pretraining examples (about 1 minute)"
	@echo "make bench-inference   speed of beambert features compared with transformers; MODEL=DIR names a BERT (about 10 minutes)"
	@echo "make bench-input   input pipeline compared with plain tf.data, in examples per second, on $(DATA) (about 4 minutes)"
	@echo "make bench-train   training step compared with KerasHub and Hugging Face (downloads 3 GB into .venv-bench; 25 minutes)"
	@echo "make bench-scale   growth with the corpus: text, shuffle, partitions, jobs, manifests; runs of 10 to 156 MB (about 8 minutes)"
	@echo "make bench-rehearsal   dumps of 2 and 12 GB through both jobs, killed and resumed (about 50 minutes; SIZES='2000' for less)"
	@echo "make bench-extremes   many small files, one huge document, short documents, many partitions (about 15 minutes)"
	@echo "make bench-peers PEERS=PYTHON BERT=FOLDER   the README's table: other projects on the same text (about 15 minutes)"
	@echo "make bench-near-duplicates   recall, precision, speed and growth of near-duplicate removal, 10^4 to 10^6 documents (about 10 minutes)"
	@echo "make bench-quality-filter   accuracy, calibration and speed of the quality model, on $(DATA)"
	@echo "make bench-rules   worth of each cleaning rule to a model, on $(DATA) (40 minutes, resumable)"
	@echo "make bench-quality   train a small BERT past the plateau on 10 million words, and score it on BLiMP, on $(DATA) (about 90 minutes, resumable)"
	@echo "make reproduce   fine-tune the released BERT-base and compare with published results, on $(DATA) (downloads 4 GB; 7 hours with bfloat16 instructions, 14 without, resumable)"
	@echo "make lock    resolve requirements.lock from setup.py (needs uv)"
	@echo "make clean   remove .venv, caches and the demo's output"

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.lock setup.py tokenizer/_native.c trainers/data/_examples.c
	@sh deploy/environment.sh --build $(VENV) "$(PYTHON)" --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -c "import beambert.tokenizer._native, beambert.trainers.data._examples" 2>/dev/null || echo "No C compiler found: the tokenizer and the parser of training examples run in Python, more slowly, with the same results."
	@touch $@
	@echo "Installed. Activate the environment: . $(VENV)/bin/activate"

demo: setup
	@$(BIN)/beambert demo

# Two processes; tests of one file share fixtures and run in one process. Three parts, each in new processes: compilers
# keep memory.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile
DATA_TESTS := tests --ignore tests/bert_model --ignore tests/trainers
MODEL_TESTS := tests/bert_model tests/trainers/backends
TRAINING_TESTS := tests/trainers --ignore tests/trainers/backends

# The tests of every change.
test: setup check
	$(PYTEST) -m "not slow" $(DATA_TESTS)
	$(PYTEST) -m "not slow" $(MODEL_TESTS)
	$(PYTEST) -m "not slow" $(TRAINING_TESTS)

# Only what `make test` leaves out. In the order of names, so that clusters and clouds, which take longest, come first.
test-all: setup
	$(PYTEST) --no-loadscope-reorder -m slow $(DATA_TESTS)
	$(PYTEST) --no-loadscope-reorder -m slow $(MODEL_TESTS)
	$(PYTEST) --no-loadscope-reorder -m slow $(TRAINING_TESTS)

# BEAMBERT_PRETRAINED=DIR reuses the pretrained model of an earlier run.
test-real-text: setup
	$(BIN)/python -m pytest -s tests/real_text

# CASES and SEED select the cases; a failed case is printed with its directory.
fuzz: setup
	$(BIN)/python -m tests.fuzz --cases $(or $(CASES),5000) --seed $(or $(SEED),1)

# Every disturbance of every command once; a sample with, for example, make chaos DISTURBANCES=100 SEED=2
chaos: setup
	$(BIN)/python -m tests.chaos $(if $(DISTURBANCES),--disturbances $(DISTURBANCES)) --seed $(or $(SEED),1)

# The tutorials as written; `make test-all` runs the shorter ones.
tutorials: setup
	$(BIN)/python -m tests.tutorials docs/tutorials/*.md

# One JobManager, two TaskManagers, their Python workers; downloads are kept in ~/.cache/beambert.
flink-up: setup
	$(BIN)/python -m tests.deploy.flink.local_cluster up

flink-down: setup
	$(BIN)/python -m tests.deploy.flink.local_cluster down

test-flink: setup
	BEAMBERT_REQUIRE_FLINK=1 BEAMBERT_REQUIRE_DATA=1 BEAMBERT_LARGE=1 $(BIN)/python -m pytest tests/deploy/flink

# With real training on stand-ins of TPU hosts.
test-tpu: setup
	BEAMBERT_LARGE=1 $(BIN)/python -m pytest tests/deploy/tpu

# With 20 MB of Wikipedia from bucket to bucket (several minutes).
test-dataflow: setup
	BEAMBERT_LARGE=1 $(BIN)/python -m pytest tests/deploy/dataflow tests/pipelines/io/test_cloud_storage.py

# A separate environment for PyTorch. Triton, which only a GPU needs, loads an LLVM that aborts next to TensorFlow's.
test-parity: .venv-parity/.installed
	.venv-parity/bin/python -m pytest -s tests/parity

.venv-parity/.installed: tests/parity/requirements.txt setup.py
	@sh deploy/environment.sh .venv-parity "$(PYTHON)" -r tests/parity/requirements.txt -e '.[data,train,convert,onnx]' pytest
	.venv-parity/bin/python -m pip uninstall --disable-pip-version-check --quiet --yes triton
	@touch $@

# Tests that are skipped in .venv, which has neither torch nor datasets nor mlcroissant.
test-readers: .venv-readers/.installed
	.venv-readers/bin/python -m pytest tests/test_read_shards_guide.py tests/pipelines/dataset_report/test_dataset_descriptions.py tests/pipelines/examples/test_array_record_files.py tests/pipelines/examples/test_shards.py

.venv-readers/.installed: tests/readers/requirements.txt setup.py
	@sh deploy/environment.sh .venv-readers "$(PYTHON)" -r tests/readers/requirements.txt -e '.[data,train,array-record]' pytest hypothesis
	@touch $@

# The TPU compiler needs no TPU. ARGS="--models base --steps train" selects rows of the report.
test-tpu-compile: .venv-tpu/.installed
	PYTHONPATH=. .venv-tpu/bin/python -m pytest tests/tpu_compile $(ARGS)

report-tpu-compile: .venv-tpu/.installed
	PYTHONPATH=. .venv-tpu/bin/python -m tests.tpu_compile.report $(ARGS)

.venv-tpu/.installed: tests/tpu_compile/requirements.txt setup.py
	@sh deploy/environment.sh .venv-tpu "$(PYTHON)" -r tests/tpu_compile/requirements.txt -e .
	@touch $@

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/python -m pytest -q --durations=0 --durations-min=5 tests/checks

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Strict: any warning is an error. Pages that are generated are written first.
docs: setup
	$(BIN)/python docs/generate_cli_reference.py
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build
	@echo "docs/_build/index.html"

# The other libraries log to stderr.
bench-tokenizer: setup
	@$(BIN)/python benchmarks/tokenization.py $(DATA) 2>/dev/null || \
		$(BIN)/python benchmarks/tokenization.py $(DATA)

bench-vocab: setup
	$(BIN)/python benchmarks/vocabulary.py $(DATA) $(ARGS)

# With treebanks of Universal Dependencies: make bench-segmentation TREEBANKS='*.conllu'
bench-segmentation: setup
	$(BIN)/python benchmarks/segmentation.py $(DATA) $(TREEBANKS)

bench-pii: setup
	$(BIN)/python benchmarks/personal_data.py $(DATA) $(ARGS)

bench-corpus: setup
	$(BIN)/python benchmarks/corpus.py $(DATA)

# pip install trafilatura readability-lxml jusText warcio adds the libraries to compare with.
bench-html: setup
	PYTHONPATH=. $(BIN)/python -u benchmarks/web_pages.py $(DATA) $(ARGS)

bench-splitting: setup
	PYTHONPATH=. $(BIN)/python benchmarks/splitting.py $(DATA)

bench-data: setup
	PYTHONPATH=. $(BIN)/python benchmarks/pretraining_data.py $(DATA)

# MODEL is a model in any format, such as the released base; ARGS="--precisions bfloat16 --count 512".
bench-inference: .venv-parity/.installed
	PYTHONPATH=. .venv-parity/bin/python benchmarks/inference.py $(DATA) $(MODEL) $(ARGS)

bench-input: setup
	PYTHONPATH=. $(BIN)/python benchmarks/input.py $(DATA)

bench-scale: setup
	PYTHONPATH=. $(BIN)/python -u benchmarks/scale.py $(DATA)

bench-rehearsal: setup
	PYTHONPATH=. $(BIN)/python -u benchmarks/rehearsal.py $(DATA) $(or $(RESULTS),rehearsal) $(or $(SIZES),2000 12000)

bench-extremes: setup
	PYTHONPATH=. $(BIN)/python -u benchmarks/extremes.py $(DATA) $(ARGS)

bench-peers: setup
	BERT=$(BERT) PYTHONPATH=. $(BIN)/python -u benchmarks/peers.py $(DATA) $(PEERS)

# PEERS=PYTHON, an interpreter with datatrove and text-dedup, compares with both; COUNTS="10000" for fewer documents.
bench-near-duplicates: setup
	PEERS=$(PEERS) $(BIN)/python benchmarks/near_duplicates.py $(DATA) $(COUNTS)

bench-quality-filter: setup
	$(BIN)/python benchmarks/quality_filter.py $(DATA)

bench-rules: setup
	$(BIN)/python -m benchmarks.cleaning_rules $(DATA) $(or $(RESULTS),rules) $(ARGS)

# ARGS="--fraction 0.01" trains for a hundredth of the steps.
bench-quality: setup
	$(BIN)/python -m benchmarks.small_bert $(DATA) $(or $(RESULTS),quality) $(ARGS)

# PARTS="fill-mask-uncased cola-bfloat16" selects parts. The environment of test-parity has PyTorch.
reproduce: .venv-parity/.installed
	.venv-parity/bin/python -m benchmarks.reproduction $(DATA) $(or $(RESULTS),reproduction) $(if $(PARTS),--parts $(PARTS))

# MODELS="mini small base"; PRECISION=bfloat16 where the CPU has it.
bench-train: .venv-bench/.installed
	PYTHONPATH=. .venv-bench/bin/python -u benchmarks/training.py --precision $(or $(PRECISION),float32) $(or $(MODELS),mini small base)

.venv-bench/.installed: benchmarks/requirements.txt setup.py
	@sh deploy/environment.sh .venv-bench "$(PYTHON)" -r benchmarks/requirements.txt -e '.[train]'
	@touch $@

lock:
	uv pip compile setup.py $(addprefix --extra ,data clean web array-record gcp yaml train convert onnx tensorflow-text jax bench docs dev) --universal --python-version 3.11 --generate-hashes \
		--custom-compile-command "make lock" --output-file requirements.lock --quiet
	uv pip compile setup.py --extra data --extra clean --extra web --extra array-record --extra gcp --constraint requirements.lock --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" --output-file deploy/images/requirements.txt --quiet
	uv pip compile setup.py deploy/tpu/requirements.in --extra train --extra convert --extra gcs --override deploy/tpu/overrides.txt \
		--universal --python-version 3.11 --generate-hashes \
		--custom-compile-command "make lock" --output-file deploy/tpu/requirements.lock --quiet
	uv pip compile setup.py deploy/tpu/jax.in --extra gcs --universal --python-version 3.11 --generate-hashes \
		--custom-compile-command "make lock" --output-file deploy/tpu/requirements-jax.lock --quiet
	uv pip compile deploy/tpu/installer.in --python-version 3.10 --python-platform x86_64-manylinux_2_28 --generate-hashes \
		--custom-compile-command "make lock" --output-file deploy/tpu/installer.lock --quiet

clean:
	rm -rf $(VENV) docs/_build .venv-parity .venv-readers .venv-bench .venv-tpu tokenizer/*.so .mypy_cache .pytest_cache .ruff_cache build *.egg-info beambert-demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
