#include "trace/layout.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <variant>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/open_file.hpp"

namespace lockstep::trace {
namespace {

using hdf5::ElementType;

constexpr std::size_t widest_text = 1024;  // bytes of a text field; longer text is cut

// A field of a table of records; monostate: the row's number.
template <class Row>
struct Column {
    const char* name;
    std::variant<std::monostate, std::int64_t Row::*, double Row::*, std::string Row::*> member;
};
template <class Row>
using Columns = std::vector<Column<Row>>;

const Columns<RankRow>& rank_columns() {
    static const Columns<RankRow> columns = {{"rank", {}},
                                             {"host", &RankRow::host},
                                             {"cores", &RankRow::cores},
                                             {"numa_node", &RankRow::numa_node},
                                             {"gpu", &RankRow::gpu},
                                             {"data", &RankRow::data},
                                             {"tensor", &RankRow::tensor},
                                             {"pipeline", &RankRow::pipeline},
                                             {"context", &RankRow::context},
                                             {"threads", &RankRow::threads},
                                             {"clock_offset", &RankRow::clock_offset},
                                             {"clock_error", &RankRow::clock_error},
                                             {"network", &RankRow::network}};
    return columns;
}

const Columns<RegionRow>& region_columns() {
    static const Columns<RegionRow> columns = {
        {"id", &RegionRow::id}, {"parent", &RegionRow::parent}, {"name", &RegionRow::name}, {"path", &RegionRow::path}};
    return columns;
}

// Texts have `text_bytes`.
template <class Row>
hdf5::RecordType record_of(const Columns<Row>& columns, std::size_t text_bytes) {
    hdf5::RecordType type;
    for (const auto& [name, member] : columns) {
        const bool text = std::holds_alternative<std::string Row::*>(member);
        const auto number = std::holds_alternative<double Row::*>(member) ? ElementType::fp64 : ElementType::int64;
        type.fields.push_back({name, text ? ElementType::uint8 : number, type.bytes, text ? text_bytes : 0});
        type.bytes += text ? (text_bytes + 7) / 8 * 8 : 8;
    }
    return type;
}

template <class Row>
void write_rows(hdf5::File& file, const std::string& name, const Columns<Row>& columns, const std::vector<Row>& rows) {
    std::size_t longest = 8;
    for (const Row& row : rows)
        for (const auto& column : columns)
            if (const auto* text = std::get_if<std::string Row::*>(&column.member))
                longest = std::max(longest, (row.**text).size());
    const std::size_t text_bytes = std::min(longest, widest_text);
    const hdf5::RecordType type = record_of(columns, text_bytes);
    std::vector<char> records(rows.size() * type.bytes, 0);
    for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::size_t c = 0; c < columns.size(); ++c) {
            char* field = records.data() + i * type.bytes + type.fields[c].offset;
            const auto put = [&](const auto& value) { std::memcpy(field, &value, sizeof value); };
            if (const auto* integer = std::get_if<std::int64_t Row::*>(&columns[c].member))
                put(rows[i].**integer);
            else if (const auto* number = std::get_if<double Row::*>(&columns[c].member))
                put(rows[i].**number);
            else if (const auto* text = std::get_if<std::string Row::*>(&columns[c].member))
                std::memcpy(field, (rows[i].**text).data(), std::min((rows[i].**text).size(), text_bytes));
            else
                put(static_cast<std::int64_t>(i));
        }
    file.create_dataset(name, type, {rows.size()});
    file.write(name, records.data());
}

// Rows of a one-dimensional dataset of records; rejects impossible numbers.
std::size_t table_rows(const hdf5::File& file, const std::string& name) {
    constexpr std::uint64_t most = 1u << 17;
    if (!file.exists(name)) throw damaged_error("{} is damaged: /{} is missing", file.path(), name);
    const auto about = file.info(name);
    constexpr std::size_t fewest_bytes = 8;  // of a row: every column has as many
    if (about.dimensions.size() != 1 || about.dimensions[0] > most || about.type_name != "record" ||
        about.element_bytes < fewest_bytes)
        throw damaged_error("{} is damaged: /{} is not a table", file.path(), name);
    check_stored(file, name, about, about.bytes);
    return about.dimensions[0];
}

template <class Row>
void take_row(const Columns<Row>& columns, const hdf5::RecordType& type, const char* record, Row& row) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
        const char* field = record + type.fields[c].offset;
        const auto get = [&](auto& value) { std::memcpy(&value, field, sizeof value); };
        if (const auto* integer = std::get_if<std::int64_t Row::*>(&columns[c].member))
            get(row.**integer);
        else if (const auto* number = std::get_if<double Row::*>(&columns[c].member))
            get(row.**number);
        else if (const auto* text = std::get_if<std::string Row::*>(&columns[c].member))
            (row.**text).assign(field, strnlen(field, widest_text));
    }
}

