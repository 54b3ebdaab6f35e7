// Format: "Trace Event Format", the JSON object form: complete events ("X") and counters ("C") in microseconds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "analysis/exchange/formats.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

// Text from a damaged file may not be UTF-8.
std::string json(const nlohmann::ordered_json& value) {
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Whole nanoseconds: rounding start and end alike keeps a child inside its parent.
std::optional<std::int64_t> nanoseconds(double seconds) {
    constexpr double most = 4e9;  // more than a hundred years: not a time
    if (!(std::abs(seconds) < most)) return std::nullopt;
    return std::llround(seconds * 1e9);
}

std::string microseconds(std::int64_t value) {
    const std::int64_t whole = std::abs(value);
    return fmt::format("{}{}.{:03}", value < 0 ? "-" : "", whole / 1000, whole % 1000);
}

// For each part of the run the first step that a later part holds. A part's own rows do not tell: it may hold events of
// steps whose rows are in the part before.
std::vector<std::int64_t> ends_of(const trace::Run& run) {
    std::vector<std::int64_t> ends(run.parts.size());
    std::int64_t end = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = run.parts.size(); i-- > 0;) {
        ends[i] = end;
        const auto& steps = run.parts[i].file.steps();
        if (!steps.empty()) end = std::min(end, steps.front().step);
    }
    return ends;
}

bool has_events(const trace::Run& run, const std::vector<std::int64_t>& ends) {
    for (std::size_t i = 0; i < run.parts.size(); ++i) {
        const auto events = run.parts[i].file.read_events();
        if (std::any_of(events.begin(), events.end(), [&](const auto& event) { return event.step < ends[i]; }))
            return true;
    }
    return false;
}

class ChromeTrace {
  public:
    ChromeTrace(const trace::Run& run, const std::vector<std::int64_t>& ends, Output& output)
        : run_(run), ends_(ends), output_(output) {}

    void write() {
        output_.write("{\"displayTimeUnit\":\"ms\",\"otherData\":" + json(about_run()) + ",\"traceEvents\":[");
        std::int64_t launch = 0;
        for (std::size_t i = 0; i < run_.parts.size(); ++i) {
            const trace::RunPart& part = run_.parts[i];
            if (part.launch != launch) {
                launch = part.launch;
                first_process_ += ranks_;
                ranks_ = static_cast<std::int64_t>(part.file.ranks());
                name_processes(part);
            }
            // The clock of each launch begins at its own start.
            shift_ = part.file.header().start_time - run_.parts.front().file.header().start_time;
            if (!std::isfinite(shift_)) shift_ = 0;
            write_events(part, ends_[i]);
            write_memory(part);
        }
        output_.write("\n]}\n");
        if (left_out_ > 0)
            log::warning("{}: left out {} event{} without a possible time", run_.path, left_out_, plural(left_out_));
        if (shortened_ > 0)
            log::warning("{}: shortened {} event{} that reached beyond the end of the enclosing event", run_.path,
                         shortened_, plural(shortened_));
    }

  private:
    struct Event {
        std::int64_t start, end, step;
        std::int32_t rank, region;
        std::uint64_t bytes;
    };

    nlohmann::ordered_json about_run() const {
        const trace::Header& header = run_.header();
        nlohmann::ordered_json about;
        about["run"] = header.run_name;
        for (const auto& [key, value] : settings_of(header)) about[key] = value;
        return about;
    }

    std::int64_t process(std::int64_t rank) const { return first_process_ + rank + 1; }  // 0 is the kernel's

    void entry(const std::string& text) {
        output_.write(first_ ? "\n" : ",\n");
        output_.write(text);
        first_ = false;
    }

