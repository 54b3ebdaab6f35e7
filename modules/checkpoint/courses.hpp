// The courses of a run: each launch starts one, at the step it continues from. A local checkpoint belongs to one, and
// is valid as long as no later course started before its step. The list is kept with the shared checkpoints: a node
// that was away, or parts of an earlier run of the same name, cannot bring back an abandoned course.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

struct Course {
    std::string name;             // 16 hexadecimal digits, drawn at random
    std::int64_t first_step = 0;  // after which it writes
    bool operator==(const Course&) const = default;
};

std::string courses_path(const std::string& checkpoint_folder);
// In their order; none where there is no list. Damaged error for one that cannot be understood, fault error where it
// cannot be told whether there is one.
std::vector<Course> read_courses(const std::string& checkpoint_folder);
// Adds a course to the list, from which go those that have no step left that counts; writes it, and returns it.
std::vector<Course> begin_course(const std::string& checkpoint_folder, std::vector<Course> before, std::int64_t step);
// The list as it is written; `origin`: what an error names.
std::string courses_to_text(const std::vector<Course>& courses);
std::vector<Course> courses_from_text(const std::string& text, const std::string& origin);
bool counts(const std::vector<Course>& courses, const std::string& course, std::int64_t step);

}  // namespace lockstep::checkpoint
