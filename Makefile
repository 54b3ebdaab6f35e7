# One command per task; CMake does the work, see docs/install.md.
BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
# Further arguments: make build CMAKE_FLAGS=-DCMAKE_CXX_COMPILER=clang++, make test CTEST_FLAGS='-R unit/config'
CMAKE_FLAGS ?=
CTEST_FLAGS ?=
FUZZ_SECONDS ?= 600
HOURS ?= 1
PTX_REPORT ?=
# For make test-aarch64: where tools/make_arm64_root has put Debian's arm64 packages.
ARM64_ROOT ?= $(CURDIR)/build/arm64-root
# For make bench-peers: checkouts, yes for GPT-2 in PyTorch, the Python that has PyTorch, the precision.
LLM_C ?=
TTT_LM_PYTORCH ?=
PYTORCH ?=
PYTHON ?= python3
PRECISION ?= bf16

CONFIGURE = cmake -S . -B $(BUILD) $(call GENERATOR,$(BUILD))
ALL_GPUS  = -DLOCKSTEP_CUDA_ARCHITECTURES=ALL
# make programs skips the CUDA kernels if there is no GPU; an existing build folder keeps its configuration.
PROGRAMS_CUDA = $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DLOCKSTEP_CUDA_WITHOUT_GPU=OFF)

GENERATOR = $(if $(shell command -v ninja),$(if $(wildcard $(1)/CMakeCache.txt),,-G Ninja))
CTEST      = ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS) --no-tests=error

.DEFAULT_GOAL := help
# Targets share build folders and cores; JOBS is for what each of them does.
.NOTPARALLEL:
.PHONY: help dependencies programs build debug asan quality quality-long test test-grids test-long test-hours test-openmpi test-aarch64 fuzz soak test-gpu cuda-report ptx-report demo demo-scaling bench bench-peers format tidy install dist clean

help:
	@echo 'make programs     install missing packages, build $(BUILD)/bin/lockstep and lockstep-analyze (without a GPU, for the CPU only)'
	@echo 'make build        install missing packages, build $(BUILD)/bin/lockstep and the tests'
	@echo 'make test         build, run the quick tests'
	@echo 'make test-grids   build, train in every possible layout of up to 8 ranks (hours)'
	@echo 'make test-long    make test, lost nodes, job scripts under a real Slurm, more layouts, make fuzz (about two hours)'
	@echo 'make test-hours   every fault of every file, every moment of a lost node, mutations of the GPU kernels (hours)'
	@echo 'make test-openmpi build build/openmpi with Open MPI, run its quick tests (docs/install.md)'
	@echo 'make test-aarch64 build build/aarch64 for 64-bit Arm, run its quick tests in qemu (hours; docs/install.md)'
	@echo 'make fuzz         fuzz every reader of files for $(FUZZ_SECONDS) s in all, with libFuzzer and sanitizers (needs clang)'
	@echo 'make soak         HOURS=$(HOURS): train under kills, signals, full disks and damage for hours; each run must end as if left alone'
	@echo 'make test-gpu     build, run the tests that need a GPU, one at a time'
	@echo 'make cuda-report  report registers, spills and occupancy of all CUDA kernels; fails on unexpected spills'
	@echo 'make ptx-report   count what the kernels execute at the sizes of real models (PTX_REPORT=--format=json)'
	@echo 'make demo         build the programs, pack text, train on 2 ranks, stop, resume, generate, analyse'
	@echo 'make demo-scaling build the programs, train on 1, 2 and 4 ranks, print scaling tables, write a report'
	@echo 'make debug        build build/debug without optimisation'
	@echo 'make asan         build build/asan with AddressSanitizer and UndefinedBehaviorSanitizer, run the quick tests'
	@echo 'make bench        build and run the benchmarks: kernels, analysis, training steps'
	@echo 'make bench-peers  LLM_C=DIR TTT_LM_PYTORCH=DIR PYTORCH=yes: compare training with peers (docs/benchmarks.md)'
	@echo 'make quality      TEXT=FILE: train small models on tinyshakespeare with 5 seeds, print a table (docs/quality.md)'
	@echo 'make quality-long MINUTES=120: models of 10 M parameters, attention and TTT, two lengths; hours, resumable (docs/quality.md)'
	@echo 'make format       format the sources with clang-format 14'
	@echo 'make tidy         check the sources with clang-tidy 14'
	@echo 'make install      build build/install without tests and fault injection, install to PREFIX=$(PREFIX)'
	@echo 'make dist         write $(BUILD)/lockstep-VERSION.tar.gz and its .sha256 from the commit that is checked out'
	@echo 'make clean        remove $(BUILD), including the demo'
	@echo 'Parallel jobs: JOBS=$(JOBS).'

# What only the tests need is not asked for where nothing but an installation is made.
dependencies:
	@tools/install_dependencies $(if $(filter-out install,$(or $(MAKECMDGOALS),help)),,--programs)

