// The list of a run's courses, which lies beside its checkpoints.
#include "checkpoint/courses.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(fuzz::text_of(data, size));
    fuzz::judge(size, [&] {
        const auto courses = checkpoint::courses_from_text(text, "local-courses");
        fuzz::require(checkpoint::courses_from_text(checkpoint::courses_to_text(courses), "written") == courses,
                      "what is written reads back differently");
    });
    return 0;
}
