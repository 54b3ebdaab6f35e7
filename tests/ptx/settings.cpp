#include "ptx/settings.hpp"

#include <cstdlib>
#include <string>

#include "base/error.hpp"

namespace lockstep::ptx {
namespace {

// Whether the variable has the second word; by default it has the first.
bool is_second(const char* variable, const char* first, const char* second) {
    const char* text = std::getenv(variable);
    const std::string word = text == nullptr ? first : text;
    if (word != first && word != second)
        throw usage_error("{} is '{}'; it takes {} or {}", variable, word, first, second);
    return word == second;
}

Settings read_settings() {
    Settings read;
    const bool is_80 = is_second("LOCKSTEP_PTX_ARCHITECTURE", "sm_90", "sm_80");
    read.architecture = is_80 ? 80 : 90;
    read.shared_optin = (is_80 ? 163 : 227) * 1024;
    read.shared_per_multiprocessor = read.shared_optin + 1024;
    read.options.most_shared_bytes = static_cast<std::uint32_t>(read.shared_optin);
    if (is_second("LOCKSTEP_PTX_SCHEDULE", "lockstep", "split")) read.options.schedule = Options::Schedule::split;
    if (is_second("LOCKSTEP_PTX_TENSOR_SUM", "nearest", "truncated"))
        read.options.tensor_sum = Options::TensorSum::truncated;
    if (const char* text = std::getenv("LOCKSTEP_PTX_SEED")) read.options.seed = std::strtoull(text, nullptr, 10);
    return read;
}

}  // namespace

Settings& settings() {
    static Settings settings = read_settings();
    return settings;
}

void set_order(Options::Schedule schedule, std::uint64_t seed) {
    settings().options.schedule = schedule;
    settings().options.seed = seed;
}

}  // namespace lockstep::ptx
