#include "data/sources.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "data/encode.hpp"
#include "data/tokenizer.hpp"
#include "device/parallel.hpp"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read in place as little-endian integers");

constexpr std::uint64_t small_file =
    1 << 20;  // smaller text files are copied: one mapping each would exceed the system's limit
constexpr std::size_t checksum_part = 1 << 20;

enum class SourceKind { text, token_file, flat_file };

// Raw token files, without HDF5.
struct FlatLayout {
    std::size_t header_bytes = 0, width = 2;
    std::uint64_t count = 0;
};

bool ends_with(const std::string& text, std::string_view ending) {
    return text.size() >= ending.size() && std::string_view(text).substr(text.size() - ending.size()) == ending;
}

SourceKind kind_of(const std::string& path) {
    std::error_code problem;
    if (!std::filesystem::exists(path, problem)) {
        if (problem && problem != std::errc::no_such_file_or_directory)
            throw usage_error("{} cannot be read: {}", path, problem.message());
        throw usage_error("{} does not exist", path);
    }
    if (!std::filesystem::is_regular_file(path, problem)) return SourceKind::text;
    if (ends_with(path, ".bin")) return SourceKind::flat_file;
    // Also by name: a token file with a damaged beginning must not pass for text.
    if (ends_with(path, ".h5") || ends_with(path, ".hdf5") || is_token_file(path)) return SourceKind::token_file;
    return SourceKind::text;
}

// llm.c's files begin with 256 int32: a magic number, a version that implies the width, and the number of tokens.
FlatLayout flat_layout(const MappedFile& file, const std::string& path) {
    struct Header {
        std::int32_t magic, version;
        std::size_t width;
    };
    constexpr std::array<Header, 2> known = {{{20240520, 1, 2}, {20240801, 7, 4}}};
    constexpr std::size_t header_bytes = 256 * sizeof(std::int32_t);
    if (file.bytes() == 0) throw damaged_error("{} is empty; a .bin file holds tokens as uint16", path);
    FlatLayout layout;
    std::array<std::int32_t, 3> start{};
    if (file.bytes() >= sizeof start) std::memcpy(start.data(), file.data(), sizeof start);
    const auto header =
        std::find_if(known.begin(), known.end(), [&](const Header& one) { return one.magic == start[0]; });
    if (header != known.end()) {
        if (file.bytes() < header_bytes)
            throw damaged_error("{} is truncated within its header of {} bytes", path, header_bytes);
        if (start[1] != header->version)
            throw damaged_error("{}: the header has version {} instead of {}", path, start[1], header->version);
        layout.header_bytes = header_bytes;
        layout.width = header->width;
    }
    const std::uint64_t token_bytes = file.bytes() - layout.header_bytes;
    if (token_bytes % layout.width != 0)
        throw damaged_error("{} is truncated: {} bytes are not a whole number of {}-byte tokens", path, token_bytes,
                            layout.width);
    layout.count = token_bytes / layout.width;
    if (header != known.end() && static_cast<std::int64_t>(layout.count) != start[2])
        throw damaged_error("{} is damaged: its header says {} tokens, the file has {}", path, start[2], layout.count);
    if (layout.count == 0) throw damaged_error("{} holds no tokens", path);
    return layout;
}

template <class Stored>
std::uint32_t largest_of(const std::byte* data, std::int64_t count) {
    std::vector<std::uint32_t> parts(static_cast<std::size_t>(threads()), 0);
    parallel_for(count, 1 << 18, [&](std::int64_t first, std::int64_t last, int thread) {
        Stored largest = 0;
        for (std::int64_t i = first; i < last; ++i) {
            Stored value;
            std::memcpy(&value, data + static_cast<std::size_t>(i) * sizeof value, sizeof value);
            largest = std::max(largest, value);
        }
        parts[static_cast<std::size_t>(thread)] = largest;
    });
    return *std::max_element(parts.begin(), parts.end());
}

