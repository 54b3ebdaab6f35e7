#include "trace/writer.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.hpp"

namespace lockstep::trace {
namespace {

// A partial file must not take up space on a full disk.
template <class Body>
void removed_on_error(const std::string& path, const Body& body) {
    try {
        body();
    } catch (const Error&) {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
        throw;
    }
}

std::string file_name(const std::string& folder, std::int64_t number) {
    return fmt::format("{}/trace-{:03}.h5", folder, number);
}

}  // namespace

TraceWriter::TraceWriter(std::string folder, Header header, std::uint64_t rows, WriterLimits limits)
    : folder_(std::move(folder)), header_(std::move(header)), limits_(limits), rows_expected_(rows) {
    std::error_code problem;
    std::filesystem::create_directories(folder_, problem);
    if (problem) throw fault_error("cannot create the folder {}: {}", folder_, problem.message());
    begin_file();
}

void TraceWriter::begin_file() {
    const auto files = trace_files(folder_);
    path_ = file_name(folder_, files.empty() ? 1 : files.back().number + 1);
    const std::uint64_t fitting = limits_.file_bytes / bytes_per_row(header_);
    row_capacity_ = std::max(std::min(rows_expected_, fitting), limits_.fewest_rows);
    event_capacity_ = header_.event_every > 0 ? limits_.event_bytes / sizeof(EventRow) : 0;
    rows_ = events_ = 0;
    // Under a temporary name until complete: a kill during HDF5 writes must not leave an unreadable trace.
    const std::string unfinished = path_ + ".tmp";
    removed_on_error(unfinished, [&] {
        offsets_ = lay_out(unfinished, header_, row_capacity_, event_capacity_);
        rename_file(unfinished, path_);
    });
    file_ = OpenFile::for_writing(path_);
}

void TraceWriter::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
    fail_if_injected("trace_write", path_);
    file_.write(data, bytes, offset);
}

void TraceWriter::write_rows(const RowBatch& batch, std::size_t first, std::size_t count) {
    const std::size_t ranks = header_.ranks.size(), cells = ranks * header_.regions.size();
    const auto part = [&](std::uint64_t offset, const auto& values, std::size_t per_row) {
        const std::size_t bytes = per_row * sizeof(values[0]);
        if (bytes > 0) write_at(offset + rows_ * bytes, values.data() + first * per_row, count * bytes);
    };
    part(offsets_.steps, batch.steps, 1);
    part(offsets_.rank_loss, batch.rank_loss, ranks);
    part(offsets_.times, batch.times, cells);
    part(offsets_.calls, batch.calls, cells);
    part(offsets_.memory, batch.memory, ranks * 3);
    part(offsets_.overhead, batch.overhead, ranks);
    rows_ += count;
    rows_expected_ -= std::min<std::uint64_t>(rows_expected_, count);
    const auto valid = static_cast<std::int64_t>(rows_);
    write_at(offsets_.valid_steps, &valid, sizeof valid);
}

void TraceWriter::write_events(const std::vector<EventRow>& events) {
    const std::uint64_t kept = std::min<std::uint64_t>(events.size(), event_capacity_ - events_);
    if (kept == 0) return;
    write_at(offsets_.events + events_ * sizeof(EventRow), events.data(), kept * sizeof(EventRow));
    events_ += kept;
    const auto valid = static_cast<std::int64_t>(events_);
    write_at(offsets_.valid_events, &valid, sizeof valid);
}

bool TraceWriter::events_need_another_file(const std::vector<EventRow>& events) const {
    return events_ > 0 && events.size() > event_capacity_ - events_;
}

bool TraceWriter::fits_current_file(const RowBatch& batch) const {
    return batch.steps.size() <= row_capacity_ - rows_ && !events_need_another_file(batch.events);
}

