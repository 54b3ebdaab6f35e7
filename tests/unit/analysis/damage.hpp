// Damages HDF5 files at random, for tests of what reads them. Object headers carry a checksum, so that most damage is
// seen at once; some of it is therefore given a right checksum afterwards, to come by the code behind that check.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace lockstep::test {

// The checksum of HDF5's metadata: Bob Jenkins' lookup3 (2006), byte by byte.
inline std::uint32_t metadata_checksum(const char* bytes, std::size_t count) {
    const auto rotate = [](std::uint32_t value, int by) { return (value << by) | (value >> (32 - by)); };
    std::array<std::uint32_t, 3> s;
    s.fill(0xdeadbeef + static_cast<std::uint32_t>(count));
    const auto take = [&](std::size_t most) {
        for (std::size_t i = 0; i < most; ++i)
            s[i / 4] += static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * (i % 4));
        bytes += most;
        count -= most;
    };
    const auto subtract = [&](std::size_t from, std::size_t what, int by, std::size_t grows, std::size_t adds) {
        s[from] -= s[what];
        s[from] ^= rotate(s[what], by);
        s[grows] += s[adds];
    };
    while (count > 12) {
        take(12);
        subtract(0, 2, 4, 2, 1);
        subtract(1, 0, 6, 0, 2);
        subtract(2, 1, 8, 1, 0);
        subtract(0, 2, 16, 2, 1);
        subtract(1, 0, 19, 0, 2);
        subtract(2, 1, 4, 1, 0);
    }
    if (count == 0) return s[2];
    take(count);
    const auto close = [&](std::size_t into, std::size_t from, int by) {
        s[into] ^= s[from];
        s[into] -= rotate(s[from], by);
    };
    close(2, 1, 14);
    close(0, 2, 11);
    close(1, 0, 25);
    close(2, 1, 16);
    close(0, 2, 4);
    close(1, 0, 14);
    close(2, 1, 24);
    return s[2];
}

// One object header (version 2) in a file: [begin, checksum_at) is summed.
struct ObjectHeader {
    std::size_t begin = 0, checksum_at = 0;
};

inline std::vector<ObjectHeader> object_headers(const std::string& file) {
    std::vector<ObjectHeader> headers;
    for (std::size_t at = file.find("OHDR"); at != std::string::npos; at = file.find("OHDR", at + 4)) {
        if (at + 34 > file.size()) break;
        const auto flags = static_cast<unsigned char>(file[at + 5]);
        const std::size_t size_at = at + 6 + ((flags & 0x20) != 0 ? 16 : 0) + ((flags & 0x10) != 0 ? 4 : 0);
        std::uint64_t size = 0;
        std::memcpy(&size, file.data() + size_at, std::size_t{1} << (flags & 3));
        const std::uint64_t end = size_at + (std::size_t{1} << (flags & 3)) + size;
        if (size < file.size() && end + 4 <= file.size()) headers.push_back({at, static_cast<std::size_t>(end)});
    }
    return headers;
}

inline std::uint32_t stored_checksum(const std::string& file, const ObjectHeader& header) {
    std::uint32_t sum = 0;
    std::memcpy(&sum, file.data() + header.checksum_at, sizeof sum);
    return sum;
}

inline void repair_checksums(std::string& file, const std::vector<ObjectHeader>& headers) {
    for (const ObjectHeader& header : headers) {
        if (header.checksum_at + 4 > file.size()) continue;
        const std::uint32_t sum = metadata_checksum(file.data() + header.begin, header.checksum_at - header.begin);
        std::memcpy(file.data() + header.checksum_at, &sum, sizeof sum);
    }
}

// `file` with some damage that follows from `seed` alone; `other`: a file to take pieces from.
inline std::string damaged(std::string file, const std::string& other, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::size_t limit) {
        return static_cast<std::size_t>(random() % std::max<std::size_t>(limit, 1));
    };
    const std::vector<ObjectHeader> headers = object_headers(file);
    const bool inside_headers = !headers.empty() && below(2) == 0;
    const auto place = [&] {
        if (inside_headers) {
            const ObjectHeader& header = headers[below(headers.size())];
            return header.begin + 4 + below(header.checksum_at - header.begin - 4);
        }
        return below(below(2) == 0 ? std::min<std::size_t>(file.size(), 8192) : file.size());
    };
    const auto length = [&](std::size_t at) {
        return std::min(1 + below(std::size_t{1} << below(9)), file.size() - at);
    };
    const std::array<std::uint64_t, 8> telling = {0, ~std::uint64_t{0}, 0x7fffffff, 0x80000000, 0xffffffff,
                                                  1, 1ull << 62,        1ull << 40};
    const std::size_t kind = below(inside_headers ? 4 : 6), times = 1 + below(4);
    for (std::size_t i = 0; i < times; ++i) {
        if (file.empty()) break;
        const std::size_t at = place();
        switch (kind) {
            case 0:
                file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
                break;
            case 1:
                for (std::size_t end = at + length(at), j = at; j < end; ++j) file[j] = static_cast<char>(random());
                break;
            case 2: {
                const std::uint64_t value = telling[below(telling.size())];
                std::memcpy(file.data() + at, &value, std::min(std::size_t{1} << below(4), file.size() - at));
                break;
            }
            case 3: {
                const std::size_t from = below(other.size()), count = std::min(length(at), other.size() - from);
                file.replace(at, count, other, from, count);
                break;
            }
            case 4:
                file.resize(below(file.size()));
                break;
            default:
                file.erase(at, length(at));
        }
    }
    if (inside_headers && below(8) != 0) repair_checksums(file, headers);
    return file;
}

}  // namespace lockstep::test
