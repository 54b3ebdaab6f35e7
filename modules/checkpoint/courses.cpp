#include "checkpoint/courses.hpp"

#include <algorithm>
#include <filesystem>
#include <random>
#include <sstream>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/open_file.hpp"
#include "base/whole_file.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t name_digits = 16;
constexpr const char* remedy = "remove it to continue without the local checkpoints written so far";

std::string drawn_name() {
    std::random_device source;
    return hash_text(std::uint64_t{source()} << 32 | source());
}

bool is_name(const std::string& name) {
    return name.size() == name_digits && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string courses_path(const std::string& checkpoint_folder) {
    return (std::filesystem::path(checkpoint_folder) / "local-courses").string();
}

std::vector<Course> read_courses(const std::string& checkpoint_folder) {
    const std::string path = courses_path(checkpoint_folder);
    std::error_code error;
    const bool there = std::filesystem::exists(path, error);
    if (error) throw fault_error("{} cannot be accessed: {}", path, error.message());
    if (!there) return {};
    std::vector<Course> courses = courses_from_text(read_text_file(path), path);
    if (courses.empty()) throw damaged_error("{} is damaged: it is empty; {}", path, remedy);
    return courses;
}

std::string courses_to_text(const std::vector<Course>& courses) {
    std::string text;
    for (const Course& course : courses) text += course.name + " " + std::to_string(course.first_step) + "\n";
    return text;
}

std::vector<Course> courses_from_text(const std::string& text, const std::string& origin) {
    std::istringstream lines(text);
    std::vector<Course> courses;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        Course course;
        std::string more;
        if (!(words >> course.name >> course.first_step) || words >> more || !is_name(course.name) ||
            course.first_step < 0)
            throw damaged_error("{} is damaged: \"{}\" is not a course of a run; {}", origin, line, remedy);
        courses.push_back(std::move(course));
    }
    return courses;
}

std::vector<Course> begin_course(const std::string& checkpoint_folder, std::vector<Course> before, std::int64_t step) {
    std::erase_if(before, [&](const Course& course) { return course.first_step >= step; });
    before.push_back({drawn_name(), step});
    replace_file(courses_path(checkpoint_folder), courses_to_text(before));
    sync_folder(checkpoint_folder);
    return before;
}

bool counts(const std::vector<Course>& courses, const std::string& course, std::int64_t step) {
    const auto found =
        std::find_if(courses.begin(), courses.end(), [&](const Course& one) { return one.name == course; });
    return found != courses.end() &&
           std::all_of(found + 1, courses.end(), [&](const Course& later) { return step <= later.first_step; });
}

}  // namespace lockstep::checkpoint
