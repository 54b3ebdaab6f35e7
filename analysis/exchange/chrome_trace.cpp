// Format: "Trace Event Format", the JSON object form: complete events ("X") and counters ("C") in microseconds.
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "analysis/exchange/formats.hpp"
#include "analysis/exchange/timeline.hpp"

namespace lockstep::analysis {
namespace {

// Text from a damaged file may not be UTF-8.
std::string json(const nlohmann::ordered_json& value) {
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string microseconds(std::int64_t value) {
    const std::int64_t whole = std::abs(value);
    return fmt::format("{}{}.{:03}", value < 0 ? "-" : "", whole / 1000, whole % 1000);
}

class ChromeTrace {
  public:
    ChromeTrace(Timeline& timeline, Output& output) : timeline_(timeline), run_(timeline.run()), output_(output) {}

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
            write_events(i);
            write_memory(i);
        }
        output_.write("\n]}\n");
        timeline_.warn();
    }

  private:
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

    void write_events(std::size_t part) {
        const trace::Header& header = run_.parts[part].file.header();
        std::vector<std::string> names;
        std::vector<bool> communicates;
        for (const auto& region : header.regions) {
            communicates.push_back(region.path.find("/communication") != std::string::npos);
            names.push_back(fmt::format(R"("name":{},"cat":{})", json(region.name), json(region.path)));
        }
        for (const TimedEvent& event : timeline_.events(part)) {
            const std::int64_t id = process(event.rank), duration = event.end - event.start;
            const auto region = static_cast<std::size_t>(event.region);
            std::string more;
            if (event.bytes > 0) more = fmt::format(R"(,"bytes":{})", event.bytes);
            // A GPU's transfers outlast the stretch that starts them.
            const bool on_gpu = !header.ranks[static_cast<std::size_t>(event.rank)].gpu.empty();
            if (event.bytes > 0 && duration > 0 && communicates[region] && !on_gpu)
                more +=
                    fmt::format(R"(,"GB/s":{:.4g})", static_cast<double>(event.bytes) / static_cast<double>(duration));
            entry(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},{},"args":{{"step":{}{}}}}})", id, id,
                              microseconds(event.start), microseconds(duration), names[region], event.step, more));
        }
    }

    void write_memory(std::size_t part) {
        timeline_.visit_memory(part, [&](std::int64_t time, std::size_t rank, const std::uint64_t* bytes) {
            entry(fmt::format(R"({{"ph":"C","pid":{},"name":"memory, bytes","ts":{},)"
                              R"("args":{{"allocated":{},"reserved":{},"peak":{}}}}})",
                              process(static_cast<std::int64_t>(rank)), microseconds(time), bytes[0], bytes[1],
                              bytes[2]));
        });
    }

    Timeline& timeline_;
    const trace::Run& run_;
    Output& output_;
    bool first_ = true;
    std::int64_t first_process_ = 0, ranks_ = 0;
};

}  // namespace

void write_chrome_trace(const trace::Run& run, Output& output) {
    Timeline timeline(run);
    ChromeTrace(timeline, output).write();
}

}  // namespace lockstep::analysis
