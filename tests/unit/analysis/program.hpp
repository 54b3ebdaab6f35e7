// Runs lockstep-analyze as a user does.
#pragma once

#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "places.hpp"
#include "unit/analysis/text.hpp"
#include "unit/trace/synthetic_trace.hpp"

namespace lockstep::analysis::test {

struct Output {
    int code = -1;
    std::string text, errors;
    nlohmann::json json() const { return nlohmann::json::parse(text); }
};

// `arguments` as in a shell, after the shell's words `before`. stderr goes to a file of `folder`.
inline Output analyze(const trace::test::TemporaryFolder& folder, const std::string& arguments,
                      const std::string& before = "") {
    const std::string errors = folder / "stderr.txt";
    const std::string command = before + " " + tests::build_path("bin/lockstep-analyze ") + arguments + " 2>" + errors;
    Output output;
    FILE* pipe = ::popen(command.c_str(), "r");
    BOOST_REQUIRE(pipe != nullptr);
    char buffer[4096];
    for (std::size_t count = 0; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        output.text.append(buffer, count);
    const int status = ::pclose(pipe);
    output.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    output.errors = read_text(errors);
    return output;
}

}  // namespace lockstep::analysis::test
