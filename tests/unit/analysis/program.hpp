// Runs lockstep-analyze as a user does.
#pragma once

#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "unit/trace/synthetic_trace.hpp"

namespace lockstep::analysis::test {

struct Output {
    int code = -1;
    std::string text, errors;
    nlohmann::json json() const { return nlohmann::json::parse(text); }
};

// `arguments` as in a shell. stderr goes to a file of `folder`.
inline Output analyze(const trace::test::TemporaryFolder& folder, const std::string& arguments) {
    const std::string errors = folder / "stderr.txt";
    const std::string command =
        std::string(LOCKSTEP_BINARY_DIR) + "/bin/lockstep-analyze " + arguments + " 2>" + errors;
    Output output;
    FILE* pipe = ::popen(command.c_str(), "r");
    BOOST_REQUIRE(pipe != nullptr);
    char buffer[4096];
    for (std::size_t count = 0; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        output.text.append(buffer, count);
    const int status = ::pclose(pipe);
    output.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::ifstream stream(errors);
    output.errors.assign(std::istreambuf_iterator<char>(stream), {});
    return output;
}

}  // namespace lockstep::analysis::test
