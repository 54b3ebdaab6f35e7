#include "data/megatron.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"
#include "data/document_ends.hpp"
#include "data/file_ending.hpp"

namespace lockstep::data {
namespace {

constexpr std::string_view mapped_magic{"MMIDIDX\0\0", 9}, older_magic{"TNTIDX\0\0", 8};
constexpr std::uint64_t looked_at_documents = 1024;

struct Type {
    const char* name;
    std::size_t width;  // 0: not integers
    bool has_sign;
};
// By the code in the index. 6 and 7 are floating-point numbers, named differently by the two formats.
constexpr std::array<Type, 9> types = {{{"", 0, false},
                                        {"uint8", 1, false},
                                        {"int8", 1, true},
                                        {"int16", 2, true},
                                        {"int32", 4, true},
                                        {"int64", 8, true},
                                        {"floating-point numbers", 0, true},
                                        {"floating-point numbers", 0, true},
                                        {"uint16", 2, false}}};

bool is_file(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

std::optional<MegatronPaths> find_megatron(const std::string& path) {
    std::error_code ignored;
    if (has_ending(path, ".idx") && is_file(path)) {
        const std::string tokens = path.substr(0, path.size() - 4) + ".bin";
        if (!is_file(tokens)) throw usage_error("{} has no token file: {} does not exist", path, tokens);
        return MegatronPaths{tokens, path};
    }
    if (has_ending(path, ".bin")) {
        const std::string index = path.substr(0, path.size() - 4) + ".idx";
        if (is_file(path) && is_file(index)) return MegatronPaths{path, index};
        return std::nullopt;
    }
    if (!std::filesystem::exists(path, ignored) && is_file(path + ".bin") && is_file(path + ".idx"))
        return MegatronPaths{path + ".bin", path + ".idx"};
    return std::nullopt;
}

// The bytes of an index, read only where they are.
class MegatronFile::Index {
  public:
    explicit Index(const std::string& name) : path(name), file_(name) {}
    std::uint64_t bytes() const { return file_.bytes(); }
    bool begins_with(std::string_view magic) const {
        return bytes() >= magic.size() && std::memcmp(file_.data(), magic.data(), magic.size()) == 0;
    }
    template <class Number>
    Number at(std::uint64_t offset) const {
        if (offset > bytes() || bytes() - offset < sizeof(Number)) throw truncated();
        Number number;
        std::memcpy(&number, file_.data() + offset, sizeof number);
        return number;
    }
    // `count` entries of `size` bytes from `offset` on; returns where they end.
    std::uint64_t end_of(std::uint64_t offset, std::uint64_t count, std::uint64_t size) const {
        if (offset > bytes() || count > (bytes() - offset) / size) throw truncated();
        return offset + count * size;
    }
    Error truncated() const {
        return damaged_error("{} is truncated: it has {} bytes, fewer than its header says", path, bytes());
    }

    const std::string& path;

  private:
    MappedFile file_;
};

MegatronFile::MegatronFile(const MegatronPaths& paths, bool with_document_ends)
    : file_(paths.tokens), path_(paths.tokens), with_document_ends_(with_document_ends) {
    const Index index(paths.index);
    if (index.begins_with(mapped_magic))
        read_mapped_format(index);
    else if (index.begins_with(older_magic))
        read_older_format(index);
    else
        throw damaged_error(
            "{} is not a Megatron index (it begins with neither MMIDIDX nor TNTIDX), so {} cannot be read", paths.index,
            paths.tokens);
    if (tokens_ == 0) throw damaged_error("{} holds no tokens", paths.index);
    unused_bytes_ = file_.bytes() - end_;
}

// Magic (9 bytes), version (uint64), type (uint8), sequences, documents + 1 (uint64 each), then lengths (int32), byte
// offsets (int64) and the documents' first sequences (int64, closed by the number of sequences). Multimodal data end
// with a byte per sequence.
void MegatronFile::read_mapped_format(const Index& index) {
    constexpr std::uint64_t header_bytes = 34;
    if (const auto version = index.at<std::uint64_t>(9); version != 1)
        throw damaged_error("{}: the index has version {} instead of 1", index.path, version);
    set_type(index, index.at<std::uint8_t>(17));
    sequences_ = index.at<std::uint64_t>(18);
    const auto boundaries = index.at<std::uint64_t>(26);
    const std::uint64_t offsets_at = index.end_of(header_bytes, sequences_, sizeof(std::int32_t));
    const std::uint64_t documents_at = index.end_of(offsets_at, sequences_, sizeof(std::int64_t));
    const std::uint64_t end = index.end_of(documents_at, boundaries, sizeof(std::int64_t));
    if (end != index.bytes()) {
        if (index.bytes() - end == sequences_)
            throw usage_error("{} indexes multimodal data; only text can be read", index.path);
        throw damaged_error("{} has {} bytes, but its entries end at byte {}", index.path, index.bytes(), end);
    }
    const auto length = [&](std::uint64_t i) { return index.at<std::int32_t>(header_bytes + i * 4); };
    const auto offset = [&](std::uint64_t i) { return index.at<std::int64_t>(offsets_at + i * 8); };
    for (std::uint64_t i = 0; i < sequences_; ++i) {
        if (length(i) < 0 || offset(i) < 0)
            throw damaged_error("{}: sequence {} has length {} and begins at byte {}", index.path, i, length(i),
                                offset(i));
        add_sequence(index, i, static_cast<std::uint64_t>(offset(i)), static_cast<std::uint64_t>(length(i)));
    }
    check_documents(index, documents_at, boundaries);
    find_document_end(index, documents_at, [&](std::uint64_t i) -> std::optional<std::int64_t> {
        if (length(i) == 0) return std::nullopt;
        return token_at(static_cast<std::uint64_t>(offset(i)) + (static_cast<std::uint64_t>(length(i)) - 1) * width_);
    });
    find_document_ends(index, documents_at, [&](std::uint64_t i) { return std::int64_t{length(i)}; });
}

// Magic (8 bytes), version, type, bytes per token, sequences, sizes, documents + 1 (uint64 each), then int64: where
// each sequence's sizes begin, where its tokens begin (both with the end), sizes, the documents' first sequences.
void MegatronFile::read_older_format(const Index& index) {
    constexpr std::uint64_t header_bytes = 56, entry = sizeof(std::int64_t);
    if (const auto version = index.at<std::uint64_t>(8); version != 1)
        throw damaged_error("{}: the index has version {} instead of 1", index.path, version);
    set_type(index, index.at<std::uint64_t>(16));
    if (const auto width = index.at<std::uint64_t>(24); width != width_)
        throw damaged_error("{}: {} bytes per token do not match the type", index.path, width);
    sequences_ = index.at<std::uint64_t>(32);
    const auto sizes = index.at<std::uint64_t>(40), boundaries = index.at<std::uint64_t>(48);
    const std::uint64_t tokens_at = index.end_of(index.end_of(header_bytes, sequences_, entry), 1, entry);
    const std::uint64_t sizes_at = index.end_of(index.end_of(tokens_at, sequences_, entry), 1, entry);
    const std::uint64_t documents_at = index.end_of(sizes_at, sizes, entry);
    if (const std::uint64_t end = index.end_of(documents_at, boundaries, entry); end != index.bytes())
        throw damaged_error("{} has {} bytes, but its entries end at byte {}", index.path, index.bytes(), end);
    const auto token = [&](std::uint64_t i) { return index.at<std::uint64_t>(tokens_at + i * entry); };
    std::uint64_t first_size = index.at<std::uint64_t>(header_bytes);
    for (std::uint64_t i = 0; i < sequences_; ++i) {
        const std::uint64_t begin = token(i), end = token(i + 1);
        const auto last_size = index.at<std::uint64_t>(header_bytes + (i + 1) * entry);
        // The file's size bounds every offset, so that nothing overflows.
        const std::uint64_t most = file_.bytes() / width_;
        if (begin > end || end > most)
            throw damaged_error("{}: sequence {} has tokens {} to {}, but {} holds {}", index.path, i, begin, end,
                                path_, most);
        if (first_size > last_size || last_size > sizes || last_size - first_size != 1 ||
            index.at<std::uint64_t>(sizes_at + first_size * entry) != end - begin)
            throw damaged_error("{}: the sizes of sequence {} do not match its {} tokens", index.path, i, end - begin);
        first_size = last_size;
        add_sequence(index, i, begin * width_, end - begin);
    }
    check_documents(index, documents_at, boundaries);
    find_document_end(index, documents_at, [&](std::uint64_t i) -> std::optional<std::int64_t> {
        if (token(i) == token(i + 1)) return std::nullopt;
        return token_at((token(i + 1) - 1) * width_);
    });
    find_document_ends(index, documents_at,
                       [&](std::uint64_t i) { return static_cast<std::int64_t>(token(i + 1) - token(i)); });
}

void MegatronFile::set_type(const Index& index, std::uint64_t code) {
    if (code == 0 || code >= types.size())
        throw damaged_error("{}: the index has the unknown type {}", index.path, code);
    const Type& type = types[code];
    if (type.width == 0) throw usage_error("{} indexes {}, not tokens", index.path, type.name);
    width_ = type.width;
    has_sign_ = type.has_sign;
}

void MegatronFile::add_sequence(const Index& index, std::uint64_t number, std::uint64_t offset, std::uint64_t tokens) {
    if (offset > file_.bytes() || tokens > (file_.bytes() - offset) / width_)
        throw damaged_error(
            "{}: sequence {} has {} tokens from byte {} on, but {} has only {} bytes; one of the two is "
            "truncated, or they do not belong together",
            index.path, number, tokens, offset, path_, file_.bytes());
    if (tokens == 0) return;
    // A token may be in several sequences, but their sum must remain a position.
    constexpr std::uint64_t most_tokens = std::uint64_t{1} << 60;
    tokens_ += tokens;
    if (tokens_ > most_tokens) throw damaged_error("{}: its sequences have too many tokens", index.path);
    end_ = std::max(end_, offset + tokens * width_);
    if (!runs_.empty() && runs_.back().offset + runs_.back().tokens * width_ == offset)
        runs_.back().tokens += tokens;
    else
        runs_.push_back({offset, tokens});
}

void MegatronFile::check_documents(const Index& index, std::uint64_t at, std::uint64_t count) {
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto first = index.at<std::uint64_t>(at + i * 8);
        if ((i == 0 && first != 0) || first < before || first > sequences_)
            throw damaged_error("{}: document {} begins with sequence {} of {}", index.path, i, first, sequences_);
        before = first;
    }
    if (count == 0 || before != sequences_)
        throw damaged_error("{}: its documents end with sequence {} of {}", index.path, before, sequences_);
    documents_ = count - 1;
}

template <class LastToken>
void MegatronFile::find_document_end(const Index& index, std::uint64_t at, LastToken last_token) {
    const std::uint64_t looked_at = std::min(documents_, looked_at_documents);
    for (std::uint64_t k = 0; k < looked_at; ++k) {
        // documents_ fits into memory, so that the product does not overflow.
        const std::uint64_t document = k * documents_ / looked_at;
        const auto first = index.at<std::uint64_t>(at + document * 8),
                   end = index.at<std::uint64_t>(at + (document + 1) * 8);
        std::optional<std::int64_t> last;
        if (end > first) last = last_token(end - 1);
        if (!last || (document_end_ && *document_end_ != *last)) {
            document_end_.reset();
            return;
        }
        document_end_ = last;
    }
}

// `tokens_of`: of a sequence. Only after check_documents.
template <class Tokens>
void MegatronFile::find_document_ends(const Index& index, std::uint64_t at, Tokens tokens_of) {
    if (!with_document_ends_) return;
    std::uint64_t sequence = 0;
    std::int64_t end = 0;
    for (std::uint64_t document = 0; document < documents_; ++document) {
        const auto next = index.at<std::uint64_t>(at + (document + 1) * 8);
        for (; sequence < next; ++sequence) end += tokens_of(sequence);
        add_document_end(document_ends_, end);
    }
}

std::int64_t MegatronFile::token_at(std::uint64_t offset) const {
    std::int64_t token = 0;
    std::memcpy(&token, file_.data() + offset, width_);  // little-endian: low bytes first
    return token;
}

}  // namespace lockstep::data
