// The layout of a trace file (docs/trace.md): records shared by writer and reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hdf5/hdf5.hpp"
#include "trace/records.hpp"

namespace lockstep::trace {

inline constexpr const char* format_name = "lockstep-trace";
inline constexpr std::int64_t format_version = 1;

// One row of /steps.
struct StepRow : StepRecord {
    double wall_time = 0;  // seconds since 1970 when rank 0 closed the row
};

// One row of /ranks. The rank's clock is ahead of rank 0's by `clock_offset` seconds, ± clock_error.
struct RankRow : RankRecord {
    double clock_offset = 0, clock_error = 0;
};

// One row of /regions; parents come before their children, roots have parent -1.
struct RegionRow {
    std::int64_t id = 0, parent = -1;
    std::string name, path;
};

// One row of /events: an uninterrupted span of a region, in seconds since rank 0's clock zero.
struct EventRow {
    std::int64_t step = 0;
    std::int32_t rank = 0, region = 0;
    double start = 0, end = 0;
    std::uint64_t bytes = 0;  // communicated by this rank within it; files of earlier versions have none
};

struct Header {
    std::string run_name, description;  // the resolved run description (TOML)
    std::string program_version, commit;
    std::string detail = "phase";
    double start_time = 0;  // seconds since 1970 at rank 0's clock zero
    std::int64_t event_every = 0;
    std::int64_t part = 0;                // index of the file within its launch
    std::int64_t trained_parameters = 0;  // of the whole model; 0: unknown
    std::vector<RankRow> ranks;
    std::vector<RegionRow> regions;

    bool is_imported() const { return detail == imported_detail; }  // made of a table, not by a run
    static constexpr const char* imported_detail = "imported";
};

// File offsets of the datasets.
struct Offsets {
    std::uint64_t steps = 0, rank_loss = 0, times = 0, calls = 0, memory = 0, overhead = 0, events = 0;
    std::uint64_t valid_steps = 0, valid_events = 0, closed = 0;
};

const hdf5::RecordType& step_record();
const hdf5::RecordType& event_record();

// Bytes per step in all datasets but /events.
std::uint64_t bytes_per_row(const Header& header);

// Creates and closes `path` with space for this many rows and events, none valid yet. Throws fault errors.
Offsets lay_out(const std::string& path, const Header& header, std::uint64_t rows, std::uint64_t events);

// Damaged error for a dataset of so many bytes of which the file cannot have all, so that no memory is taken for it.
void check_stored(const hdf5::File& file, const std::string& name, const hdf5::DatasetInfo& about, std::uint64_t bytes);

// The tables /ranks and /regions, and the attributes of /run, of a file opened for reading.
Header read_header(const hdf5::File& file);

// The trace-NNN.h5 files of a folder, by number.
struct NumberedFile {
    std::int64_t number = 0;
    std::string path;
};
std::vector<NumberedFile> trace_files(const std::string& folder);

}  // namespace lockstep::trace