build: dependencies
	$(CONFIGURE) -DLOCKSTEP_CUDA_WITHOUT_GPU=ON $(CMAKE_FLAGS)
	cmake --build $(BUILD) --parallel $(JOBS)

debug asan: dependencies
	cmake --preset $@ $(call GENERATOR,build/$@) $(CMAKE_FLAGS)
	cmake --build --preset $@ --parallel $(JOBS)
	$(if $(filter asan,$@),ctest --preset asan --parallel $(JOBS) --no-tests=error $(CTEST_FLAGS))

test: build
	$(CTEST) --label-exclude 'long|gpu' $(CTEST_FLAGS)

test-long: build
	$(CTEST) --label-exclude 'gpu|hours' $(CTEST_FLAGS)
	$(MAKE) fuzz

test-hours: build
	$(CTEST) --label-regex hours $(CTEST_FLAGS)

# Goes on from what earlier calls have learnt, in build/fuzz.
fuzz: dependencies
	@command -v clang++ >/dev/null || { echo 'make fuzz: clang++ is not found; install clang 14 (Debian: clang libomp-14-dev)' >&2; exit 2; }
	cmake --preset fuzz $(call GENERATOR,build/fuzz) $(CMAKE_FLAGS)
	cmake --build --preset fuzz --parallel $(JOBS)
	tests/fuzz/run build/fuzz $(FUZZ_SECONDS)

# Half of the time plain launches, half jobs under a private Slurm where one is installed. Goes on with new seeds after
# earlier calls, which build/soak.tsv and build/soak-slurm.tsv list.
soak: build
	@status=0; set -x; \
	LOCKSTEP_SOAK_SECONDS=$$(awk 'BEGIN { print 1800 * $(HOURS) }') LOCKSTEP_SOAK_RECORD=$(BUILD)/soak.tsv \
	    OMP_WAIT_POLICY=passive $(BUILD)/bin/test_soak --log_level=message || status=1; \
	LOCKSTEP_SOAK_SECONDS=$$(awk 'BEGIN { print 1800 * $(HOURS) }') LOCKSTEP_SOAK_RECORD=$(BUILD)/soak-slurm.tsv \
	    LOCKSTEP_SOAK_KEEP=$(BUILD)/soak-failed tests/soak/slurm_test $(BUILD) || [ $$? -eq 77 ] || status=1; \
	exit $$status

# Next to MPICH; mpicc.openmpi and mpiexec.openmpi are Debian's names. What tests MPICH's launcher is left out.
test-openmpi:
	@for program in mpicc.openmpi mpiexec.openmpi; do command -v $$program >/dev/null || { \
	    echo "test-openmpi: $$program is not found; install Open MPI and its HDF5 (docs/install.md#open-mpi)" >&2; exit 2; }; done
	cmake -S . -B build/openmpi $(call GENERATOR,build/openmpi) -DLOCKSTEP_CUDA=OFF -DMPI_C_COMPILER=mpicc.openmpi \
	    -DMPIEXEC_EXECUTABLE=$(shell command -v mpiexec.openmpi) $(CMAKE_FLAGS)
	cmake --build build/openmpi --parallel $(JOBS)
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
	    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe ctest --test-dir build/openmpi --output-on-failure \
	    --parallel $(JOBS) --no-tests=error --label-exclude 'long|gpu|jobs|nodes' $(CTEST_FLAGS)

# Tests that start other programs of the build are left out; qemu runs one.
test-aarch64:
	@for program in aarch64-linux-gnu-g++ qemu-aarch64-static mpiexec; do command -v $$program >/dev/null || { \
	    echo "test-aarch64: $$program is not found; install g++-aarch64-linux-gnu, qemu-user-static and mpich (docs/install.md#for-arm)" >&2; exit 2; }; done
	@[ -e '$(ARM64_ROOT)/usr/lib/aarch64-linux-gnu/libmpich.so' ] || { \
	    echo "test-aarch64: $(ARM64_ROOT) has no arm64 packages of Debian; make it with tools/make_arm64_root $(ARM64_ROOT), or set ARM64_ROOT (docs/install.md#for-arm)" >&2; exit 2; }
	cmake --preset aarch64 $(call GENERATOR,build/aarch64) -DLOCKSTEP_ARM64_ROOT=$(abspath $(ARM64_ROOT)) $(CMAKE_FLAGS)
	cmake --build --preset aarch64 --parallel $(JOBS)
	ctest --preset aarch64 --parallel $(JOBS) --no-tests=error $(CTEST_FLAGS)

test-grids: build
	OMP_WAIT_POLICY=passive LOCKSTEP_GRIDS=$(GRIDS) $(BUILD)/bin/test_end_to_end_grids_test --run_test='grids_*' --log_level=message

test-gpu:
	$(MAKE) build CMAKE_FLAGS='$(CMAKE_FLAGS) -DLOCKSTEP_GPU_TESTS=ON'
	$(CTEST) --label-regex gpu $(CTEST_FLAGS)

