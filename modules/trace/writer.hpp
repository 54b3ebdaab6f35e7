// Writes the trace files of one launch; rank 0 only, serial. A file is laid out once and filled by pwrite, the count of
// valid rows last, so that it stays readable if the process is killed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/open_file.hpp"
#include "trace/layout.hpp"

namespace lockstep::trace {

// Rows of consecutive steps, laid out as in the datasets: step, rank, region.
struct RowBatch {
    std::vector<StepRow> steps;
    std::vector<double> rank_loss, overhead;  // [steps, ranks]
    std::vector<double> times;                // [steps, ranks, regions], seconds
    std::vector<std::uint32_t> calls;         // [steps, ranks, regions]
    std::vector<std::uint64_t> memory;        // [steps, ranks, 3]: allocated, reserved, peak; bytes
    std::vector<EventRow> events;
};

// Failures throw fault errors; what was written before stays readable.
class TraceWriter {
  public:
    // Takes the next free trace-NNN.h5 of `folder` (created if missing); `rows`: expected number of steps.
    TraceWriter(std::string folder, Header header, std::uint64_t rows, WriterLimits limits = {});

    // Whether append() will begin no other file, which takes HDF5. Looks only at `steps` and `events`.
    bool fits_current_file(const RowBatch& batch) const;
    // Of more events than a file has room for, the first ones are kept.
    void append(const RowBatch& batch);
    // Adds times measured after the last row to it: times and calls [ranks, regions], overhead [ranks].
    void add_to_last_row(const std::vector<double>& times, const std::vector<std::uint32_t>& calls,
                         const std::vector<double>& overhead);
    // Marks the files as closed and truncates each to its valid rows. Ends the writer's use.
    void finish();
    const std::string& path() const { return path_; }  // of the current file

  private:
    struct Done {
        std::string path;
        Header header;
        Offsets offsets;
        std::uint64_t rows = 0, row_capacity = 0, events = 0, event_capacity = 0;
    };
    bool events_need_another_file(const std::vector<EventRow>& events) const;
    void begin_file();
    void write_rows(const RowBatch& batch, std::size_t first, std::size_t count);
    void write_events(const std::vector<EventRow>& events);
    void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
    static void trim(const Done& file);
    static void copy_valid_rows(const Done& file, const std::string& shorter);

    std::string folder_;
    Header header_;
    WriterLimits limits_;
    std::uint64_t rows_expected_;
    std::vector<Done> full_;  // this launch's earlier files
    std::string path_;
    Offsets offsets_;
    OpenFile file_;
    std::uint64_t row_capacity_ = 0, event_capacity_ = 0, rows_ = 0, events_ = 0;
};

}  // namespace lockstep::trace
