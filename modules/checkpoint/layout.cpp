#include "checkpoint/layout.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/hash.hpp"
#include "base/version.hpp"
#include "hdf5/hdf5.hpp"

namespace lockstep::checkpoint {
namespace {

const std::string format_name = "lockstep-checkpoint";
const std::string checksums_prefix = "checksums/", header_checksum_path = "checksums/header";
const std::string parts_attribute = "local_parts", course_attribute = "local_course";

std::uint64_t blocks_of(std::uint64_t bytes, std::uint64_t block_bytes) {
    return (bytes + block_bytes - 1) / block_bytes;
}

void append_number(std::string& bytes, std::uint64_t number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::uint64_t take_number(const std::string& bytes, std::size_t& at) {
    std::uint64_t number = 0;
    LOCKSTEP_ASSERT(at + sizeof number <= bytes.size());
    std::memcpy(&number, bytes.data() + at, sizeof number);
    at += sizeof number;
    return number;
}

// The fields of State by name, shared by writer and reader.
template <class StateType, class Field>
void for_each_field(StateType& state, Field&& field) {
    field("optimizer", state.optimizer);
    field("step", state.step);
    field("tokens", state.tokens);
    field("samples", state.samples);
    field("optimizer_steps", state.optimizer_steps);
    field("seed", state.seed);
    field("data_cursor", state.data_cursor);
    field("loss_scale", state.loss_scale);
    field("good_steps", state.good_steps);
    field("bad_steps", state.bad_steps);
    field("skipped_steps", state.skipped_steps);
    field("skipped_in_a_row", state.skipped_in_a_row);
    field("data_checksum", state.data_checksum);
    field("length", state.length);
    field("ranks", state.ranks);
    field("threads", state.threads);
    field("processor", state.processor);
    field("commit", state.commit);
    field("finished", state.finished);
    field("base", state.base);
    field("base_checksum", state.base_checksum);
}

// Whole checkpoints name no base.
bool names_base(const State& state, const std::string& value) {
    return &value == &state.base || &value == &state.base_checksum;
}

struct StateWriter {
    hdf5::File& file;
    const State& state;
    void operator()(const char* name, bool value) { file.write_attribute("state", name, std::int64_t{value}); }
    void operator()(const char* name, const std::string& value) {
        if (!names_base(state, value) || !value.empty()) file.write_attribute("state", name, value);
    }
    template <class Value>
    void operator()(const char* name, const Value& value) {
        file.write_attribute("state", name, value);
    }
};

struct StateReader {
    const hdf5::File& file;
    const State& state;
    std::int64_t version;
    void operator()(const char* name, std::int64_t& value) { value = file.read_integer("state", name); }
    void operator()(const char* name, std::uint64_t& value) { value = file.read_unsigned("state", name); }
    void operator()(const char* name, double& value) { value = file.read_number("state", name); }
    void operator()(const char* name, bool& value) { value = file.read_integer("state", name) != 0; }
    // The first version 1 files do not name the optimizer.
    void operator()(const char* name, std::string& value) {
        const bool optional = names_base(state, value) || (&value == &state.optimizer && version == 1);
        if (!optional || file.has_attribute("state", name)) value = file.read_string("state", name);
    }
};

// What counters and scales can be: the checksum of a forged header may match.
struct StateCheck {
    const std::string& path;
    void operator()(const char* name, std::int64_t value) const {
        constexpr std::int64_t most = std::int64_t{1} << 60;
        if (value < 0 || value > most) refuse(name, fmt::format("{}", value));
    }
    void operator()(const char* name, double value) const {
        if (!(value > 0) || !std::isfinite(value)) refuse(name, fmt::format("{}", value));
    }
    void operator()(const char*, std::uint64_t) const {}
    void operator()(const char*, bool) const {}
    void operator()(const char*, const std::string&) const {}
    void refuse(const char* name, const std::string& value) const {
        throw damaged_error("{} is damaged: /state has {} = {}", path, name, value);
    }
};

// Checksum over what the block checksums do not cover: all attributes, and each dataset's name, type and shape. HDF5
// checksums most of its metadata, but not attributes of 64 KiB and more. checkpoints/README.md describes the text.
std::uint64_t checksum_of_header(const hdf5::File& file) {
    Hasher hasher;
    const auto add = [&](const std::string& text) { hasher.add(text.data(), text.size()); };
    for (const std::string object : {"/", "/state", "/checksums"}) {
        auto names = file.attributes(object);
        std::sort(names.begin(), names.end());
        for (const auto& name : names) {
            const std::string kind = file.attribute_kind(object, name);
            // 17 digits: C and Python print a double alike.
            const std::string value = kind == "number" ? fmt::format("{:.17g}", file.read_number(object, name))
                                                       : file.read_as_text(object, name);
            add(fmt::format("attribute {} {} {} {}\n", object, name, kind, value.size()));
            add(value);
            add("\n");
        }
    }
    for (const auto& path : file.datasets("/")) {
        const auto about = file.info(path);
        add(fmt::format("dataset /{} {} [{}]\n", path, about.type_name, fmt::join(about.dimensions, ", ")));
    }
    return hasher.digest();
}

Place place_of(const hdf5::File& file, const std::string& path, std::uint64_t block_bytes, std::uint64_t file_size) {
    const auto about = file.info(path);
    const bool is_tokenizer = !data::tokenizer_file_name(path).empty();
    if (about.type_name != (is_tokenizer ? "uint8" : "fp32") || !about.contiguous)
        throw damaged_error("{}: /{} is not a contiguous {} dataset", file.path(), path,
                            is_tokenizer ? "uint8" : "fp32");
    const std::string checksums_path = checksums_prefix + path;
    if (!file.exists(checksums_path)) throw damaged_error("{}: /{} lacks checksums", file.path(), path);
    const auto checksums = file.info(checksums_path);
    const std::uint64_t blocks = blocks_of(about.bytes, block_bytes);
    if (checksums.type_name != "uint64" || !checksums.contiguous || checksums.bytes != blocks * sizeof(std::uint64_t))
        throw damaged_error("{}: /{} does not hold {} checksums", file.path(), checksums_path, blocks);
    if (about.offset + about.bytes > file_size || checksums.offset + checksums.bytes > file_size)
        throw damaged_error("{} is truncated: /{} extends past its end", file.path(), path);
    Shape shape(about.dimensions.begin(), about.dimensions.end());
    return {path, std::move(shape), about.bytes, about.offset, checksums.offset};
}

Layout layout_of(const hdf5::File& file, std::uint64_t block_bytes, std::uint64_t file_size) {
    Layout layout;
    layout.file_bytes = file_size;
    layout.block_bytes = block_bytes;
    for (const auto& path : file.datasets("/")) {
        // Ranks tell each other of tensors as JSON, which takes no other bytes.
        if (!std::all_of(path.begin(), path.end(), [](char byte) { return byte >= ' ' && byte <= '~'; }))
            throw damaged_error("{} is damaged: a tensor's name has bytes that are not printable ASCII", file.path());
        if (!path.starts_with(checksums_prefix)) layout.places.push_back(place_of(file, path, block_bytes, file_size));
    }
    std::sort(layout.places.begin(), layout.places.end(),
              [](const Place& a, const Place& b) { return std::pair(a.offset, a.path) < std::pair(b.offset, b.path); });
    return layout;
}

void write_tokenizer_file(hdf5::File& file, const data::TokenizerFile& one) {
    if (!data::is_tokenizer_file_name(one.name))
        throw fault_error("a tokenizer file has a name that a checkpoint cannot store: '{}'", one.name);
    const std::string path = data::tokenizer_file_path(one.name);
    file.write_text(path, one.contents);
    std::vector<std::uint64_t> checksums;
    for (std::uint64_t first = 0; first < one.contents.size(); first += standard_block_bytes)
        checksums.push_back(
            hash64(one.contents.data() + first, std::min(standard_block_bytes, one.contents.size() - first)));
    file.create_dataset(checksums_prefix + path, hdf5::ElementType::uint64, {checksums.size()});
    file.write(checksums_prefix + path, checksums.data());
}

void check_format(const hdf5::File& file) {
    const std::string& path = file.path();
    const std::string format = file.has_attribute("/", "format") ? file.read_string("/", "format") : "";
    if (format != format_name)
        throw usage_error("{} is an HDF5 file but not a checkpoint: its format is {}", path,
                          format.empty() ? "not given" : "'" + format + "'");
    const std::int64_t version = file.read_integer("/", "format_version");
    if (version > newest_format_version)
        throw usage_error(
            "{} is a checkpoint of format version {}, written by lockstep {}; this is lockstep {}, which reads up to "
            "version {}: use a newer lockstep",
            path, version, file.read_string("/", "program_version"), lockstep::version(), newest_format_version);
    if (version < 1) throw damaged_error("{}: invalid format version {}", path, version);
}

}  // namespace

namespace {

// By blocks: a rank has those that begin in its part of [0, total). `take`: owner and block, in their order.
template <class Take>
void divide_blocks(const Layout& layout, int ranks, const Take& take) {
    std::uint64_t total = 0, start = 0;
    for (const auto& place : layout.places) total += place.bytes;
    for (std::size_t place = 0; place < layout.places.size(); ++place) {
        const std::uint64_t bytes = layout.places[place].bytes;
        for (std::uint64_t first = 0, index = 0; first < bytes; first += layout.block_bytes, ++index) {
            const auto owner =
                static_cast<int>(static_cast<long double>(start + first) * ranks / static_cast<long double>(total));
            take(owner, ChecksumBlock{place, index, first, std::min(layout.block_bytes, bytes - first)});
        }
        start += bytes;
    }
}

}  // namespace

std::vector<ChecksumBlock> share_of_blocks(const Layout& layout, int rank, int ranks) {
    std::vector<ChecksumBlock> share;
    divide_blocks(layout, ranks, [&](int owner, const ChecksumBlock& block) {
        if (owner == rank) share.push_back(block);
    });
    return share;
}

std::vector<std::vector<ChecksumBlock>> shares_of_blocks(const Layout& layout, int ranks) {
    std::vector<std::vector<ChecksumBlock>> shares(static_cast<std::size_t>(ranks));
    divide_blocks(layout, ranks, [&](int owner, const ChecksumBlock& block) {
        shares[static_cast<std::size_t>(owner)].push_back(block);
    });
    return shares;
}

bool is_tokenizer_file(const Place& place) {
    return !data::tokenizer_file_name(place.path).empty();
}

Layout without_tokenizer(Layout layout) {
    std::erase_if(layout.places, is_tokenizer_file);
    return layout;
}

std::uint64_t offset_of(const Layout& layout, const ChecksumBlock& block) {
    return layout.places[block.place].offset + block.first;
}

std::uint64_t checksum_offset_of(const Layout& layout, const ChecksumBlock& block) {
    return layout.places[block.place].checksums_offset + block.index * sizeof(std::uint64_t);
}

void check_block(const std::string& file_path, const Layout& layout, const ChecksumBlock& block, const void* data,
                 std::uint64_t checksum) {
    const std::uint64_t found = hash64(data, block.bytes);
    if (found != checksum)
        throw damaged_error("{0} is damaged: bytes {2} to {3} of /{1} have checksum {4}, expected {5}", file_path,
                            layout.places[block.place].path, block.first, block.first + block.bytes, hash_text(found),
                            hash_text(checksum));
}

void read_block(const OpenFile& file, const std::string& file_path, const Layout& layout, const ChecksumBlock& block,
                void* data) {
    file.read(data, block.bytes, offset_of(layout, block));
    std::uint64_t checksum = 0;
    file.read(&checksum, sizeof checksum, checksum_offset_of(layout, block));
    check_block(file_path, layout, block, data, checksum);
}

namespace {

// The oldest version that has what this checkpoint has.
std::int64_t version_needed(const Contents& contents) {
    if (!contents.state.base.empty()) return adapters_format_version;
    return contents.state.optimizer == first_optimizer && contents.tokenizer_files.empty() ? first_format_version : 2;
}

// All of it but file_bytes.
Layout fill_header(hdf5::File& file, const Contents& contents, const std::vector<TensorInfo>& tensors,
                   const OfParts& of_parts) {
    file.write_attribute("/", "format", format_name);
    file.write_attribute("/", "format_version", version_needed(contents));
    file.write_attribute("/", "program_version", std::string(lockstep::version()));
    file.write_attribute("/", "commit", std::string(lockstep::commit()));
    file.write_attribute("/", "run_description", contents.run_description);
    file.write_attribute("/", "tokenizer_kind", contents.tokenizer_kind);
    if (of_parts.parts > 0) {
        file.write_attribute("/", parts_attribute, of_parts.parts);
        file.write_attribute("/", course_attribute, of_parts.course);
    }
    file.make_group("state");
    StateWriter writer{file, contents.state};
    for_each_field(contents.state, writer);
    file.make_group("checksums");
    file.write_attribute("/checksums", "block_bytes", static_cast<std::int64_t>(standard_block_bytes));
    for (const auto& tensor : tensors)
        file.create_dataset(tensor.path, hdf5::ElementType::fp32, {tensor.shape.begin(), tensor.shape.end()});
    for (const auto& tensor : tensors) {
        const std::uint64_t bytes = static_cast<std::uint64_t>(element_count(tensor.shape)) * sizeof(float);
        file.create_dataset(checksums_prefix + tensor.path, hdf5::ElementType::uint64,
                            {blocks_of(bytes, standard_block_bytes)});
    }
    for (const auto& one : contents.tokenizer_files) write_tokenizer_file(file, one);
    file.create_dataset(header_checksum_path, hdf5::ElementType::uint64, {1});
    const std::uint64_t checksum = checksum_of_header(file);
    file.write(header_checksum_path, &checksum);
    constexpr std::uint64_t not_yet_known = std::uint64_t{1} << 62;
    return without_tokenizer(layout_of(file, standard_block_bytes, not_yet_known));
}

}  // namespace

Layout write_header(const std::string& path, const Contents& contents, const std::vector<TensorInfo>& tensors) {
    hdf5::File file = hdf5::File::create(path);
    Layout layout = fill_header(file, contents, tensors, {});
    file.close();
    layout.file_bytes = file_bytes(path);
    return layout;
}

PartHeader make_part_header(const Contents& contents, const std::vector<TensorInfo>& tensors, const OfParts& of_parts) {
    hdf5::File file = hdf5::File::create_in_memory("a local checkpoint");
    PartHeader header;
    header.layout = fill_header(file, contents, tensors, of_parts);
    file.close();
    const hdf5::File::Written written = file.written();
    header.layout.file_bytes = written.bytes;
    append_number(header.image, written.bytes);
    for (const auto& [offset, bytes] : written.pieces) {
        append_number(header.image, offset);
        append_number(header.image, bytes.size());
        header.image += bytes;
    }
    return header;
}

void write_image(const std::string& path, const std::string& image) {
    OpenFile file = OpenFile::create(path);
    std::size_t at = 0;
    file.resize(take_number(image, at));
    while (at < image.size()) {
        const std::uint64_t offset = take_number(image, at), bytes = take_number(image, at);
        LOCKSTEP_ASSERT(bytes <= image.size() - at);
        file.write(image.data() + at, bytes, offset);
        at += bytes;
    }
    file.close();
}

Header read_header(const std::string& path) {
    const hdf5::File file = hdf5::File::open(path);
    check_format(file);
    if (!file.exists(header_checksum_path) || file.info(header_checksum_path).bytes != sizeof(std::uint64_t))
        throw damaged_error("{} is damaged: its header checksum is missing", path);
    std::uint64_t expected = 0;
    file.read_as(header_checksum_path, hdf5::ElementType::uint64, &expected);
    if (checksum_of_header(file) != expected)
        throw damaged_error("{} is damaged: the header checksum does not match", path);
    Header header;
    header.checksum = expected;
    if (file.has_attribute("/", parts_attribute)) {
        header.of_parts = {file.read_integer("/", parts_attribute), file.read_string("/", course_attribute)};
        if (constexpr std::int64_t most = 1 << 24; header.of_parts.parts < 1 || header.of_parts.parts > most)
            throw damaged_error("{} is damaged: it claims to have {} parts", path, header.of_parts.parts);
    }
    const std::int64_t block_bytes = file.read_integer("/checksums", "block_bytes");
    if (block_bytes <= 0 || block_bytes % std::int64_t{sizeof(float)} != 0)
        throw damaged_error("{} is damaged: invalid block size {}", path, block_bytes);
    data::tokenizer_file_paths(file);  // checked
    header.layout = layout_of(file, static_cast<std::uint64_t>(block_bytes), file_bytes(path));
    header.contents.run_description = file.read_string("/", "run_description");
    header.contents.tokenizer_kind = file.read_string("/", "tokenizer_kind");
    StateReader reader{file, header.contents.state, file.read_integer("/", "format_version")};
    for_each_field(header.contents.state, reader);
    for_each_field(header.contents.state, StateCheck{path});
    if (const State& state = header.contents.state; state.base.empty() != state.base_checksum.empty())
        throw damaged_error("{} is damaged: /state has only one of base and base_checksum", path);
    return header;
}

Header read_whole_header(const std::string& path) {
    Header header = read_header(path);
    if (header.of_parts.parts > 0)
        throw usage_error(
            "{} is one of the {} parts of a local checkpoint, which only lockstep train --resume auto can assemble; "
            "name a checkpoint in checkpoint.folder",
            path, header.of_parts.parts);
    return header;
}

std::string layout_to_text(const Layout& layout) {
    nlohmann::json text = {{"file_bytes", layout.file_bytes}, {"block_bytes", layout.block_bytes}};
    for (const auto& place : layout.places)
        text["places"].push_back({place.path, place.shape, place.bytes, place.offset, place.checksums_offset});
    return text.dump();
}

Layout layout_from_text(const std::string& text) {
    const auto parsed = nlohmann::json::parse(text);
    Layout layout;
    layout.file_bytes = parsed.at("file_bytes");
    layout.block_bytes = parsed.at("block_bytes");
    if (parsed.contains("places"))
        for (const auto& place : parsed.at("places"))
            layout.places.push_back({place.at(0), place.at(1), place.at(2), place.at(3), place.at(4)});
    return layout;
}

std::string state_to_text(const State& state) {
    nlohmann::json text;
    for_each_field(state, [&](const char* name, const auto& value) { text[name] = value; });
    return text.dump();
}

State state_from_text(const std::string& text) {
    const auto parsed = nlohmann::json::parse(text);
    State state;
    for_each_field(state, [&](const char* name, auto& value) { parsed.at(name).get_to(value); });
    return state;
}

}  // namespace lockstep::checkpoint
