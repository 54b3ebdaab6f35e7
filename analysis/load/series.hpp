// Which runs belong together: those that differ in the number of ranks only, and in what follows from it.
#pragma once

#include <string>
#include <vector>

#include "analysis/load/measurement.hpp"

namespace lockstep::analysis {

enum class Kind { strong, weak };

struct Group {
    Kind kind = Kind::strong;
    std::string kind_reason;
    std::string title;
    std::vector<std::size_t> runs;     // indices, by ranks
    std::vector<std::string> remarks;  // in what else they differ
};

struct Grouping {
    std::vector<Group> groups;
    std::vector<std::string> remarks;  // runs that stand alone, and why
};

// `kind`: auto, strong or weak. Throws a usage error where no two runs form a series.
Grouping group_runs(const std::vector<Measurement>& measurements, const std::string& kind,
                    const std::vector<std::string>& ignored);

struct Difference {
    std::string key;
    std::vector<std::string> values;  // each once, in the order of the runs; "" where a run does not say
};
// All settings that are not the same in all runs, by name; without the runs' names and folders.
std::vector<Difference> differences_of(const std::vector<const Measurement*>& runs);
// Also without what follows from the number of ranks or does not change the work.
std::vector<Difference> differences(const std::vector<const Measurement*>& runs);
std::string words_of(const Difference& difference);  // "model.width (64, 128)"

// What follows from names, places, the number of ranks or the recording alone: no difference in the work.
bool tells_no_runs_apart(const std::string& key);
// Hardly changes the step time, but is reported: the seed, the data, the version of the program …
bool is_only_marked(const std::string& key);

}  // namespace lockstep::analysis
