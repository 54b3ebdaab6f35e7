# Lockstep's recipe for Spack 1.0 or newer. It is built from a checkout or an unpacked release archive; without an address to
# download from it has no other version than main.
#
# How to use, from the top of Lockstep's sources:
#   spack repo add jobs/site/spack_repo/lockstep
#   spack dev-build lockstep@main                           # builds and installs the sources of this folder
#   spack dev-build lockstep@main +cuda cuda_arch=90 ^mpich # for H100, with MPICH
#   spack load lockstep
#   spack test run lockstep && spack test results -l        # seconds, on one rank
# jobs/site/spack.yaml is an environment that does the same.
#
# It has not been installed with Spack yet. Checked were its syntax, the names of packages and variants against Spack's packages
# (1e8cf059e3, July 2026), the names of Spack's functions against its documentation, and the tests' commands with a built
# program and stand-ins for Spack's functions.
import re
import shutil

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Lockstep(CMakePackage, CudaPackage):
    """Trains transformer and TTT (test-time-training) language models with MPI on CPUs and GPUs."""

    license("Apache-2.0")

    version("main")

    variant("nccl", default=True, when="+cuda", description="Gradients between GPUs by NCCL instead of MPI")
    variant("sentencepiece", default=True, description="Tokenizers of sentencepiece, besides bytes")
    variant("huggingface", default=True, description="Tokenizers of Hugging Face, besides bytes")
    variant("otf2", default=False, description="Export of traces as OTF2 archives")
    variant("papi", default=False, description="Instructions and cycles of each step, by PAPI")
    variant("tests", default=False, description="Build the tests, and the fault injection they use")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10: +mpi")
    depends_on("hwloc@2:")
    depends_on("onednn@2.7:")
    depends_on("cli11@2:")
    depends_on("boost@1.74: +math")
    depends_on("eigen@3.4:")
    depends_on("tomlplusplus@3:")
    depends_on("utf8cpp@3:")
    depends_on("fmt@9:")
    depends_on("spdlog@1.10:")
    depends_on("nlohmann-json@3:")
    depends_on("xxhash")
    depends_on("sentencepiece", when="+sentencepiece")
    depends_on("pcre2@10.40: +jit", when="+huggingface")
    depends_on("utf8proc@2.8:", when="+huggingface")
    depends_on("otf2@3:", when="+otf2")
    depends_on("papi@6:", when="+papi")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("boost@1.74: +test +context", when="+tests")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+nccl")

    conflicts("%gcc@:11", msg="Lockstep wants C++20 as g++ 12 has it")
    conflicts("%clang@:13", msg="Lockstep wants C++20 as clang++ 14 has it")
    for architecture in ("none", "70", "75"):
        conflicts(f"cuda_arch={architecture}", when="+cuda", msg="Lockstep's kernels need an architecture of 80 or more")
    for architecture in ("86", "89", "120", "121"):
        conflicts(f"cuda_arch={architecture}", when="+cuda", msg="Lockstep's kernels need 163 KB of shared memory per block")

    def cmake_args(self):
        arguments = [
            self.define_from_variant("LOCKSTEP_TESTS", "tests"),
            self.define_from_variant("LOCKSTEP_CUDA", "cuda"),
            self.define_from_variant("LOCKSTEP_PAPI", "papi"),
            # Newer compilers warn of more; that is for those who develop it.
            self.define("LOCKSTEP_WARNINGS_AS_ERRORS", False),
        ]
        if self.spec.satisfies("+cuda"):
            # 90a: the instructions that only this GPU has.
            names = ["90a" if value == "90" else value for value in self.spec.variants["cuda_arch"].value]
            arguments.append(self.define("LOCKSTEP_CUDA_ARCHITECTURES", names))
        if self.spec.satisfies("+nccl"):
            nccl = self.spec["nccl"]
            arguments.append(self.define("NCCL_INCLUDE", nccl.prefix.include))
            arguments.append(self.define("NCCL_LIBRARY", nccl.libs[0]))
        return arguments

    # Stand-alone tests, in the test stage. MPI programs that start without a launcher are refused on some login nodes: run them
    # where MPI programs may run.

    def test_version(self):
        """both programs print their version and commit"""
        for name in ("lockstep", "lockstep-analyze"):
            with test_part(self, f"test_version_{name}", purpose=f"version of {name}"):
                out = Executable(self.prefix.bin.join(name))("--version", output=str.split, error=str.split)
                assert re.match(rf"{name} \d+\.\d+\.\d+ \(", out), f"no version in: {out}"

    def test_inspect(self):
        """sizes of a model that is known by name"""
        out = Executable(self.prefix.bin.lockstep)(
            "inspect", "--preset", "gpt2-124m", output=str.split, error=str.split
        )
        assert "124,439,808 parameters" in out, f"not the parameters of GPT-2 124M: {out}"

    def test_train(self):
        """pack a text, train two steps on one rank, look at the checkpoint and the trace"""
        lockstep = Executable(self.prefix.bin.lockstep)
        analyze = Executable(self.prefix.bin.join("lockstep-analyze"))
        with open("text.txt", "w", encoding="utf-8") as text:
            text.writelines(f"Line {i} of a text that is to be learnt.\n" for i in range(400))
        with open("run.toml", "w", encoding="utf-8") as description:
            description.write(
                """\
run.name = "spack"
model = {mixer = "ttt-linear", width = 32, layers = 1, heads = 2, vocabulary = 256, context = 32}
data.train = ["tokens.h5"]
batch.global = 4
schedule = {steps = 2, peak_lr = 1e-3}
"""
            )
        # Parts run also when one before them has failed: what an earlier test left must not pass for theirs.
        for folder in ("runs", "checkpoints"):
            shutil.rmtree(folder, ignore_errors=True)

        with test_part(self, "test_train_pack", purpose="pack a text"):
            lockstep("pack", "--out", "tokens.h5", "text.txt")

        with test_part(self, "test_train_steps", purpose="train two steps"):
            out = lockstep("train", "run.toml", output=str.split, error=str.split)
            assert "finished: step 2 of 2" in out, f"training did not finish: {out}"

        with test_part(self, "test_train_checkpoint", purpose="verify the checkpoint"):
            lockstep("verify", "checkpoints/spack")

        with test_part(self, "test_train_summary", purpose="summarize the trace"):
            out = analyze("summary", "runs/spack", output=str.split, error=str.split)
            assert "Run runs/spack" in out, f"no summary: {out}"
