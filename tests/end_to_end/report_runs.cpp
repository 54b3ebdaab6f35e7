// Writes the runs that the test report_browser opens in a browser: report_runs FOLDER.
#include "unit/analysis/report_runs.hpp"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
    using lockstep::analysis::test::write_run;
    if (argc != 2) {
        std::fputs("usage: report_runs FOLDER\n", stderr);
        return 2;
    }
    try {
        const std::string folder = argv[1];
        for (const int ranks : {1, 2, 4, 8})
            write_run(folder + "/g" + std::to_string(ranks), "batch-8-g" + std::to_string(ranks),
                      static_cast<std::size_t>(ranks), 400);
        write_run(folder + "/hostile", lockstep::analysis::test::hostile_name, 16, 10000);
        return 0;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "report_runs: %s\n", problem.what());
        return 1;
    }
}