template <class Row>
std::vector<Row> read_rows(const hdf5::File& file, const std::string& name, const Columns<Row>& columns) {
    const hdf5::RecordType type = record_of(columns, widest_text);
    std::vector<Row> rows(table_rows(file, name));
    // In memory texts are as wide as they can be, which is many times what the file has of most.
    constexpr std::size_t block = 128;
    for (std::size_t first = 0; first < rows.size(); first += block) {
        const std::size_t count = std::min(block, rows.size() - first);
        std::vector<char> records(count * type.bytes, 0);
        file.read_rows(name, type, first, count, records.data());
        for (std::size_t i = 0; i < count; ++i)
            take_row(columns, type, records.data() + i * type.bytes, rows[first + i]);
    }
    return rows;
}

// What a user can put right.
bool is_mistake(const std::error_code& problem) {
    return problem == std::errc::permission_denied || problem == std::errc::too_many_symbolic_link_levels ||
           problem == std::errc::filename_too_long;
}

}  // namespace

const hdf5::RecordType& step_record() {
    static const hdf5::RecordType type = [] {
        // offsetof is conditionally supported for a derived struct, so the addresses are taken from an object.
        const StepRow row;
        const auto at = [&row](const auto& field) {
            return static_cast<std::size_t>(reinterpret_cast<const char*>(&field) -
                                            reinterpret_cast<const char*>(&row));
        };
        hdf5::RecordType record;
        record.bytes = sizeof(StepRow);
        record.fields = {{"step", ElementType::int64, at(row.step)},
                         {"epoch", ElementType::int64, at(row.epoch)},
                         {"loss", ElementType::fp64, at(row.loss)},
                         {"learning_rate", ElementType::fp64, at(row.learning_rate)},
                         {"gradient_norm", ElementType::fp64, at(row.gradient_norm)},
                         {"tokens", ElementType::int64, at(row.tokens)},
                         {"batch", ElementType::int64, at(row.batch)},
                         {"loss_scale", ElementType::fp64, at(row.loss_scale)},
                         {"skipped", ElementType::int64, at(row.skipped)},
                         {"seconds", ElementType::fp64, at(row.seconds)},
                         {"model_flop", ElementType::fp64, at(row.model_flop)},
                         {"hardware_flop", ElementType::fp64, at(row.hardware_flop)},
                         {"wall_time", ElementType::fp64, at(row.wall_time)},
                         {"validation_loss", ElementType::fp64, at(row.validation.loss)},
                         {"validation_bits_per_byte", ElementType::fp64, at(row.validation.bits_per_byte)},
                         {"validation_tokens", ElementType::int64, at(row.validation.tokens)},
                         {"joules", ElementType::fp64, at(row.joules)},
                         {"instructions", ElementType::fp64, at(row.instructions)},
                         {"cycles", ElementType::fp64, at(row.cycles)},
                         {"processor_seconds", ElementType::fp64, at(row.processor_seconds)}};
        return record;
    }();
    return type;
}

const hdf5::RecordType& event_record() {
    static const hdf5::RecordType type = {{{"step", ElementType::int64, offsetof(EventRow, step)},
                                           {"rank", ElementType::int32, offsetof(EventRow, rank)},
                                           {"region", ElementType::int32, offsetof(EventRow, region)},
                                           {"start", ElementType::fp64, offsetof(EventRow, start)},
                                           {"end", ElementType::fp64, offsetof(EventRow, end)},
                                           {"bytes", ElementType::uint64, offsetof(EventRow, bytes)}},
                                          sizeof(EventRow)};
    return type;
}

std::uint64_t bytes_per_row(const Header& header) {
    const std::uint64_t ranks = header.ranks.size(), regions = header.regions.size();
    constexpr std::uint64_t of_rank = 2 * sizeof(double) + 3 * sizeof(std::uint64_t);  // loss, overhead; memory
    return sizeof(StepRow) + ranks * (of_rank + regions * (sizeof(double) + sizeof(std::uint32_t)));
}

