#include "analysis/load/phases.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::analysis {
namespace {

constexpr auto other = static_cast<std::size_t>(Phase::other);

}  // namespace

bool is_outside_steps(Phase phase) {
    return phase == Phase::initialization || phase == Phase::validation || phase == Phase::checkpoint;
}

double PhaseSums::total() const {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

void PhaseSums::add(const PhaseSums& more) {
    for (std::size_t i = 0; i < phase_count; ++i) {
        seconds[i] += more.seconds[i];
        calls[i] += more.calls[i];
    }
}

void PhaseSums::divide(double divisor) {
    for (std::size_t i = 0; i < phase_count; ++i) {
        seconds[i] /= divisor;
        calls[i] /= divisor;  // not times the inverse: whole numbers stay whole
    }
}

bool PhaseSums::has_step_phases() const {
    return calls[static_cast<std::size_t>(Phase::forward)] > 0;
}

void PhaseSums::forget_step_phases() {
    for (const Phase phase : {Phase::data_loading, Phase::data_movement, Phase::forward, Phase::loss, Phase::backward,
                              Phase::communication, Phase::optimizer, Phase::other}) {
        seconds[static_cast<std::size_t>(phase)] = 0;
        calls[static_cast<std::size_t>(phase)] = 0;
    }
}

PhaseMap::PhaseMap(const std::vector<trace::RegionRow>& regions) {
    std::vector<std::size_t> phase_of;  // parents come before children
    for (std::size_t r = 0; r < regions.size(); ++r) {
        const bool root = regions[r].parent < 0;
        const std::size_t above = root ? other : phase_of[static_cast<std::size_t>(regions[r].parent)];
        const auto* named = std::find(phase_names.begin(), phase_names.end(), regions[r].name);
        std::size_t phase = above;
        if (!is_outside_steps(static_cast<Phase>(above)) && named != phase_names.end())
            phase = static_cast<std::size_t>(named - phase_names.begin());
        phase_of.push_back(phase);
        if (root || phase != above) {
            terms_.push_back({r, phase, 1.0});
            if (!root) terms_.push_back({r, above, -1.0});
            if (phase != other) entries_.push_back({r, phase});
        }
        if (regions[r].name == "step" && phase == other) steps_.push_back(r);
    }
}

PhaseSums PhaseMap::sums(const double* times, const std::uint32_t* calls) const {
    PhaseSums sums;
    for (const Term& term : terms_) sums.seconds[term.phase] += term.sign * times[term.region];
    for (const Entry& entry : entries_) sums.calls[entry.phase] += calls[entry.region];
    // A difference of sums may come out a rounding below zero.
    for (double& seconds : sums.seconds) seconds = std::max(seconds, 0.0);
    return sums;
}

bool PhaseMap::measures(Phase phase) const {
    return std::any_of(terms_.begin(), terms_.end(), [&](const Term& term) {
        return term.phase == static_cast<std::size_t>(phase) && term.sign > 0;
    });
}

double PhaseMap::step_seconds(const double* times) const {
    double seconds = 0;
    for (const std::size_t region : steps_) seconds += times[region];
    return seconds;
}

std::map<std::string, std::vector<std::size_t>> communication_kinds(const std::vector<trace::RegionRow>& regions) {
    std::map<std::string, std::vector<std::size_t>> kinds;
    for (const auto& region : regions)
        if (region.parent >= 0 && regions[static_cast<std::size_t>(region.parent)].name == "communication" &&
            region.path.rfind("epoch/", 0) == 0)
            kinds[region.name].push_back(static_cast<std::size_t>(region.id));
    return kinds;
}

}  // namespace lockstep::analysis
