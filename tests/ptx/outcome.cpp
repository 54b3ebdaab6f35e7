#include "ptx/outcome.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "ptx/registry.hpp"
#include "ptx/settings.hpp"

namespace lockstep::ptx {
namespace {

std::map<std::string, long>& findings() {
    static auto& findings = *new std::map<std::string, long>;
    return findings;
}

void write_executed(const char* folder) {
    const std::string path = fmt::format("{}/{}", folder, getpid());
    std::FILE* file = std::fopen(path.c_str(), "a");  // process numbers recur
    if (file == nullptr) {
        fmt::print(stderr, "PTX: '{}' cannot be written\n", path);
        return;
    }
    for (const RegisteredFunction* function : all_functions())
        fmt::print(file, "sm_{} {} {}\n", settings().architecture, function->name, function->launches);
    std::fclose(file);
}

void at_exit(int, void*) {
    if (const char* folder = std::getenv("LOCKSTEP_PTX_EXECUTED")) write_executed(folder);
    if (reported() == 0) return;
    fmt::print(stderr, "PTX: {} findings, {} different ones\n", reported(), findings().size());
    std::fflush(nullptr);
    _exit(1);
}

}  // namespace

void report(const std::string& finding) {
    constexpr std::size_t most_printed = 200;
    if (++findings()[finding] == 1 && findings().size() <= most_printed) fmt::print(stderr, "PTX: {}\n", finding);
}

long reported() {
    long sum = 0;
    for (const auto& [finding, times] : findings()) sum += times;
    return sum;
}

void watch_exit() {
    static const bool watched = on_exit(at_exit, nullptr) == 0;
    static_cast<void>(watched);
}

}  // namespace lockstep::ptx
