// Ends a test program before its first test where there is no GPU; ctest says "Skipped" to exit code 77.
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>

#include "device/gpu.hpp"

namespace {

struct NeedsGpu {
    NeedsGpu() {
        const lockstep::Gpus gpus = lockstep::find_gpus();
        if (!gpus.list.empty()) return;
        std::printf("Skipped: %s.\n", gpus.why_none.c_str());
        std::exit(77);
    }
};

}  // namespace

BOOST_TEST_GLOBAL_FIXTURE(NeedsGpu);