void TraceWriter::append(const RowBatch& batch) {
    const std::size_t count = batch.steps.size(), ranks = header_.ranks.size(), cells = ranks * header_.regions.size();
    LOCKSTEP_ASSERT(batch.rank_loss.size() == count * ranks && batch.overhead.size() == count * ranks);
    LOCKSTEP_ASSERT(batch.times.size() == count * cells && batch.calls.size() == count * cells);
    LOCKSTEP_ASSERT(batch.memory.size() == count * ranks * 3);
    for (std::size_t first = 0; first < count;) {
        if (rows_ == row_capacity_ || (rows_ > 0 && events_need_another_file(batch.events))) {
            file_.close();
            full_.push_back({path_, header_, offsets_, rows_, row_capacity_, events_, event_capacity_});
            ++header_.part;
            begin_file();
        }
        const std::size_t now = std::min<std::size_t>(count - first, row_capacity_ - rows_);
        write_rows(batch, first, now);
        first += now;
    }
    // Events last: an event's step is then always among the rows of this file or the previous one.
    write_events(batch.events);
}

void TraceWriter::add_to_last_row(const std::vector<double>& times, const std::vector<std::uint32_t>& calls,
                                  const std::vector<double>& overhead) {
    LOCKSTEP_ASSERT(rows_ > 0);
    const auto add = [&](std::uint64_t dataset, const auto& values) {
        if (values.empty()) return;
        const std::size_t bytes = values.size() * sizeof(values[0]);
        const std::uint64_t offset = dataset + (rows_ - 1) * bytes;
        auto sums = values;
        file_.read(sums.data(), bytes, offset);
        for (std::size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
        write_at(offset, sums.data(), bytes);
    };
    add(offsets_.times, times);
    add(offsets_.calls, calls);
    add(offsets_.overhead, overhead);
}

void TraceWriter::trim(const Done& file) {
    const std::string shorter = file.path + ".tmp";
    removed_on_error(shorter, [&] {
        copy_valid_rows(file, shorter);
        rename_file(shorter, file.path);
    });
}

// Rows lie in order, so a shorter dataset is the beginning of the longer one.
void TraceWriter::copy_valid_rows(const Done& file, const std::string& shorter) {
    const Offsets to = lay_out(shorter, file.header, file.rows, file.events);
    const Offsets& from = file.offsets;
    const std::uint64_t ranks = file.header.ranks.size(), cells = ranks * file.header.regions.size();
    const OpenFile source = OpenFile::for_reading(file.path);
    OpenFile target = OpenFile::for_writing(shorter);
    std::vector<char> piece;
    const auto copy = [&](std::uint64_t source_offset, std::uint64_t target_offset, std::uint64_t bytes) {
        constexpr std::uint64_t most = std::uint64_t{8} << 20;
        for (std::uint64_t done = 0; done < bytes; done += piece.size()) {
            piece.resize(std::min(most, bytes - done));
            source.read(piece.data(), piece.size(), source_offset + done);
            target.write(piece.data(), piece.size(), target_offset + done);
        }
    };
    copy(from.steps, to.steps, file.rows * sizeof(StepRow));
    copy(from.rank_loss, to.rank_loss, file.rows * ranks * sizeof(double));
    copy(from.times, to.times, file.rows * cells * sizeof(double));
    copy(from.calls, to.calls, file.rows * cells * sizeof(std::uint32_t));
    copy(from.memory, to.memory, file.rows * ranks * 3 * sizeof(std::uint64_t));
    copy(from.overhead, to.overhead, file.rows * ranks * sizeof(double));
    copy(from.events, to.events, file.events * sizeof(EventRow));
    const auto rows = static_cast<std::int64_t>(file.rows), events = static_cast<std::int64_t>(file.events);
    const std::int64_t closed = 1;
    target.write(&rows, sizeof rows, to.valid_steps);
    target.write(&events, sizeof events, to.valid_events);
    target.write(&closed, sizeof closed, to.closed);
    target.sync();  // some file systems report only here that there was no room
    target.close();
}

void TraceWriter::finish() {
    file_.close();
    full_.push_back({path_, header_, offsets_, rows_, row_capacity_, events_, event_capacity_});
    for (const Done& file : full_) trim(file);
    full_.clear();
}

}  // namespace lockstep::trace
