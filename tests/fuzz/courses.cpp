// The list of a run's courses, which lies beside its checkpoints.
#include "checkpoint/courses.hpp"

#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::int64_t step = 100;
    fuzz::write_file("local-courses", fuzz::text_of(data, size));
    fuzz::judge(size, [&] {
        const auto courses = checkpoint::read_courses(fuzz::folder());
        fuzz::require(checkpoint::courses_from_text(checkpoint::courses_to_text(courses), "written") == courses,
                      "what is written reads back differently");
        const auto begun = checkpoint::begin_course(fuzz::folder(), courses, step);
        fuzz::require(checkpoint::read_courses(fuzz::folder()) == begun, "a course that was begun is not there");
        for (const auto& course : begun)
            fuzz::require(!checkpoint::counts(begun, course.name, step + 1) || course == begun.back(),
                          "a course counts after the next has begun");
    });
    return 0;
}
