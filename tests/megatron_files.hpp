// Megatron-LM's pairs of files, written and read straight from the description of their layout, independently of the
// product.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::tests {

template <class Number>
void append_number(std::string& bytes, Number number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

using Sequence = std::vector<std::int64_t>;

struct MegatronData {
    int code = 8;  // of the type
    std::vector<Sequence> sequences;
    std::vector<std::int64_t> documents;  // first sequences, closed by the number of sequences
};

inline std::size_t megatron_width(int code) {
    return code <= 2 ? 1 : code == 4 ? 4 : code == 5 ? 8 : 2;
}

inline std::string megatron_tokens(const MegatronData& data) {
    std::string bytes;
    for (const Sequence& sequence : data.sequences)
        for (const std::int64_t token : sequence)
            bytes.append(reinterpret_cast<const char*>(&token), megatron_width(data.code));
    return bytes;
}

inline std::string megatron_index(const MegatronData& data) {
    std::string bytes("MMIDIDX\0\0", 9);
    append_number(bytes, std::uint64_t{1});
    append_number(bytes, static_cast<std::uint8_t>(data.code));
    append_number(bytes, static_cast<std::uint64_t>(data.sequences.size()));
    append_number(bytes, static_cast<std::uint64_t>(data.documents.size()));
    for (const Sequence& sequence : data.sequences) append_number(bytes, static_cast<std::int32_t>(sequence.size()));
    std::int64_t offset = 0;
    for (const Sequence& sequence : data.sequences) {
        append_number(bytes, offset);
        offset += static_cast<std::int64_t>(sequence.size() * megatron_width(data.code));
    }
    for (const std::int64_t first : data.documents) append_number(bytes, first);
    return bytes;
}

inline std::string older_megatron_index(const MegatronData& data) {
    std::string bytes("TNTIDX\0\0", 8);
    append_number(bytes, std::uint64_t{1});
    append_number(bytes, static_cast<std::uint64_t>(data.code));
    append_number(bytes, static_cast<std::uint64_t>(megatron_width(data.code)));
    append_number(bytes, static_cast<std::uint64_t>(data.sequences.size()));
    append_number(bytes, static_cast<std::uint64_t>(data.sequences.size()));  // sizes: one dimension each
    append_number(bytes, static_cast<std::uint64_t>(data.documents.size()));
    for (std::size_t i = 0; i <= data.sequences.size(); ++i) append_number(bytes, static_cast<std::int64_t>(i));
    std::int64_t begin = 0;
    append_number(bytes, begin);
    for (const Sequence& sequence : data.sequences)
        append_number(bytes, begin += static_cast<std::int64_t>(sequence.size()));
    for (const Sequence& sequence : data.sequences) append_number(bytes, static_cast<std::int64_t>(sequence.size()));
    for (const std::int64_t first : data.documents) append_number(bytes, first);
    return bytes;
}

template <class Number>
Number number_at(const std::string& bytes, std::size_t offset) {
    if (offset + sizeof(Number) > bytes.size()) throw std::runtime_error("the index ends early");
    Number number;
    std::memcpy(&number, bytes.data() + offset, sizeof number);
    return number;
}

// What Megatron's reader would hand out.
inline MegatronData read_megatron(const std::string& index, const std::string& tokens) {
    MegatronData data;
    if (index.substr(0, 9) != std::string("MMIDIDX\0\0", 9) || number_at<std::uint64_t>(index, 9) != 1)
        throw std::runtime_error("not an index of version 1");
    data.code = number_at<std::uint8_t>(index, 17);
    const auto sequences = number_at<std::uint64_t>(index, 18), documents = number_at<std::uint64_t>(index, 26);
    const std::size_t offsets = 34 + sequences * 4, firsts = offsets + sequences * 8, width = megatron_width(data.code);
    if (index.size() != firsts + documents * 8) throw std::runtime_error("the index has another size");
    for (std::size_t i = 0; i < sequences; ++i) {
        Sequence sequence;
        const auto begin = static_cast<std::size_t>(number_at<std::int64_t>(index, offsets + i * 8));
        for (std::size_t k = 0; k < static_cast<std::size_t>(number_at<std::int32_t>(index, 34 + i * 4)); ++k)
            sequence.push_back(width == 2 ? number_at<std::uint16_t>(tokens, begin + k * width)
                                          : number_at<std::int32_t>(tokens, begin + k * width));
        data.sequences.push_back(sequence);
    }
    for (std::size_t i = 0; i < documents; ++i)
        data.documents.push_back(number_at<std::int64_t>(index, firsts + i * 8));
    return data;
}

}  // namespace lockstep::tests
