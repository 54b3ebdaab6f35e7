// Internal: the bytes of a plain, gzip or zstd file in order, decompressed as they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::data {

bool has_zlib();  // in this build
bool has_zstd();

// The name without the ending of a compressed file: "a.jsonl" for "a.jsonl.gz", also where this build lacks the
// library.
std::string_view without_compression(std::string_view path);

class ByteStream {
  public:
    ByteStream() = default;
    ByteStream(const ByteStream&) = delete;
    ByteStream& operator=(const ByteStream&) = delete;
    virtual ~ByteStream() = default;
    // Fewer than `bytes` only at the end. Damaged error: a compressed file that is truncated or fails its checks. Fault
    // error: no memory to decompress it.
    virtual std::size_t read(char* data, std::size_t bytes) = 0;
    virtual std::uint64_t consumed() const = 0;  // bytes of the file
};

// By the path's ending: .gz, .zst, else as it is. Usage errors: a missing file, a compression that this build lacks.
// Memory: 64 KiB, and for zstd the frame's window, at most 128 MiB.
std::unique_ptr<ByteStream> open_byte_stream(const std::string& path);

}  // namespace lockstep::data