// Widens the tokens and returns the largest.
template <class Stored>
std::uint32_t widen(const std::byte* data, std::size_t count, std::int32_t* out) {
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        Stored value;
        std::memcpy(&value, data + i * sizeof value, sizeof value);
        largest = std::max(largest, static_cast<std::uint32_t>(value));
        out[i] = static_cast<std::int32_t>(value);
    }
    return largest;
}

std::string tokenizer_name(const std::string& kind) {
    return kind.empty() ? "tokens without a tokenizer" : "tokenizer " + kind;
}

std::uint64_t ends_checksum(const std::byte* data, std::size_t bytes) {
    const std::size_t part = std::min(bytes, checksum_part);
    return hash64(data, part) ^ std::rotl(hash64(data + (bytes - part), part), 1);
}

}  // namespace

bool is_plain_text(const std::string& path) {
    return kind_of(path) == SourceKind::text;
}

Sources::Sources(const std::vector<std::string>& paths, const std::string& name,
                 std::shared_ptr<const Tokenizer> kept) {
    if (paths.empty()) throw usage_error("no files or folders given");
    std::vector<std::string> text;
    const auto add_gathered_text = [&] {
        if (text.empty()) return;
        if (!kept) kept = open_tokenizer(name);
        add_text(text, *kept);
        text.clear();
    };
    for (const auto& path : paths) {
        const SourceKind kind = kind_of(path);
        if (kind == SourceKind::text) {
            text.push_back(path);
            continue;
        }
        add_gathered_text();
        if (kind == SourceKind::token_file)
            add_token_file(path);
        else
            add_flat_file(path);
    }
    add_gathered_text();
}

void Sources::add_token_file(const std::string& path) {
    const TokenFile& file = token_files_.emplace_back(path);
    const TokenFileInfo& info = file.info();
    agree_on_tokenizer(info.tokenizer_kind, info.tokenizer_files, info.vocabulary, path);
    add_to_checksum(info.checksum);
    bytes_ += static_cast<double>(info.byte_count);
    bytes_known_ = bytes_known_ && info.byte_count > 0;
    add_segment(file.tokens(), info.token_width, static_cast<std::uint64_t>(info.token_count), path);
}

void Sources::add_flat_file(const std::string& path) {
    const MappedFile& file = mapped_files_.emplace_back(path);
    const FlatLayout layout = flat_layout(file, path);
    bytes_known_ = false;
    const std::byte* tokens = file.data() + layout.header_bytes;
    const auto count = static_cast<std::int64_t>(layout.count);
    const std::uint32_t largest =
        layout.width == 2 ? largest_of<std::uint16_t>(tokens, count) : largest_of<std::uint32_t>(tokens, count);
    if (largest >= std::uint32_t{1} << 31) throw damaged_error("{}: invalid token {}", path, largest);
    agree_on_tokenizer("", {}, std::int64_t{largest} + 1, path);
    add_to_checksum(layout.count);
    add_to_checksum(ends_checksum(file.data(), file.bytes()));
    add_segment(tokens, layout.width, layout.count, path);
}

void Sources::add_text(const std::vector<std::string>& paths, const Tokenizer& tokenizer) {
    const TextFiles text = collect_text_files(paths);
    bytes_ += static_cast<double>(text.bytes());
    if (text.skipped > 0) log::info("skipped {} files that are empty or not text", text.skipped);
    agree_on_tokenizer(tokenizer.kind(), tokenizer.files(), tokenizer.vocabulary(), paths.front());
    if (tokenizer.kind() == "bytes")
        add_bytes(text);
    else
        add_encoded(text, tokenizer);
}