Offsets lay_out(const std::string& path, const Header& header, std::uint64_t rows, std::uint64_t events) {
    const std::uint64_t ranks = header.ranks.size(), regions = header.regions.size();
    hdf5::File file = hdf5::File::create(path);
    file.write_attribute("/", "format", std::string(format_name));
    file.write_attribute("/", "format_version", format_version);
    file.write_attribute("/", "program_version", header.program_version);
    file.write_attribute("/", "commit", header.commit);
    file.make_group("run");
    file.write_attribute("run", "name", header.run_name);
    file.write_attribute("run", "description", header.description);
    file.write_attribute("run", "start_time", header.start_time);
    file.write_attribute("run", "start", calendar_time(header.start_time));
    file.write_attribute("run", "detail", header.detail);
    file.write_attribute("run", "event_every", header.event_every);
    file.write_attribute("run", "part", header.part);
    if (header.trained_parameters > 0) file.write_attribute("run", "trained_parameters", header.trained_parameters);
    write_rows(file, "ranks", rank_columns(), header.ranks);
    write_rows(file, "regions", region_columns(), header.regions);
    file.create_dataset("steps", step_record(), {rows});
    file.create_dataset("rank_loss", ElementType::fp64, {rows, ranks});
    file.create_dataset("times", ElementType::fp64, {rows, ranks, regions});
    file.create_dataset("calls", ElementType::uint32, {rows, ranks, regions});
    file.create_dataset("memory", ElementType::uint64, {rows, ranks, 3});
    file.create_dataset("overhead", ElementType::fp64, {rows, ranks});
    file.create_dataset("events", event_record(), {events});
    const std::int64_t none = 0;
    for (const char* name : {"valid_steps", "valid_events", "closed"}) {
        file.create_dataset(name, ElementType::int64, {});
        file.write(name, &none);
    }
    Offsets offsets;
    offsets.steps = file.info("steps").offset;
    offsets.rank_loss = file.info("rank_loss").offset;
    offsets.times = file.info("times").offset;
    offsets.calls = file.info("calls").offset;
    offsets.memory = file.info("memory").offset;
    offsets.overhead = file.info("overhead").offset;
    offsets.events = file.info("events").offset;
    offsets.valid_steps = file.info("valid_steps").offset;
    offsets.valid_events = file.info("valid_events").offset;
    offsets.closed = file.info("closed").offset;
    file.close();
    return offsets;
}

void check_stored(const hdf5::File& file, const std::string& name, const hdf5::DatasetInfo& about,
                  std::uint64_t bytes) {
    // Another program may have compressed a trace; 1,032 is the most that deflate makes of a byte.
    constexpr std::uint64_t most_of_a_byte = 1032;
    const std::uint64_t most = about.contiguous ? file_bytes(file.path()) : about.stored * most_of_a_byte;
    if (bytes > most) throw damaged_error("{} is truncated: /{} extends past its end", file.path(), name);
}

Header read_header(const hdf5::File& file) {
    Header header;
    header.program_version = file.read_string("/", "program_version");
    header.commit = file.read_string("/", "commit");
    header.run_name = file.read_string("run", "name");
    header.description = file.read_string("run", "description");
    header.start_time = file.read_number("run", "start_time");
    header.detail = file.read_string("run", "detail");
    header.event_every = file.read_integer("run", "event_every");
    header.part = file.read_integer("run", "part");
    // Absent in traces of imported runs and of earlier versions.
    if (file.has_attribute("run", "trained_parameters"))
        header.trained_parameters = file.read_integer("run", "trained_parameters");
    header.ranks = read_rows(file, "ranks", rank_columns());
    header.regions = read_rows(file, "regions", region_columns());
    for (std::size_t i = 0; i < header.regions.size(); ++i) {
        const RegionRow& region = header.regions[i];
        if (region.id != static_cast<std::int64_t>(i) || region.parent < -1 || region.parent >= region.id)
            throw damaged_error("{} is damaged: row {} of /regions is not part of a tree", file.path(), i);
    }
    return header;
}

std::vector<NumberedFile> trace_files(const std::string& folder) {
    std::vector<NumberedFile> files;
    std::error_code problem;
    for (std::filesystem::directory_iterator entry(folder, problem), end; !problem && entry != end;
         entry.increment(problem)) {
        const std::string name = entry->path().filename().string();
        constexpr std::size_t before = 6, after = 3;  // "trace-", ".h5"
        if (name.size() <= before + after || name.size() > before + after + 9 ||
            name.compare(0, before, "trace-") != 0 || name.compare(name.size() - after, after, ".h5") != 0)
            continue;
        const std::string digits = name.substr(before, name.size() - before - after);
        if (digits.find_first_not_of("0123456789") != std::string::npos) continue;
        files.push_back({std::stoll(digits), entry->path().string()});
    }
    if (problem && problem != std::errc::no_such_file_or_directory && problem != std::errc::not_a_directory)
        throw Error(is_mistake(problem) ? ExitCode::usage : ExitCode::fault,
                    fmt::format("the folder {} cannot be read: {}", folder, problem.message()));
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
    return files;
}

}  // namespace lockstep::trace
