#include "analysis/load/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::analysis {
namespace {

// What a row's regions and the clock between two rows may differ by: writing the trace, waiting for a slow disk.
constexpr double clock_slack_seconds = 5, clock_slack_share = 0.5;
// Rounding, and the cost of a begin and an end.
constexpr double overlap_slack_seconds = 1e-3, overlap_slack_share = 0.01;

// "ranks 3, 5 and 7", "rank 3", the first few of many.
std::string list_of_ranks(const std::vector<std::size_t>& ranks) {
    constexpr std::size_t shown = 8;
    std::string list = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size() && i < shown; ++i)
        list += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + fmt::format("{}", ranks[i]);
    if (ranks.size() > shown) list += fmt::format(" and {} more", ranks.size() - shown);
    return list;
}

}  // namespace

void TraceChecks::Finding::add(std::int64_t at, const std::string& place) {
    if (count++ > 0) return;
    step = at;
    where = place;
}

void TraceChecks::begin_part(const trace::TraceFile& file) {
    close_part();
    file_ = &file;
    first_row_ = true;
    seen_.assign(file.ranks(), false);
    children_.assign(file.regions(), {});
    for (const auto& region : file.header().regions)
        if (region.parent >= 0)
            children_[static_cast<std::size_t>(region.parent)].push_back(static_cast<std::size_t>(region.id));
}

void TraceChecks::close_part() {
    if (!file_ || first_row_ || file_->regions() == 0) return;
    std::vector<std::size_t> missing;
    for (std::size_t r = 0; r < seen_.size(); ++r)
        if (!seen_[r]) missing.push_back(r);
    if (missing.empty() || missing.size() == seen_.size()) return;
    const std::string sentence =
        fmt::format("The trace has no data for {} of {}: figures over ranks cover only the others.",
                    list_of_ranks(missing), seen_.size());
    if (std::find(missing_.begin(), missing_.end(), sentence) == missing_.end()) missing_.push_back(sentence);
}

void TraceChecks::row(const trace::StepRow& row, const double* times) {
    const std::size_t ranks = file_->ranks(), regions = file_->regions();
    const auto& tree = file_->header().regions;
    double longest = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        const double* own = times + r * regions;
        double whole = 0;
        for (std::size_t i = 0; i < regions; ++i) {
            if (own[i] > 0) seen_[r] = true;
            if (own[i] < 0 || std::isinf(own[i]))
                impossible_.add(row.step, fmt::format("rank {}, {}", r, tree[i].path));
            if (tree[i].parent < 0 && std::isfinite(own[i])) whole += own[i];
            double below = 0;
            for (const std::size_t child : children_[i])
                if (std::isfinite(own[child])) below += own[child];
            if (below > own[i] * (1 + overlap_slack_share) + overlap_slack_seconds)
                overlap_.add(row.step, fmt::format("rank {}, below {}", r, tree[i].path));
        }
        longest = std::max(longest, whole);
    }
    // Rows of imported traces and of tests have no clock.
    if (row.wall_time > 0) {
        const double passed = row.wall_time - last_wall_time_;
        const double slack = clock_slack_seconds + clock_slack_share * longest;
        if (!first_row_ && regions > 0 && passed < longest - slack)
            back_.add(row.step, fmt::format("{:.1f} s passed by the clock, {:.1f} s in regions", passed, longest));
        if (!first_row_ && regions > 0 && passed > longest + slack)
            forward_.add(row.step, fmt::format("{:.1f} s passed by the clock, {:.1f} s in regions", passed, longest));
    }
    last_wall_time_ = row.wall_time;
    first_row_ = false;
}

void TraceChecks::events(const std::vector<trace::EventRow>& events) {
    // By rank and start, the longer first: each then lies inside the innermost open one, or after it.
    std::vector<const trace::EventRow*> sorted;
    for (const auto& event : events) {
        if (std::isfinite(event.start) && std::isfinite(event.end) && event.end >= event.start)
            sorted.push_back(&event);
        else
            inverted_.add(event.step, fmt::format("rank {}", event.rank));
    }
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
        if (a->rank != b->rank) return a->rank < b->rank;
        if (a->start != b->start) return a->start < b->start;
        return a->end > b->end;
    });
    constexpr double slack = 1e-6;  // a begin and an end are two readings of the clock
    std::vector<const trace::EventRow*> open;
    for (const auto* event : sorted) {
        while (!open.empty() && (open.back()->rank != event->rank || open.back()->end <= event->start + slack))
            open.pop_back();
        if (!open.empty() && event->end > open.back()->end + slack)
            crossing_.add(event->step,
                          fmt::format("rank {}, {} and {}", event->rank,
                                      file_->header().regions[static_cast<std::size_t>(open.back()->region)].path,
                                      file_->header().regions[static_cast<std::size_t>(event->region)].path));
        open.push_back(event);
    }
}

std::vector<std::string> TraceChecks::remarks() const {
    TraceChecks last = *this;
    last.close_part();
    std::vector<std::string> all = last.missing_;
    const auto say = [&](const Finding& finding, const std::string& what) {
        if (finding.count > 0)
            all.push_back(fmt::format("{} in {} (first at step {}: {}).", what,
                                      finding.count == 1 ? "1 place" : fmt::format("{} places", finding.count),
                                      finding.step, finding.where));
    };
    say(back_, "Rank 0's clock ran backwards, or slower than its regions,");
    say(forward_, "Rank 0's clock jumped ahead of the timed regions");
    say(overlap_, "Regions overlap: children add up to more than their parent");
    say(impossible_, "Times are negative or infinite and were not counted");
    say(crossing_, "Events overlap without nesting");
    say(inverted_, "Events have no end, or end before they begin");
    return all;
}

}  // namespace lockstep::analysis
