#include "data/byte_stream.hpp"

#ifdef LOCKSTEP_ZLIB
#include <zlib.h>
#endif
#ifdef LOCKSTEP_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/open_file.hpp"
#include "data/file_ending.hpp"

namespace lockstep::data {
namespace {

[[maybe_unused]] constexpr std::size_t input_bytes = 65536;

class PlainStream final : public ByteStream {
  public:
    explicit PlainStream(const std::string& path) : file_(OpenFile::for_reading(path)) {}
    std::size_t read(char* data, std::size_t bytes) override {
        const auto taken = static_cast<std::size_t>(file_.read_up_to(data, bytes, offset_));
        offset_ += taken;
        return taken;
    }
    std::uint64_t consumed() const override { return offset_; }

  private:
    OpenFile file_;
    std::uint64_t offset_ = 0;
};

// A compressed file's bytes, a part at a time.
class Input {
  public:
    explicit Input(const std::string& path) : file_(OpenFile::for_reading(path)), part_(input_bytes) {}
    const std::string& path() const { return file_.path(); }
    const char* next() const { return part_.data() + begin_; }
    std::size_t left() const { return end_ - begin_; }
    void take(std::size_t bytes) { begin_ += bytes; }
    std::uint64_t consumed() const { return offset_ - left(); }
    // Reads on where all is taken; false: the end.
    bool fill() {
        if (left() > 0) return true;
        begin_ = 0;
        end_ = static_cast<std::size_t>(file_.read_up_to(part_.data(), part_.size(), offset_));
        offset_ += end_;
        return end_ > 0;
    }

  private:
    OpenFile file_;
    std::vector<char> part_;
    std::size_t begin_ = 0, end_ = 0;
    std::uint64_t offset_ = 0;
};

[[maybe_unused]] Error truncated(const std::string& path) {
    return damaged_error("{} is truncated: its compressed data ends early", path);
}

[[maybe_unused]] Error no_memory(const std::string& path) {
    return fault_error("{} cannot be decompressed: out of memory", path);
}

#ifdef LOCKSTEP_ZLIB
// Also several members one after another, as concatenated files and parallel compressors have them.
class GzipStream final : public ByteStream {
  public:
    explicit GzipStream(const std::string& path) : input_(path) {
        constexpr int gzip_with_largest_window = 16 + MAX_WBITS;
        if (::inflateInit2(&state_, gzip_with_largest_window) != Z_OK)
            throw fault_error("{}: zlib could not start decompressing", path);
    }
    ~GzipStream() override { ::inflateEnd(&state_); }

    std::size_t read(char* data, std::size_t bytes) override {
        std::size_t done = 0;
        while (done < bytes && !ended_) {
            if (!input_.fill()) {
                if (in_member_ || !any_) throw truncated(input_.path());
                ended_ = true;
                break;
            }
            if (!in_member_ && !begin_member()) continue;
            const auto room = static_cast<uInt>(std::min<std::size_t>(bytes - done, 1 << 20));
            const auto given = static_cast<uInt>(input_.left());
            state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input_.next()));  // zlib does not write there
            state_.avail_in = given;
            state_.next_out = reinterpret_cast<Bytef*>(data + done);
            state_.avail_out = room;
            const int result = ::inflate(&state_, Z_NO_FLUSH);
            input_.take(given - state_.avail_in);
            done += room - state_.avail_out;
            if (result == Z_STREAM_END)
                in_member_ = false;
            else if (result == Z_MEM_ERROR)
                throw no_memory(input_.path());
            else if (result != Z_OK)
                throw damaged_error("{} is damaged: its gzip data is invalid near byte {}{}", input_.path(),
                                    input_.consumed(), state_.msg ? std::string(" (") + state_.msg + ")" : "");
        }
        return done;
    }
    std::uint64_t consumed() const override { return input_.consumed(); }

  private:
    // False: it was a zero byte, with which tapes and some tools fill up.
    bool begin_member() {
        if (any_ && *input_.next() == '\0') {
            input_.take(1);
            return false;
        }
        if (any_ && ::inflateReset(&state_) != Z_OK) throw fault_error("{}: zlib could not continue", input_.path());
        any_ = in_member_ = true;
        return true;
    }

    Input input_;
    z_stream state_{};
    bool any_ = false, in_member_ = false, ended_ = false;
};
#endif

#ifdef LOCKSTEP_ZSTD
class ZstdStream final : public ByteStream {
  public:
    explicit ZstdStream(const std::string& path) : input_(path), state_(::ZSTD_createDCtx()) {
        if (!state_) throw fault_error("{}: zstd could not start decompressing", path);
    }
    ~ZstdStream() override { ::ZSTD_freeDCtx(state_); }

    std::size_t read(char* data, std::size_t bytes) override {
        ZSTD_outBuffer out{data, bytes, 0};
        while (out.pos < out.size) {
            const bool more = input_.fill();
            if (!more && between_frames_) break;
            // Also after the file's last byte: there may be text that had no room before.
            ZSTD_inBuffer in{input_.next(), input_.left(), 0};
            const std::size_t before = out.pos, result = ::ZSTD_decompressStream(state_, &out, &in);
            input_.take(in.pos);
            if (::ZSTD_isError(result)) fail(result);
            between_frames_ = result == 0;
            if (!more && !between_frames_ && out.pos == before) throw truncated(input_.path());
        }
        return out.pos;
    }
    std::uint64_t consumed() const override { return input_.consumed(); }

  private:
    [[noreturn]] void fail(std::size_t result) const {
        if (::ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
            throw usage_error(
                "{} needs more than 128 MiB to decompress (zstd --long=28 or more); compress it again with --long=27 "
                "or less",
                input_.path());
        if (::ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) throw no_memory(input_.path());
        throw damaged_error("{} is damaged: its zstd data is invalid near byte {} ({})", input_.path(),
                            input_.consumed(), ::ZSTD_getErrorName(result));
    }

    Input input_;
    ZSTD_DCtx* state_;
    bool between_frames_ = false;
};
#endif

}  // namespace

bool has_zlib() {
#ifdef LOCKSTEP_ZLIB
    return true;
#else
    return false;
#endif
}

bool has_zstd() {
#ifdef LOCKSTEP_ZSTD
    return true;
#else
    return false;
#endif
}

std::string_view without_compression(std::string_view path) {
    for (const std::string_view ending : {".gz", ".zst"})
        if (has_ending(path, ending)) return path.substr(0, path.size() - ending.size());
    return path;
}

std::unique_ptr<ByteStream> open_byte_stream(const std::string& path) {
    if (has_ending(path, ".gz")) {
#ifdef LOCKSTEP_ZLIB
        return std::make_unique<GzipStream>(path);
#else
        throw usage_error(
            "{}: this lockstep was built without zlib; install it (Debian: zlib1g-dev) and rebuild, or unpack the file",
            path);
#endif
    }
    if (has_ending(path, ".zst")) {
#ifdef LOCKSTEP_ZSTD
        return std::make_unique<ZstdStream>(path);
#else
        throw usage_error(
            "{}: this lockstep was built without zstd; install it (Debian: libzstd-dev) and rebuild, or unpack the file",
            path);
#endif
    }
    return std::make_unique<PlainStream>(path);
}

}  // namespace lockstep::data
