// Reads trace files: one file, or all of a run folder, joined. Files that were not closed (crash, kill, or a run in
// progress) are read up to their last flush. Usage errors for other input, damaged errors for incomplete traces.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hdf5/hdf5.hpp"
#include "trace/layout.hpp"

namespace lockstep::trace {

class TraceFile {
  public:
    explicit TraceFile(const std::string& path);
    const std::string& path() const { return file_.path(); }
    const Header& header() const { return header_; }
    std::size_t ranks() const { return header_.ranks.size(); }
    std::size_t regions() const { return header_.regions.size(); }
    const std::vector<StepRow>& steps() const { return steps_; }  // the valid rows, steps ascending
    bool closed() const { return closed_; }                       // false: killed, or still being written

    // `count` rows from `first`; the vectors are resized to [count, ranks, …].
    void read_times(std::size_t first, std::size_t count, std::vector<double>& seconds) const;
    void read_calls(std::size_t first, std::size_t count, std::vector<std::uint32_t>& calls) const;
    void read_rank_loss(std::size_t first, std::size_t count, std::vector<double>& losses) const;
    void read_memory(std::size_t first, std::size_t count, std::vector<std::uint64_t>& bytes) const;  // 3 per rank
    // Calls `take(row, ranks' memory, 3 numbers a rank)` for the rows before `rows`, a few MiB in memory at once.
    void visit_memory(std::size_t rows, const std::function<void(std::size_t, const std::uint64_t*)>& take) const;
    void read_overhead(std::size_t first, std::size_t count, std::vector<double>& seconds) const;
    std::vector<EventRow> read_events() const;

  private:
    hdf5::File file_;
    Header header_;
    std::vector<StepRow> steps_;
    std::size_t events_ = 0;
    bool closed_ = false;
};

// One file of a run and its number of valid rows: those that no later launch repeated.
struct RunPart {
    TraceFile file;
    std::size_t rows = 0;
    std::int64_t launch = 1;  // the launch that wrote it, from 1
};

struct Run {
    std::string path;            // as given
    std::vector<RunPart> parts;  // by step; at least one
    std::size_t superseded = 0;  // rows dropped because a later launch resumed before them
    std::int64_t launches = 0;
    const Header& header() const { return parts.back().file.header(); }  // of the last launch
    bool closed() const { return parts.back().file.closed(); }
};

// A run folder or one trace file.
Run open_run(const std::string& path);

}  // namespace lockstep::trace
