// JSON Lines, plain, gzip or zstd by the first byte.
#include <array>

#include "data/json_lines.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    constexpr std::array<const char*, 3> names = {"a.jsonl", "a.jsonl.gz", "a.jsonl.zst"};
    const std::string path = fuzz::write_file(names[data[0] % names.size()], fuzz::text_of(data + 1, size - 1));
    // A line is bounded, and so is the window of a zstd frame (data/byte_stream.hpp); a small file may claim both.
    constexpr std::uint64_t window = std::uint64_t{129} << 20;
    fuzz::judge(
        size,
        [&] {
            data::JsonLines lines(path, "text");
            for (std::string text; lines.next(text);) {
            }
        },
        window);
    return 0;
}
