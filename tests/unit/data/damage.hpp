// Damaged twins of a file: cut short, bytes changed, numbers replaced by extreme ones, parts repeated.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

// How many damaged files a test makes: LOCKSTEP_DAMAGED_FILES, or else `usual`.
inline long damaged_files(long usual) {
    const char* wanted = std::getenv("LOCKSTEP_DAMAGED_FILES");
    return wanted ? std::strtol(wanted, nullptr, 10) : usual;
}

inline std::string damaged_twin(const std::string& whole, std::minstd_rand& random) {
    std::string bytes = whole;
    const auto place = [&](std::size_t room) { return bytes.size() > room ? random() % (bytes.size() - room) : 0; };
    switch (random() % 5) {
        case 0:
            bytes.resize(random() % (bytes.size() + 1));
            break;
        case 1:
            for (unsigned i = 0; i <= random() % 4; ++i) bytes[place(0)] = static_cast<char>(random());
            break;
        case 2: {
            constexpr std::array<std::int64_t, 8> extremes = {
                -1, 0, 1, std::int64_t{1} << 31, std::int64_t{1} << 40, INT64_MAX, INT64_MIN, INT64_MAX / 8};
            const std::int64_t number = extremes[random() % extremes.size()];
            const std::size_t size = std::min<std::size_t>(bytes.size(), random() % 2 == 0 ? 8 : 4);
            std::memcpy(bytes.data() + place(size), &number, size);
            break;
        }
        case 3:
            bytes.insert(place(0), bytes.substr(place(0), random() % 64));
            break;
        default:
            bytes.erase(place(0), random() % 64 + 1);
    }
    return bytes;
}
