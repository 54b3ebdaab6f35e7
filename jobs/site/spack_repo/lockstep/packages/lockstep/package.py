# Lockstep's recipe for Spack 1.0 or newer. It has no release archive: it is built from a checkout.
#
# How to use, from the top of Lockstep's sources:
#   spack repo add jobs/site/spack_repo/lockstep
#   spack dev-build lockstep@main                           # builds and installs the sources of this folder
#   spack dev-build lockstep@main +cuda cuda_arch=90 ^mpich # for H100, with MPICH
#   spack load lockstep
# jobs/site/spack.yaml is an environment that does the same.
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
    depends_on("boost@1.74: +test +context", when="+tests")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+nccl")

    conflicts("%gcc@:11", msg="Lockstep wants C++20 as g++ 12 has it")
    conflicts("%clang@:13", msg="Lockstep wants C++20 as clang++ 14 has it")
    for architecture in ("none", "70", "75"):
        conflicts(f"cuda_arch={architecture}", when="+cuda", msg="Lockstep's kernels need an architecture of 80 or more")

    def cmake_args(self):
        arguments = [
            self.define_from_variant("LOCKSTEP_TESTS", "tests"),
            self.define_from_variant("LOCKSTEP_CUDA", "cuda"),
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
