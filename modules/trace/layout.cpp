#include "trace/layout.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace lockstep::trace {
namespace {

using hdf5::ElementType;

// A compound type assembled at run time: text fields are as wide as their longest value.
class RecordBuilder {
  public:
    std::size_t number(const std::string& name, ElementType type) { return add({name, type, 0, 0}, 8); }
    std::size_t text(const std::string& name, std::size_t bytes) {
        return add({name, ElementType::uint8, 0, bytes}, (bytes + 7) / 8 * 8);
    }
    const hdf5::RecordType& type() const { return type_; }

  private:
    std::size_t add(hdf5::RecordType::Field field, std::size_t bytes) {
        field.offset = type_.bytes;
        type_.fields.push_back(field);
        type_.bytes += bytes;
        return field.offset;
    }
    hdf5::RecordType type_;
};

template <class Number>
void put(char* record, std::size_t offset, Number value) {
    std::memcpy(record + offset, &value, sizeof value);
}
template <class Number>
Number get(const char* record, std::size_t offset) {
    Number value;
    std::memcpy(&value, record + offset, sizeof value);
    return value;
}
void put_text(char* record, std::size_t offset, const std::string& text, std::size_t bytes) {
    std::memcpy(record + offset, text.data(), std::min(text.size(), bytes));
}
std::string get_text(const char* record, std::size_t offset, std::size_t bytes) {
    return {record + offset, strnlen(record + offset, bytes)};
}

// The tables with text fields as wide as in `text`; shared by writer and reader.
struct RankTable {
    explicit RankTable(std::size_t text_bytes) : text(text_bytes) {}
    std::size_t text;
    RecordBuilder record;
    std::size_t rank = record.number("rank", ElementType::int64), host = record.text("host", text),
                cores = record.text("cores", text), numa_node = record.number("numa_node", ElementType::int64),
                gpu = record.text("gpu", text), data = record.number("data", ElementType::int64),
                tensor = record.number("tensor", ElementType::int64),
                pipeline = record.number("pipeline", ElementType::int64),
                context = record.number("context", ElementType::int64),
                threads = record.number("threads", ElementType::int64),
                clock_offset = record.number("clock_offset", ElementType::fp64),
                clock_error = record.number("clock_error", ElementType::fp64), network = record.text("network", text);
};
struct RegionTable {
    explicit RegionTable(std::size_t text_bytes) : text(text_bytes) {}
    std::size_t text;
    RecordBuilder record;
    std::size_t id = record.number("id", ElementType::int64), parent = record.number("parent", ElementType::int64),
                name = record.text("name", text), path = record.text("path", text);
};

constexpr std::size_t widest_text = 1024;  // bytes of a text field; longer texts are truncated

void write_ranks(hdf5::File& file, const std::vector<RankRow>& ranks) {
    std::size_t width = 8;
    for (const auto& rank : ranks)
        width = std::max({width, rank.host.size(), rank.cores.size(), rank.gpu.size(), rank.network.size()});
    const RankTable table(std::min(width, widest_text));
    const std::size_t bytes = table.record.type().bytes;
    std::vector<char> records(ranks.size() * bytes, 0);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        char* record = records.data() + i * bytes;
        put(record, table.rank, static_cast<std::int64_t>(i));
        put_text(record, table.host, ranks[i].host, table.text);
        put_text(record, table.cores, ranks[i].cores, table.text);
        put_text(record, table.gpu, ranks[i].gpu, table.text);
        put_text(record, table.network, ranks[i].network, table.text);
        put(record, table.numa_node, ranks[i].numa_node);
        put(record, table.data, ranks[i].data);
        put(record, table.tensor, ranks[i].tensor);
        put(record, table.pipeline, ranks[i].pipeline);
        put(record, table.context, ranks[i].context);
        put(record, table.threads, ranks[i].threads);
        put(record, table.clock_offset, ranks[i].clock_offset);
        put(record, table.clock_error, ranks[i].clock_error);
    }
    file.create_dataset("ranks", table.record.type(), {ranks.size()});
    file.write("ranks", records.data());
}