    void name_processes(const trace::RunPart& part) {
        const auto& ranks = part.file.header().ranks;
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            const std::int64_t id = process(static_cast<std::int64_t>(r));
            std::string name = fmt::format("rank {}", r);
            if (run_.launches > 1) name = fmt::format("launch {}, {}", part.launch, name);
            for (const std::string& place : {ranks[r].host, ranks[r].gpu})
                if (!place.empty()) name += ", " + place;
            const auto metadata = [&](const char* what, const char* key, const nlohmann::ordered_json& value) {
                entry(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"{}":{}}}}})", id, id, what, key,
                                  json(value)));
            };
            metadata("process_name", "name", name);
            metadata("process_sort_index", "sort_index", id);
            metadata("thread_name", "name", "regions");
        }
    }

    std::vector<Event> events_of(const trace::RunPart& part, std::int64_t end_step) {
        std::vector<Event> events;
        for (const trace::EventRow& row : part.file.read_events()) {
            if (row.step >= end_step) continue;  // made again by a later launch
            const auto start = nanoseconds(row.start + shift_), end = nanoseconds(row.end + shift_);
            if (start && end && *end >= *start)
                events.push_back({*start, *end, row.step, row.rank, row.region, row.bytes});
            else
                ++left_out_;
        }
        // Parents before children: they are longer, or come first among the regions.
        std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
            return std::tuple(a.rank, a.start, -a.end, a.region) < std::tuple(b.rank, b.start, -b.end, b.region);
        });
        return events;
    }

    void write_events(const trace::RunPart& part, std::int64_t end_step) {
        std::vector<std::string> names;
        std::vector<bool> communicates;
        for (const auto& region : part.file.header().regions) {
            communicates.push_back(region.path.find("/communication") != std::string::npos);
            names.push_back(fmt::format(R"("name":{},"cat":{})", json(region.name), json(region.path)));
        }
        std::vector<std::int64_t> open;  // where the events around this one end, outermost first
        std::int32_t rank = -1;
        for (Event event : events_of(part, end_step)) {
            if (event.rank != rank) open.clear();
            rank = event.rank;
            while (!open.empty() && open.back() <= event.start) open.pop_back();
            if (!open.empty() && event.end > open.back()) {
                event.end = open.back();
                ++shortened_;
            }
            open.push_back(event.end);
            const std::int64_t id = process(rank), duration = event.end - event.start;
            const auto region = static_cast<std::size_t>(event.region);
            std::string more;
            if (event.bytes > 0) more = fmt::format(R"(,"bytes":{})", event.bytes);
            // A GPU's transfers outlast the stretch that starts them.
            const bool on_gpu = !part.file.header().ranks[static_cast<std::size_t>(rank)].gpu.empty();
            if (event.bytes > 0 && duration > 0 && communicates[region] && !on_gpu)
                more +=
                    fmt::format(R"(,"GB/s":{:.4g})", static_cast<double>(event.bytes) / static_cast<double>(duration));
            entry(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},{},"args":{{"step":{}{}}}}})", id, id,
                              microseconds(event.start), microseconds(duration), names[region], event.step, more));
        }
    }

    void write_memory(const trace::RunPart& part) {
        const trace::TraceFile& file = part.file;
        file.visit_memory(part.rows, [&](std::size_t row, const std::uint64_t* memory) {
            const double end = file.steps()[row].wall_time - file.header().start_time;
            const auto time = nanoseconds(end + shift_);
            for (std::size_t rank = 0; time && rank < file.ranks(); ++rank) {
                const std::uint64_t* bytes = &memory[rank * 3];
                if (bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 0) continue;
                entry(fmt::format(R"({{"ph":"C","pid":{},"name":"memory, bytes","ts":{},)"
                                  R"("args":{{"allocated":{},"reserved":{},"peak":{}}}}})",
                                  process(static_cast<std::int64_t>(rank)), microseconds(*time), bytes[0], bytes[1],
                                  bytes[2]));
            }
        });
    }

    const trace::Run& run_;
    const std::vector<std::int64_t>& ends_;
    Output& output_;
    bool first_ = true;
    std::int64_t first_process_ = 0, ranks_ = 0;
    double shift_ = 0;
    std::size_t left_out_ = 0, shortened_ = 0;
};

}  // namespace

void write_chrome_trace(const trace::Run& run, Output& output) {
    const std::vector<std::int64_t> ends = ends_of(run);
    if (!has_events(run, ends))
        throw usage_error(
            "{} holds no events; lockstep train records those of sampled steps, the first and then every "
            "trace.events_every-th, unless that is 0 or trace.detail is \"off\", and imported runs have none",
            run.path);
    ChromeTrace(run, ends, output).write();
}

}  // namespace lockstep::analysis
