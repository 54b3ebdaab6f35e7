#ifdef LOCKSTEP_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "kernels/cpu/bf16/tile_functions.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/products.hpp"
#include "kernels/cpu/scratch.hpp"

namespace lockstep::kernels {
namespace cpu {

namespace baseline {
extern const VectorFunctions functions;
}
#ifdef LOCKSTEP_X86
namespace avx2 {
extern const VectorFunctions functions;
}
namespace avx512 {
extern const VectorFunctions functions;
}
#endif

namespace {

struct InstructionSet {
    const VectorFunctions* functions;
    bool (*supported)();
};

#ifdef LOCKSTEP_X86
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512_bf16() {
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}
// With bf16. Linux wants to be asked before a process uses tiles (arch_prctl(2), since 5.16): threads then have more
// state to save.
bool has_amx() {
    static const bool has = [] {
        unsigned a = 0, b = 0, c = 0, d = 0;
        constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
        if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & amx_bf16) == 0 || (d & amx_tile) == 0) return false;
        constexpr long request_permission = 0x1023, tile_data = 18;
        return has_avx512_bf16() && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
    }();
    return has;
}
#endif

}  // namespace

const VectorFunctions& vector_functions() {
    const auto always = [] { return true; };
#ifdef LOCKSTEP_X86
    __builtin_cpu_init();
    const auto with_attention = [](const char* name, const Attention<bf16>& attention) {
        VectorFunctions functions = avx512::functions;
        functions.name = name;
        functions.bf16.attention = &attention;
        return functions;
    };
    static const VectorFunctions with_avx512_bf16 = with_attention("avx512_bf16", avx512_bf16::attention_bf16);
    static const VectorFunctions with_amx = [&] {
        VectorFunctions functions = with_attention("amx", amx::attention_bf16);
        functions.tiles = &amx::tile_functions;
        return functions;
    }();
    const InstructionSet sets[] = {{&with_amx, has_amx},
                                   {&with_avx512_bf16, has_avx512_bf16},
                                   {&avx512::functions, has_avx512},
                                   {&avx2::functions, has_avx2},
                                   {&baseline::functions, always}};
#else
    const InstructionSet sets[] = {{&baseline::functions, always}};
#endif
    const char* wanted = std::getenv("LOCKSTEP_INSTRUCTION_SET");
    if (wanted == nullptr || *wanted == '\0') {
        for (const auto& set : sets)
            if (set.supported()) return *set.functions;
    } else {
        for (const auto& set : sets) {
            if (std::string_view(set.functions->name) != wanted) continue;
            if (set.supported()) return *set.functions;
            throw usage_error(
                "LOCKSTEP_INSTRUCTION_SET={} is not supported by this processor or its kernel; unset the variable",
                wanted);
        }
    }
    std::string known;
    for (const auto& set : sets) known += std::string(known.empty() ? "" : ", ") + set.functions->name;
    throw usage_error("LOCKSTEP_INSTRUCTION_SET={} is unknown; use {} or unset the variable", wanted ? wanted : "",
                      known);
}

CpuBackend::CpuBackend()
    : vector_(vector_functions()), scratch_(std::make_unique<Scratch>()), products_(std::make_unique<Products>()) {}

CpuBackend::~CpuBackend() = default;

Device CpuBackend::device() const {
    return {DeviceKind::cpu, 0};
}

void CpuBackend::synchronize() {}  // operations are synchronous

void CpuBackend::custom(const CustomWork&, const std::function<void()>& body) {
    body();
}

void CpuBackend::upload(Tensor y, const void* source) {
    std::memcpy(y.data(), source, y.bytes());
}

void CpuBackend::download(void* destination, Tensor x) {
    std::memcpy(destination, x.data(), x.bytes());
}

std::unique_ptr<Later> CpuBackend::read_later(Tensor x) {
    class Now final : public Later {
      public:
        explicit Now(std::vector<double> values) : values_(std::move(values)) {}
        const std::vector<double>& get() override { return values_; }

      private:
        std::vector<double> values_;
    };
    return std::make_unique<Now>(std::vector<double>(x.fp64(), x.fp64() + x.count()));
}

std::unique_ptr<Recording> CpuBackend::record(const std::function<void()>&) {
    return nullptr;  // recording gains nothing: calls are cheap
}

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend() {
    return std::make_unique<cpu::CpuBackend>();
}

const char* cpu_instruction_set() {
    return cpu::vector_functions().name;
}

}  // namespace lockstep::kernels