void write_regions(hdf5::File& file, const std::vector<RegionRow>& regions) {
    std::size_t width = 8;
    for (const auto& region : regions) width = std::max(width, region.path.size());
    const RegionTable table(std::min(width, widest_text));
    const std::size_t bytes = table.record.type().bytes;
    std::vector<char> records(regions.size() * bytes, 0);
    for (std::size_t i = 0; i < regions.size(); ++i) {
        char* record = records.data() + i * bytes;
        put(record, table.id, regions[i].id);
        put(record, table.parent, regions[i].parent);
        put_text(record, table.name, regions[i].name, table.text);
        put_text(record, table.path, regions[i].path, table.text);
    }
    file.create_dataset("regions", table.record.type(), {regions.size()});
    file.write("regions", records.data());
}

// Rows of a one-dimensional dataset of records; rejects impossible numbers.
std::size_t table_rows(const hdf5::File& file, const std::string& name) {
    constexpr std::uint64_t most = 1u << 17;
    if (!file.exists(name)) throw damaged_error("{} is damaged: /{} is missing", file.path(), name);
    const auto about = file.info(name);
    if (about.dimensions.size() != 1 || about.dimensions[0] > most || about.type_name != "record")
        throw damaged_error("{} is damaged: /{} is not a table", file.path(), name);
    return about.dimensions[0];
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
                         {"wall_time", ElementType::fp64, at(row.wall_time)}};
        return record;
    }();
    return type;
}

const hdf5::RecordType& event_record() {
    static const hdf5::RecordType type = {{{"step", ElementType::int64, offsetof(EventRow, step)},
                                           {"rank", ElementType::int32, offsetof(EventRow, rank)},
                                           {"region", ElementType::int32, offsetof(EventRow, region)},
                                           {"start", ElementType::fp64, offsetof(EventRow, start)},
                                           {"end", ElementType::fp64, offsetof(EventRow, end)}},
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
    write_ranks(file, header.ranks);
    write_regions(file, header.regions);
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
    {
        const RankTable table(widest_text);
        const std::size_t bytes = table.record.type().bytes;
        header.ranks.resize(table_rows(file, "ranks"));
        std::vector<char> records(header.ranks.size() * bytes, 0);
        file.read_records("ranks", table.record.type(), records.data());
        for (std::size_t i = 0; i < header.ranks.size(); ++i) {
            const char* record = records.data() + i * bytes;
            RankRow& rank = header.ranks[i];
            rank.host = get_text(record, table.host, widest_text);
            rank.cores = get_text(record, table.cores, widest_text);
            rank.gpu = get_text(record, table.gpu, widest_text);
            rank.network = get_text(record, table.network, widest_text);
            rank.numa_node = get<std::int64_t>(record, table.numa_node);
            rank.data = get<std::int64_t>(record, table.data);
            rank.tensor = get<std::int64_t>(record, table.tensor);
            rank.pipeline = get<std::int64_t>(record, table.pipeline);
            rank.context = get<std::int64_t>(record, table.context);
            rank.threads = get<std::int64_t>(record, table.threads);
            rank.clock_offset = get<double>(record, table.clock_offset);
            rank.clock_error = get<double>(record, table.clock_error);
        }
    }
    const RegionTable table(widest_text);
    const std::size_t bytes = table.record.type().bytes;
    header.regions.resize(table_rows(file, "regions"));
    std::vector<char> records(header.regions.size() * bytes, 0);
    file.read_records("regions", table.record.type(), records.data());
    for (std::size_t i = 0; i < header.regions.size(); ++i) {
        const char* record = records.data() + i * bytes;
        RegionRow& region = header.regions[i];
        region.id = get<std::int64_t>(record, table.id);
        region.parent = get<std::int64_t>(record, table.parent);
        region.name = get_text(record, table.name, widest_text);
        region.path = get_text(record, table.path, widest_text);
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
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
    return files;
}

}  // namespace lockstep::trace
