#include "data/megatron_writer.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.hpp"

namespace lockstep::data {
namespace {

constexpr std::string_view magic{"MMIDIDX\0\0", 9};
constexpr std::uint64_t header_bytes = 34;
constexpr std::size_t part_bytes = 65536;
constexpr std::uint8_t code_of_int32 = 4, code_of_uint16 = 8;

template <class Number>
void append(std::string& text, Number number) {
    text.append(reinterpret_cast<const char*>(&number), sizeof number);  // little-endian
}

}  // namespace

std::size_t megatron_token_width(std::int64_t vocabulary) {
    return vocabulary < 65500 ? 2 : 4;
}

MegatronWriter::MegatronWriter(const std::string& tokens, const std::string& index, std::size_t given_width,
                               std::int64_t vocabulary, std::uint64_t longest_sequence)
    : tokens_(OpenFile::create(tokens)),
      index_(OpenFile::create(index)),
      given_width_(given_width),
      width_(megatron_token_width(vocabulary)),
      longest_sequence_(longest_sequence),
      index_end_(header_bytes) {}

void MegatronWriter::begin_document(std::uint64_t position) {
    if (documents_ > 0) end_document(position);
    begin_ = position;
    ++documents_;
}

void MegatronWriter::end_document(std::uint64_t position) {
    std::uint64_t length = position - begin_;
    for (bool first = true; first || length > 0; first = false) {
        if (!first) continuing_.push_back(sequences_);
        const std::uint64_t part = std::min(length, longest_sequence_);
        add_length(part);
        length -= part;
    }
}

void MegatronWriter::add_length(std::uint64_t length) {
    const auto number = static_cast<std::int32_t>(length);
    write_index(&number, sizeof number);
    ++sequences_;
}

void MegatronWriter::write_index(const void* data, std::size_t bytes) {
    part_.append(static_cast<const char*>(data), bytes);
    if (part_.size() < part_bytes && bytes > 0) return;
    index_.write(part_.data(), part_.size(), index_end_);
    index_end_ += part_.size();
    part_.clear();
}

void MegatronWriter::take(const void* tokens, std::size_t bytes) {
    std::string changed;
    const std::size_t count = bytes / given_width_;
    if (given_width_ != width_) {
        changed.resize(count * width_);  // zeros; little-endian: the low bytes come first
        const std::size_t kept = std::min(width_, given_width_);
        for (std::size_t i = 0; i < count; ++i)
            std::memcpy(changed.data() + i * width_, static_cast<const char*>(tokens) + i * given_width_, kept);
        tokens = changed.data();
    }
    tokens_.write(tokens, count * width_, written_);
    hasher_.add(tokens, count * width_);
    written_ += count * width_;
    given_ += count;
}

void MegatronWriter::finish() {
    LOCKSTEP_ASSERT(documents_ > 0);
    end_document(given_);
    write_index(nullptr, 0);
    write_offsets();
    write_documents();
    std::string header(magic);
    append(header, std::uint64_t{1});  // version
    append(header, width_ == 2 ? code_of_uint16 : code_of_int32);
    append(header, sequences_);
    append(header, documents_ + 1);
    LOCKSTEP_ASSERT(header.size() == header_bytes);
    index_.write(header.data(), header.size(), 0);
    tokens_.sync();
    index_.sync();
}

// From the lengths, which are in the file.
void MegatronWriter::write_offsets() {
    std::vector<std::int32_t> lengths;
    std::int64_t offset = 0;
    for (std::uint64_t done = 0; done < sequences_; done += lengths.size()) {
        lengths.resize(static_cast<std::size_t>(std::min<std::uint64_t>(sequences_ - done, part_bytes / 4)));
        index_.read(lengths.data(), lengths.size() * 4, header_bytes + done * 4);
        for (const std::int32_t length : lengths) {
            write_index(&offset, sizeof offset);
            offset += std::int64_t{length} * static_cast<std::int64_t>(width_);
        }
    }
    write_index(nullptr, 0);
}

void MegatronWriter::write_documents() {
    auto continuing = continuing_.begin();
    for (std::uint64_t sequence = 0; sequence <= sequences_; ++sequence) {
        if (continuing != continuing_.end() && *continuing == sequence)
            ++continuing;
        else
            write_index(&sequence, sizeof sequence);
    }
    write_index(nullptr, 0);
}

}  // namespace lockstep::data