ptx-report: dependencies
	$(CONFIGURE) -DLOCKSTEP_CUDA=ON -DLOCKSTEP_TESTS=ON $(CMAKE_FLAGS)
	cmake --build $(BUILD) --parallel $(JOBS) --target ptx_report
	$(BUILD)/bin/ptx_report $(PTX_REPORT)

cuda-report: dependencies
	$(CONFIGURE) -DLOCKSTEP_CUDA_WITHOUT_GPU=ON $(CMAKE_FLAGS)
	cmake --build $(BUILD) --parallel $(JOBS) --target cuda-report

programs: dependencies
	$(CONFIGURE) $(PROGRAMS_CUDA) $(CMAKE_FLAGS)
	cmake --build $(BUILD) --parallel $(JOBS) --target lockstep lockstep-analyze

demo: programs
	tools/demo.sh $(BUILD)

demo-scaling: programs
	tools/demo_scaling.sh $(BUILD)

bench:
	@tools/install_dependencies --programs --benchmarks
	cmake -S . -B build/bench $(call GENERATOR,build/bench) -DLOCKSTEP_BENCHMARKS=ON -DLOCKSTEP_TESTS=OFF $(CMAKE_FLAGS)
	cmake --build build/bench --parallel $(JOBS)
	build/bench/bin/bench_kernels
	build/bench/bin/bench_analysis
	build/bench/bin/bench_training
	build/bench/bin/bench_plan_fit
	build/bench/bin/bench_plan
	@if nvidia-smi >/dev/null 2>&1 && [ -x build/bench/bin/bench_gpu_kernels ]; then build/bench/bin/bench_gpu_kernels; fi

# LLM_C may list several checkouts, built for different lengths; PYTHON must have the packages of TTT_LM_PYTORCH.
bench-peers:
	@tools/install_dependencies --programs --benchmarks
	cmake -S . -B build/bench $(call GENERATOR,build/bench) -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_BENCHMARKS=ON $(CMAKE_FLAGS)
	cmake --build build/bench --parallel $(JOBS) --target bench_peers
	build/bench/bin/bench_peers $(addprefix --llm-c ,$(LLM_C)) $(addprefix --ttt-lm-pytorch ,$(TTT_LM_PYTORCH)) \
	    $(if $(filter yes,$(PYTORCH)),--pytorch) --python $(PYTHON) --precision $(PRECISION)

# PyTorch beside it: QUALITY_PYTHON=python3
quality: programs
	JOBS=$(JOBS) PYTHON=$(QUALITY_PYTHON) bench/quality '$(TEXT)' $(BUILD)

# MINUTES=120 stops it after that time; the next one continues.
quality-long: programs
	JOBS=$(JOBS) MINUTES=$(MINUTES) bench/quality_long $(BUILD)/quality-long $(BUILD)

# Found by find, not by git, which a release archive does not need.
format:
	find analysis bench modules src tests \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) -type f -print0 | \
	    xargs -0 clang-format -i

tidy: build
	find analysis modules src -name '*.cpp' -type f -print0 | xargs -0 -n 1 -P $(JOBS) clang-tidy --quiet -p $(BUILD)

install: dependencies
	cmake -S . -B build/install $(call GENERATOR,build/install) -DLOCKSTEP_TESTS=OFF $(ALL_GPUS) $(CMAKE_FLAGS)
	cmake --build build/install --parallel $(JOBS)
	cmake --install build/install --prefix $(PREFIX)

# Settings that would change the archive are set, so that the same commit gives the same bytes for everyone: permissions, line
# ends, attributes. gzip -n leaves out the time. A folder inside a checkout (an unpacked archive) is none itself.
GIT_ARCHIVE = git -c tar.umask=0022 -c core.autocrlf=false -c core.eol=lf -c core.attributesFile=/dev/null archive
dist:
	@prefix=$$(git rev-parse --show-prefix 2>/dev/null) && [ -z "$$prefix" ] || \
	    { echo 'make dist: this folder is not a git checkout; the archive is made from a commit' >&2; exit 2; }
	@changes=$$(git status --porcelain -- . $(if $(filter /%,$(BUILD)),,':(exclude)$(BUILD)')) && [ -z "$$changes" ] || \
	    { printf '%s\n' "$$changes" 'make dist: this is not committed; commit it or set it aside (git stash -u)' >&2; exit 2; }
	@mkdir -p $(BUILD)
	@version=$$(sed -n 's/^project(lockstep VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt) && name=lockstep-$$version && \
	    $(GIT_ARCHIVE) --format=tar --prefix=$$name/ --output=$(BUILD)/$$name.tar HEAD && \
	    gzip -9 -n -f $(BUILD)/$$name.tar && cd $(BUILD) && sha256sum $$name.tar.gz >$$name.tar.gz.sha256 && \
	    cat $$name.tar.gz.sha256

clean:
	rm -rf $(BUILD)