void Sources::add_bytes(const TextFiles& text) {
    std::string run;  // consecutive small files, and the boundaries before large ones
    const std::string* run_path = nullptr;
    const auto end_run = [&] {
        if (run.empty()) return;
        const std::string& kept = buffers_.emplace_back(std::move(run));
        add_segment(reinterpret_cast<const std::byte*>(kept.data()), 1, kept.size(), *run_path);
        run.clear();
    };
    for (std::size_t i = 0; i < text.files.size(); ++i) {
        const TextFile& about = text.files[i];
        if (run.empty()) run_path = &about.path;
        if (i > 0) run += '\0';
        MappedFile file(about.path);
        if (file.bytes() == 0)
            throw usage_error("{} changed while being read; start again when nothing writes to it", about.path);
        add_to_checksum(file.bytes());
        add_to_checksum(ends_checksum(file.data(), file.bytes()));
        if (file.bytes() < small_file) {
            run.append(reinterpret_cast<const char*>(file.data()), file.bytes());
            continue;
        }
        end_run();
        const MappedFile& kept = mapped_files_.emplace_back(std::move(file));
        add_segment(kept.data(), 1, kept.bytes(), about.path);
    }
    end_run();
}

void Sources::add_encoded(const TextFiles& text, const Tokenizer& tokenizer) {
    log::info("tokenizing {} of text; lockstep pack does this once for all runs",
              human_bytes(static_cast<double>(text.bytes())));
    std::string& tokens = buffers_.emplace_back();
    EncodeOptions options;
    options.title = "tokenizing";
    encode_text(text, tokenizer, options,
                [&](const void* data, std::size_t bytes) { tokens.append(static_cast<const char*>(data), bytes); });
    const std::size_t width = token_width(tokenizer);
    add_to_checksum(text.bytes());
    add_to_checksum(hash64(tokens.data(), tokens.size()));
    add_segment(reinterpret_cast<const std::byte*>(tokens.data()), width, tokens.size() / width,
                text.files.front().path);
}

void Sources::add_segment(const std::byte* data, std::size_t width, std::uint64_t count, const std::string& path) {
    const std::int64_t end = tokens_ + static_cast<std::int64_t>(count);
    segments_.push_back({tokens_, end, data, width, &names_.emplace_back(path)});
    tokens_ = end;
}

void Sources::agree_on_tokenizer(const std::string& kind, const TokenizerFiles& files, std::int64_t vocabulary,
                                 const std::string& path) {
    if (first_path_.empty()) {
        first_path_ = path;
        tokenizer_kind_ = kind;
        tokenizer_files_ = files;
        vocabulary_ = vocabulary;
        return;
    }
    if (kind != tokenizer_kind_)
        throw usage_error("{} ({}) and {} ({}) cannot be read together; pack all with one tokenizer", first_path_,
                          tokenizer_name(tokenizer_kind_), path, tokenizer_name(kind));
    if (kind.empty())
        vocabulary_ = std::max(vocabulary_, vocabulary);
    else if (!same_tokenizer(kind, files, tokenizer_kind_, tokenizer_files_) || vocabulary != vocabulary_)
        throw usage_error("{} and {} were made with different tokenizers (vocabularies {} and {}); pack all with one",
                          first_path_, path, vocabulary_, vocabulary);
}

void Sources::add_to_checksum(std::uint64_t value) {
    const std::array<std::uint64_t, 2> both = {checksum_, value};
    checksum_ = hash64(both.data(), sizeof both);
}

void Sources::copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
    LOCKSTEP_ASSERT(begin >= 0 && count >= 0 && begin + count <= tokens_);
    auto segment = std::upper_bound(segments_.begin(), segments_.end(), begin,
                                    [](std::int64_t position, const Segment& one) { return position < one.end; });
    for (; count > 0; ++segment) {
        const std::int64_t taken = std::min(count, segment->end - begin);
        const std::byte* data = segment->data + static_cast<std::size_t>(begin - segment->begin) * segment->width;
        const auto amount = static_cast<std::size_t>(taken);
        const std::uint32_t largest = segment->width == 1   ? widen<std::uint8_t>(data, amount, out)
                                      : segment->width == 2 ? widen<std::uint16_t>(data, amount, out)
                                                            : widen<std::uint32_t>(data, amount, out);
        if (largest >= vocabulary_)
            throw damaged_error("{} is damaged: it holds token {}, but its vocabulary is {}", *segment->path, largest,
                                vocabulary_);
        begin += taken;
        count -= taken;
        out += taken;
    }
}

}  // namespace lockstep::data
