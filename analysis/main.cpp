// lockstep-analyze: from traces to tables.
#include <csignal>

#include "analysis/load/guard.hpp"
#include "analysis/program.hpp"
#include "base/log.hpp"

int main(int argc, char** argv) {
    using namespace lockstep;
    std::signal(SIGXFSZ, SIG_IGN);  // a file that reaches its limit is an error of the call that writes it
    try {
        return analysis::guarded([&] { return analysis::run_program(argc, argv); });
    } catch (const Error& problem) {
        log::error("{}", problem.what());
        return static_cast<int>(problem.code());
    }
}
