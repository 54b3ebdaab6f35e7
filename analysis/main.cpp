// lockstep-analyze: from traces to tables.
#include "analysis/load/guard.hpp"
#include "analysis/program.hpp"
#include "base/log.hpp"

int main(int argc, char** argv) {
    using namespace lockstep;
    try {
        return analysis::guarded([&] { return analysis::run_program(argc, argv); });
    } catch (const Error& problem) {
        log::error("{}", problem.what());
        return static_cast<int>(problem.code());
    }
}
