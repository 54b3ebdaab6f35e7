#include "analysis/load/sentences.hpp"

#include <fmt/format.h>

namespace lockstep::analysis {

std::string unfinished_sentence(std::int64_t last_step) {
    return fmt::format(
        "The last launch did not end properly or is still running: figures go up to the last flush, step {}.",
        last_step);
}

std::string repeated_sentence(std::size_t steps) {
    return fmt::format("{} steps were repeated after a resume; only their last execution counts.", steps);
}

std::string missing_sentence(double steps) {
    return fmt::format("{:.0f} steps between the first and the last are in no trace.", steps);
}

double steps_between(std::int64_t one, std::int64_t next) {
    return static_cast<double>(next) - static_cast<double>(one) - 1;
}

}  // namespace lockstep::analysis
