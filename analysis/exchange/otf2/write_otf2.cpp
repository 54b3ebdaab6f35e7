// Format: OTF2 3. Events first, since the clock's beginning and the number of events of each location are among the
// definitions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "analysis/exchange/formats.hpp"
#include "analysis/exchange/otf2/archive.hpp"
#include "analysis/exchange/timeline.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::uint64_t ticks_per_second = 1'000'000'000;
// Ranks whose events are written in one pass over the parts: each holds 256 KiB.
constexpr std::size_t ranks_at_once = 256;
constexpr OTF2_AttributeRef step_attribute = 0;
constexpr OTF2_MetricRef memory_class = 0;  // its instances follow, one for each rank

// What OTF2 calls a region. GPUs exchange by NCCL or by MPI, which the trace does not tell.
struct Kind {
    OTF2_RegionRole role = OTF2_REGION_ROLE_CODE;
    OTF2_Paradigm paradigm = OTF2_PARADIGM_USER;
};
Kind kind_of(const std::string& path, bool on_gpus) {
    const std::string communication = "epoch/step/communication";
    if (path == "epoch/step/data_loading" || path == "checkpoint") return {OTF2_REGION_ROLE_FILE_IO};
    const OTF2_Paradigm movement = on_gpus ? OTF2_PARADIGM_CUDA : OTF2_PARADIGM_USER;
    if (path == "epoch/step/data_movement") return {OTF2_REGION_ROLE_DATA_TRANSFER, movement};
    if (!path.starts_with(communication + "/")) return {};
    const OTF2_Paradigm paradigm = on_gpus ? OTF2_PARADIGM_USER : OTF2_PARADIGM_MPI;
    if (path == communication + "/pipeline") return {OTF2_REGION_ROLE_POINT2POINT, paradigm};
    if (path == communication + "/control") return {OTF2_REGION_ROLE_COLL_ALL2ALL, paradigm};
    return {OTF2_REGION_ROLE_COLL_OTHER, paradigm};
}

// "model.mixer" becomes LOCKSTEP::MODEL::MIXER; what OTF2 does not take in names becomes "_".
std::string property_name(const std::string& key) {
    std::string name = "LOCKSTEP::";
    for (const char letter : key) {
        const auto byte = static_cast<unsigned char>(letter);
        if (letter == '.')
            name += "::";
        else
            name += byte < 128 && std::isalnum(byte) != 0 ? static_cast<char>(std::toupper(byte)) : '_';
    }
    return name.ends_with("::") ? name + "_" : name;
}

struct Launch {
    std::size_t first_part = 0, end_part = 0, ranks = 0;
    OTF2_LocationRef first_location = 0;     // of its ranks, one after another
    OTF2_MetricRef first_instance = 0;       // of its ranks' memory
    std::optional<OTF2_LocationRef> memory;  // behind the ranks of all launches, where any was measured
};

class Otf2Trace {
  public:
    Otf2Trace(Timeline& timeline, Otf2Archive& archive) : timeline_(timeline), run_(timeline.run()), archive_(archive) {
        for (std::size_t i = 0; i < run_.parts.size(); ++i) {
            const trace::RunPart& part = run_.parts[i];
            if (i == 0 || part.launch != run_.parts[i - 1].launch) {
                launches_.push_back({i, i, part.file.ranks(), event_counts_.size(), 0, std::nullopt});
                event_counts_.resize(event_counts_.size() + part.file.ranks());
            }
            launches_.back().end_part = i + 1;
            for (const auto& rank : part.file.header().ranks) on_gpus_ = on_gpus_ || !rank.gpu.empty();
        }
    }

    void write() {
        measure();
        for (Launch& launch : launches_) {
            for (std::size_t rank = 0; rank < launch.ranks; rank += ranks_at_once)
                write_events(launch, rank, std::min(rank + ranks_at_once, launch.ranks));
            write_memory(launch);
        }
        archive_.end_events();
        for (OTF2_LocationRef location = 0; location < event_counts_.size(); ++location)
            archive_.write_empty_definitions(location);
        define_clock();
        const OTF2_StringRef step = archive_.string("step"), words = archive_.string("the step it belongs to");
        archive_.check(
            OTF2_GlobalDefWriter_WriteAttribute(archive_.definitions(), step_attribute, step, words, OTF2_TYPE_INT64));
        define_regions();
        define_memory();
        for (const Launch& launch : launches_) define_ranks(launch);
        for (const Launch& launch : launches_)
            if (launch.memory) define_memory_of(launch);
        write_properties();
        timeline_.warn();
        if (disordered_ > 0)
            log::warning("{}: left out {} event{} from before the end of an earlier trace file or step", run_.path,
                         disordered_, plural(disordered_));
    }

