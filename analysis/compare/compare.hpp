// Two runs, by phase and by step: how much slower the second is, and whether that is more than noise.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/load/series.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {

// One run's side of a comparison.
struct Figure {
    bool present = false;
    double seconds = unknown;  // median of the samples
    Interval interval;         // 95 %, by ranks; unknown below 6 samples
    std::size_t samples = 0;
};

enum class Finding {
    slower,        // the interval of the ratio lies above 1
    faster,        // … below 1
    within_noise,  // … holds 1
    negligible,    // it does not, but the difference is too small: of a phase of the step below
                   // Comparison::least_difference, of the whole below a thousandth of A
    no_interval,   // fewer than 6 samples of one
    only_a,
    only_b,  // the other run does not have it
};

struct CompareRow {
    std::string name;  // "step", "run", "token" or a phase
    std::string of;    // what the seconds are of: "step", "run" or "token"
    Figure a, b;
    double difference = unknown;  // seconds, B − A
    double ratio = unknown;       // B ÷ A
    Interval ratio_interval;      // 95 %, bootstrap of blocks of steps
    Finding finding = Finding::no_interval;
};

struct ComparedRun {
    std::string path, name;
    std::int64_t ranks = 0, steps = 0, warm_up = 0, timed_steps = 0;
    bool imported = false;
    double tokens_per_second = unknown, loss = unknown;  // loss: of the last common step
    std::optional<Validation> common_validation;         // after the last step after which both validated
    std::optional<Validation> last_validation, best_validation;
    std::uint64_t peak = 0;  // bytes, most of any rank; 0: unknown
};

struct Verdict {
    double allowed = 0;  // share
    bool slower = false;
    std::string per;  // "step", "run" or "token": whose seconds decided
    std::string sentence;
};

struct Comparison {
    ComparedRun a, b;
    // A step; the run where one of the two is imported. Where these have different tokens: their seconds a token.
    CompareRow whole;
    std::optional<CompareRow> undivided;  // where the whole is by token: the step or the run
    std::vector<CompareRow> phases;       // those that at least one run has
    // Seconds of a step. A smaller difference of a phase cannot be seen in the step: half of the 95 % interval by which
    // the steps of the two differ, and at least a thousandth of the shorter one. Unknown without that interval.
    double least_difference = unknown;
    std::optional<std::int64_t> last_common_step;
    std::vector<Difference> settings;
    std::optional<Verdict> verdict;
    std::vector<std::string> remarks;
};

// `slower_than`: the share by which B may be slower. With 6 samples of both or more, B is slower where the whole
// interval of the ratio lies above 1 + share; with fewer, where the ratio does. A usage error where it is given and
// nothing can be compared.
Comparison compare(const Measurement& a, const Measurement& b, std::optional<double> slower_than);

// "5%", "0.05" → 0.05. Throws a usage error.
double share_of_words(const std::string& words);

std::string words_of(Finding finding);  // as a reader sees it: "B is slower"

Table compare_table(const Comparison& comparison);  // for reading: milliseconds of a step, seconds of a run
Table compare_rows(const Comparison& comparison);   // for programs
nlohmann::ordered_json json_of(const Comparison& comparison);

}  // namespace lockstep::analysis
