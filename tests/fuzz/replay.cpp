// Calls every fuzz target with its seeds and with the inputs that were once findings (tests/fuzz/found/NAME), each
// target in a process of its own. `fuzz_replay NAME FILE…`: one target with these files.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "fuzz/harness.hpp"
#include "fuzz/seeds.hpp"
#include "fuzz/targets.hpp"
#include "places.hpp"

using namespace lockstep;

namespace {

struct Input {
    std::string name, bytes;
};

std::vector<Input> found_inputs(const std::string& target) {
    std::vector<Input> inputs;
    std::error_code none;
    for (const auto& entry :
         std::filesystem::directory_iterator(tests::source_path("tests/fuzz/found/" + target), none))
        inputs.push_back({entry.path().string(), fuzz::read_file(entry.path().string())});
    std::sort(inputs.begin(), inputs.end(), [](const Input& a, const Input& b) { return a.name < b.name; });
    return inputs;
}

void call(const fuzz::Target& target, const Input& input) {
    // On the heap and of the input's size, so that sanitizers see what is read behind its end.
    const std::vector<std::uint8_t> bytes(input.bytes.begin(), input.bytes.end());
    target.run(bytes.data(), bytes.size());
}

// The number of inputs that were taken, written by the process that takes them.
std::size_t* shared_number() {
    void* memory = ::mmap(nullptr, sizeof(std::size_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("mmap");
        std::exit(2);
    }
    return static_cast<std::size_t*>(memory);
}

// How many of the inputs ended the process that took them.
int failures_of(const fuzz::Target& target, const std::vector<Input>& inputs) {
    static std::size_t* const taken = shared_number();
    int failures = 0;
    for (*taken = 0; *taken < inputs.size();) {
        const pid_t child = ::fork();
        if (child < 0) {
            std::perror("fork");
            std::exit(2);
        }
        if (child == 0) {
            for (; *taken < inputs.size(); ++*taken) call(target, inputs[*taken]);
            std::exit(0);  // with what sanitizers check at the end
        }
        int status = 0;
        while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
        std::fprintf(stderr, "%s: %s ends the process (%s %d)\n", target.name, inputs[*taken].name.c_str(),
                     WIFSIGNALED(status) ? "signal" : "exit code",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        ++failures;
        ++*taken;
    }
    return failures;
}

}  // namespace

int main(int count, char** arguments) {
    const std::vector<std::string> words(arguments + 1, arguments + count);
    const auto seeds = words.empty() ? fuzz::seeds() : std::map<std::string, std::vector<std::string>>();
    int failures = 0, targets = 0;
    std::size_t calls = 0;
    for (const fuzz::Target& target : fuzz::targets) {
        if (!words.empty() && words.front() != target.name) continue;
        std::vector<Input> inputs;
        if (words.empty()) {
            const auto own = seeds.find(target.name);
            if (own == seeds.end()) {
                std::fprintf(stderr, "%s has no seeds\n", target.name);
                ++failures;
                continue;
            }
            for (std::size_t i = 0; i < own->second.size(); ++i)
                inputs.push_back({"seed " + std::to_string(i), own->second[i]});
            for (Input& input : found_inputs(target.name)) inputs.push_back(std::move(input));
        }
        for (std::size_t i = 1; i < words.size(); ++i) inputs.push_back({words[i], fuzz::read_file(words[i])});
        failures += failures_of(target, inputs);
        calls += inputs.size();
        ++targets;
    }
    if (targets == 0) {
        std::fputs("there is no such target\n", stderr);
        return 2;
    }
    std::printf("%d targets, %zu inputs, %d findings\n", targets, calls, failures);
    return failures == 0 ? 0 : 1;
}