  private:
    struct Stream {
        OTF2_EvtWriter* writer = nullptr;
        std::int64_t last = std::numeric_limits<std::int64_t>::min();  // time of its last event
    };
    struct Open {
        std::int64_t end = 0;
        OTF2_RegionRef region = 0;
    };

    // OTF2's times are from 0 upwards; a run's may begin before rank 0's clock zero.
    std::uint64_t ticks(std::int64_t time) const {
        return static_cast<std::uint64_t>(time) - static_cast<std::uint64_t>(earliest_);
    }

    void measure() {
        const auto take = [&](std::int64_t time) {
            earliest_ = std::min(earliest_, time);
            latest_ = std::max(latest_, time);
        };
        for (std::size_t i = 0; i < run_.parts.size(); ++i) {
            for (const TimedEvent& event : timeline_.events(i)) {
                take(event.start);
                take(event.end);
            }
            for (std::size_t row = 0; row < run_.parts[i].rows; ++row)
                if (const auto time = timeline_.row_end(i, row)) take(*time);
        }
        if (earliest_ > latest_) earliest_ = latest_ = 0;
    }

    // Of the header's regions, which may be others in each part.
    std::vector<OTF2_RegionRef> regions_of(std::size_t part) {
        std::vector<OTF2_RegionRef> refs;
        for (const auto& region : run_.parts[part].file.header().regions) {
            const auto [at, is_new] = regions_.emplace(region.path, static_cast<OTF2_RegionRef>(regions_.size()));
            refs.push_back(at->second);
        }
        return refs;
    }

    void write_events(const Launch& launch, std::size_t first, std::size_t end) {
        std::vector<Stream> streams(end - first);
        for (std::size_t i = 0; i < streams.size(); ++i)
            streams[i].writer = archive_.open_location(launch.first_location + first + i);
        for (std::size_t part = launch.first_part; part < launch.end_part; ++part) {
            const std::vector<OTF2_RegionRef> regions = regions_of(part);
            const std::vector<TimedEvent> events = timeline_.events(part);
            const auto before = [](const TimedEvent& event, std::size_t rank) {
                return static_cast<std::size_t>(event.rank) < rank;
            };
            auto at = std::lower_bound(events.begin(), events.end(), first, before);
            for (std::size_t i = 0; i < streams.size(); ++i) {
                const auto behind = std::lower_bound(at, events.end(), first + i + 1, before);
                write_stretches(streams[i], {at, behind}, regions);
                at = behind;
            }
        }
        for (std::size_t i = 0; i < streams.size(); ++i)
            event_counts_[launch.first_location + first + i] = archive_.close_location(streams[i].writer);
    }

    void leave(Stream& stream, std::vector<Open>& open) {
        archive_.check(OTF2_EvtWriter_Leave(stream.writer, nullptr, ticks(open.back().end), open.back().region));
        stream.last = open.back().end;
        open.pop_back();
    }

    // Of one rank; the time line has seen to it that they are nested.
    void write_stretches(Stream& stream, std::span<const TimedEvent> events,
                         const std::vector<OTF2_RegionRef>& regions) {
        std::vector<Open> open;  // outermost first
        const std::int64_t begin = stream.last;
        for (const TimedEvent& event : events) {
            if (event.start < begin) {
                ++disordered_;
                continue;
            }
            while (!open.empty() && open.back().end <= event.start) leave(stream, open);
            const OTF2_RegionRef region = regions[static_cast<std::size_t>(event.region)];
            archive_.check(OTF2_AttributeList_AddInt64(attributes_.get(), step_attribute, event.step));
            archive_.check(OTF2_EvtWriter_Enter(stream.writer, attributes_.get(), ticks(event.start), region));
            stream.last = event.start;
            open.push_back({event.end, region});
        }
        while (!open.empty()) leave(stream, open);
    }

    // Rank 0 writes down the memory of all ranks at the end of a row. It is in a location of its own, since the events
    // of a step may be in a later part than its row.
    void write_memory(Launch& launch) {
        Stream stream;
        for (std::size_t part = launch.first_part; part < launch.end_part; ++part)
            timeline_.visit_memory(part, [&](std::int64_t time, std::size_t rank, const std::uint64_t* bytes) {
                if (rank >= launch.ranks) return;  // in a damaged file
                if (time < stream.last) {
                    ++disordered_;
                    return;
                }
                if (!launch.memory) {
                    launch.memory = event_counts_.size();
                    event_counts_.push_back(0);
                    launch.first_instance = next_instance_;
                    next_instance_ += static_cast<OTF2_MetricRef>(launch.ranks);
                    stream.writer = archive_.open_location(*launch.memory);
                }
                stream.last = time;
                const std::array<OTF2_Type, 3> types = {OTF2_TYPE_UINT64, OTF2_TYPE_UINT64, OTF2_TYPE_UINT64};
                std::array<OTF2_MetricValue, 3> values{};
                for (std::size_t i = 0; i < values.size(); ++i) values[i].unsigned_int = bytes[i];
                archive_.check(OTF2_EvtWriter_Metric(stream.writer, nullptr, ticks(time), memory_of(launch, rank),
                                                     values.size(), types.data(), values.data()));
            });
        if (launch.memory) event_counts_[*launch.memory] = archive_.close_location(stream.writer);
    }

    static OTF2_MetricRef memory_of(const Launch& launch, std::size_t rank) {
        return static_cast<OTF2_MetricRef>(launch.first_instance + rank);
    }

    void define_clock() {
        std::uint64_t since_1970 = OTF2_UNDEFINED_TIMESTAMP;
        const double start = run_.parts.front().file.header().start_time;
        if (start > 0 && start < 4e9)
            since_1970 = static_cast<std::uint64_t>(std::llround(start * 1e9)) + static_cast<std::uint64_t>(earliest_);
        archive_.check(OTF2_GlobalDefWriter_WriteClockProperties(archive_.definitions(), ticks_per_second, 0,
                                                                 ticks(latest_) + 1, since_1970));
    }

    void define_regions() {
        // otf2-print wants definitions in the order of their numbers.
        std::vector<const std::string*> paths(regions_.size());
        for (const auto& [path, ref] : regions_) paths[ref] = &path;
        const OTF2_StringRef none = archive_.string("");
        for (OTF2_RegionRef ref = 0; ref < paths.size(); ++ref) {
            const Kind kind = kind_of(*paths[ref], on_gpus_);
            const OTF2_StringRef name = archive_.string(*paths[ref]);
            archive_.check(OTF2_GlobalDefWriter_WriteRegion(archive_.definitions(), ref, name, name, none, kind.role,
                                                            kind.paradigm, OTF2_REGION_FLAG_NONE, none, 0, 0));
        }
    }

    void define_memory() {
        struct Member {
            const char *name, *description;
        };
        constexpr std::array<Member, 3> members = {{{"memory allocated", "in use at the end of the step"},
                                                    {"memory reserved", "taken from the system at the end of the step"},
                                                    {"memory peak", "the most in use up to then"}}};
        const OTF2_StringRef unit = archive_.string("bytes");
        std::array<OTF2_MetricMemberRef, members.size()> refs{};
        for (std::size_t i = 0; i < members.size(); ++i) {
            refs[i] = static_cast<OTF2_MetricMemberRef>(i);
            const OTF2_StringRef name = archive_.string(members[i].name);
            const OTF2_StringRef description = archive_.string(members[i].description);
            archive_.check(OTF2_GlobalDefWriter_WriteMetricMember(archive_.definitions(), refs[i], name, description,
                                                                  OTF2_METRIC_TYPE_OTHER, OTF2_METRIC_ABSOLUTE_POINT,
                                                                  OTF2_TYPE_UINT64, OTF2_BASE_DECIMAL, 0, unit));
        }
        archive_.check(OTF2_GlobalDefWriter_WriteMetricClass(archive_.definitions(), memory_class, refs.size(),
                                                             refs.data(), OTF2_METRIC_ASYNCHRONOUS,
                                                             OTF2_RECORDER_KIND_ABSTRACT));
    }

    OTF2_SystemTreeNodeRef node(const std::string& host) {
        const auto define = [&](OTF2_SystemTreeNodeRef ref, const std::string& name, const char* kind,
                                OTF2_SystemTreeNodeRef parent, OTF2_SystemTreeDomain domain) {
            const OTF2_StringRef of_name = archive_.string(name), of_kind = archive_.string(kind);
            archive_.check(
                OTF2_GlobalDefWriter_WriteSystemTreeNode(archive_.definitions(), ref, of_name, of_kind, parent));
            archive_.check(OTF2_GlobalDefWriter_WriteSystemTreeNodeDomain(archive_.definitions(), ref, domain));
        };
        if (nodes_.empty())
            define(0, "machine", "machine", OTF2_UNDEFINED_SYSTEM_TREE_NODE, OTF2_SYSTEM_TREE_DOMAIN_MACHINE);
        const auto [at, is_new] = nodes_.emplace(host, static_cast<OTF2_SystemTreeNodeRef>(nodes_.size() + 1));
        if (is_new)
            define(at->second, host.empty() ? "unknown" : host, "node", 0, OTF2_SYSTEM_TREE_DOMAIN_SHARED_MEMORY);
        return at->second;
    }

    void define_ranks(const Launch& launch) {
        const trace::RunPart& part = run_.parts[launch.first_part];
        for (std::size_t rank = 0; rank < launch.ranks; ++rank) {
            const trace::RankRow& row = part.file.header().ranks[rank];
            const OTF2_LocationRef location = launch.first_location + rank;
            const auto group = static_cast<OTF2_LocationGroupRef>(location);
            std::string words = fmt::format("rank {}", rank);
            if (run_.launches > 1) words = fmt::format("launch {}, {}", part.launch, words);
            const OTF2_StringRef name = archive_.string(words);
            const OTF2_SystemTreeNodeRef host = node(row.host);
            archive_.check(OTF2_GlobalDefWriter_WriteLocationGroup(archive_.definitions(), group, name,
                                                                   OTF2_LOCATION_GROUP_TYPE_PROCESS, host,
                                                                   OTF2_UNDEFINED_LOCATION_GROUP));
            archive_.check(OTF2_GlobalDefWriter_WriteLocation(
                archive_.definitions(), location, name, OTF2_LOCATION_TYPE_CPU_THREAD, event_counts_[location], group));
            describe(group, "gpu", row.gpu);
            describe(group, "cores", row.cores);
            for (const auto& [key, place] : {std::pair{"data", row.data},
                                             {"tensor", row.tensor},
                                             {"pipeline", row.pipeline},
                                             {"context", row.context}})
                describe(group, key, fmt::format("{}", place));
        }
    }

    void define_memory_of(const Launch& launch) {
        const OTF2_StringRef name = archive_.string("memory of all ranks");
        const auto group = static_cast<OTF2_LocationGroupRef>(launch.first_location);  // rank 0's
        archive_.check(OTF2_GlobalDefWriter_WriteLocation(archive_.definitions(), *launch.memory, name,
                                                          OTF2_LOCATION_TYPE_METRIC, event_counts_[*launch.memory],
                                                          group));
        for (std::size_t rank = 0; rank < launch.ranks; ++rank)
            archive_.check(OTF2_GlobalDefWriter_WriteMetricInstance(
                archive_.definitions(), memory_of(launch, rank), memory_class, *launch.memory,
                OTF2_SCOPE_LOCATION_GROUP, launch.first_location + rank));
    }

    void describe(OTF2_LocationGroupRef group, const char* key, const std::string& value) {
        if (value.empty()) return;
        const OTF2_StringRef name = archive_.string(key);
        OTF2_AttributeValue text{};
        text.stringRef = archive_.string(value);
        archive_.check(OTF2_GlobalDefWriter_WriteLocationGroupProperty(archive_.definitions(), group, name,
                                                                       OTF2_TYPE_STRING, text));
    }

    void write_properties() {
        const trace::Header& header = run_.header();
        archive_.check(OTF2_Archive_SetDescription(archive_.get(), otf2_text("run " + header.run_name).c_str()));
        std::set<std::string> taken;
        for (const auto& [key, value] : settings_of(header)) {
            if (value.empty()) continue;  // OTF2 takes it for the wish to remove the property
            std::string name = property_name(key);
            for (int again = 2; !taken.insert(name).second; ++again)
                name = fmt::format("{}_{}", property_name(key), again);
            archive_.check(OTF2_Archive_SetProperty(archive_.get(), name.c_str(), otf2_text(value).c_str(), false));
        }
    }

    Timeline& timeline_;
    const trace::Run& run_;
    Otf2Archive& archive_;
    const std::unique_ptr<OTF2_AttributeList, decltype(&OTF2_AttributeList_Delete)> attributes_{
        OTF2_AttributeList_New(), OTF2_AttributeList_Delete};  // of the event that is written next
    bool on_gpus_ = false;
    std::vector<Launch> launches_;
    std::vector<std::uint64_t> event_counts_;  // of each location
    OTF2_MetricRef next_instance_ = memory_class + 1;
    std::int64_t earliest_ = std::numeric_limits<std::int64_t>::max();
    std::int64_t latest_ = std::numeric_limits<std::int64_t>::min();
    std::map<std::string, OTF2_RegionRef> regions_;        // by path
    std::map<std::string, OTF2_SystemTreeNodeRef> nodes_;  // by host
    std::size_t disordered_ = 0;
};

}  // namespace

void write_otf2(const trace::Run& run, const OutputFolder& folder) {
    Timeline timeline(run);
    Otf2Archive archive(folder.unfinished(), folder.path());
    Otf2Trace(timeline, archive).write();
    archive.finish();
}

}  // namespace lockstep::analysis
