#include "checkpoint/stream.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <utility>

#include "base/hash.hpp"
#include "checkpoint/direct_file.hpp"
#include "checkpoint/holdings.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/unfinished.hpp"
#include "cluster/agree.hpp"

namespace lockstep::checkpoint {
namespace {

using cluster::agree;
using cluster::caught;

constexpr std::int64_t elements_at_once = std::int64_t{1} << 20;

std::int64_t elements_of(std::uint64_t bytes) {
    return static_cast<std::int64_t>(bytes / sizeof(float));
}

std::uint64_t bytes_of(std::int64_t elements) {
    return static_cast<std::uint64_t>(elements) * sizeof(float);
}

std::uint64_t bytes_of(const std::vector<ChecksumBlock>& blocks) {
    std::uint64_t bytes = 0;
    for (const ChecksumBlock& block : blocks) bytes += block.bytes;
    return bytes;
}

struct Counter {
    const StreamProgress& progress;
    std::uint64_t total, done = 0;
    void add(std::uint64_t bytes) {
        done += bytes;
        if (progress) progress(done, total);
    }
};

void write_blocks(const std::string& path, const Layout& layout, const std::vector<ChecksumBlock>& blocks,
                  const Source& source, Counter& counter) {
    OpenFile file = OpenFile::for_writing(path);
    const auto values = std::make_unique_for_overwrite<float[]>(layout.block_bytes / sizeof(float));
    for (const ChecksumBlock& block : blocks) {
        source(layout.places[block.place].path, elements_of(block.first), elements_of(block.bytes), values.get());
        const std::uint64_t checksum = hash64(values.get(), block.bytes);
        file.write(&checksum, sizeof checksum, checksum_offset_of(layout, block));
        file.write(values.get(), block.bytes, offset_of(layout, block));
        counter.add(block.bytes);
    }
    file.sync();
    file.close();
}

void read_back(const std::string& path, const Layout& layout, const std::vector<ChecksumBlock>& blocks,
               Counter& counter) {
    const OpenFile file = OpenFile::for_reading(path);
    const auto values = std::make_unique_for_overwrite<char[]>(layout.block_bytes);
    for (const ChecksumBlock& block : blocks) {
        forget_cached(file, offset_of(layout, block), block.bytes);
        read_block(file, path, layout, block, values.get());
        counter.add(block.bytes);
    }
}

Layout layout_of_file(const std::string& path, const std::string& prefix, cluster::HostGroup& group) {
    std::string text;
    cluster::on_root(group, [&] {
        Layout layout = read_whole_header(path).layout;
        std::erase_if(layout.places, [&](const Place& place) { return !place.path.starts_with(prefix); });
        text = layout_to_text(layout);
    });
    return layout_from_text(group.broadcast_text(std::move(text), 0));
}

// Whole blocks are read to where they are wanted. The last one of which only a part was wanted is kept for the next
// part.
class BlockReader {
  public:
    BlockReader(const std::string& path, Layout layout)
        : path_(path), layout_(std::move(layout)), file_(OpenFile::for_reading(path)) {
        for (std::size_t place = 0; place < layout_.places.size(); ++place) places_[layout_.places[place].path] = place;
    }

    void read(const std::string& tensor, std::int64_t first, std::int64_t count, float* to) {
        const auto found = places_.find(tensor);
        if (found == places_.end()) throw fault_error("{} has no {}", path_, tensor);
        const std::uint64_t all = layout_.places[found->second].bytes, size = layout_.block_bytes;
        std::uint64_t at = bytes_of(first);
        const std::uint64_t end = at + bytes_of(count);
        LOCKSTEP_ASSERT(first >= 0 && end <= all);
        while (at < end) {
            const std::uint64_t index = at / size, begin = index * size;
            const ChecksumBlock block{found->second, index, begin, std::min(size, all - begin)};
            const std::uint64_t bytes = std::min(begin + block.bytes, end) - at;
            if (bytes == block.bytes)
                read_block(file_, path_, layout_, block, to);
            else
                std::copy_n(kept(block) + elements_of(at - begin), elements_of(bytes), to);
            to += elements_of(bytes);
            at += bytes;
        }
    }

  private:
    const float* kept(const ChecksumBlock& block) {
        if (values_.empty() || block.place != kept_.place || block.index != kept_.index) {
            values_.resize(block.bytes / sizeof(float));
            read_block(file_, path_, layout_, block, values_.data());
            kept_ = block;
        }
        return values_.data();
    }

    std::string path_;
    Layout layout_;
    OpenFile file_;
    std::map<std::string, std::size_t> places_;
    ChecksumBlock kept_;
    std::vector<float> values_;
};

Source reading(std::shared_ptr<BlockReader> reader) {
    return [reader = std::move(reader)](const std::string& path, std::int64_t first, std::int64_t count, float* to) {
        reader->read(path, first, count, to);
    };
}

}  // namespace

void write_from(const std::string& path, const Contents& contents, const std::vector<TensorInfo>& tensors,
                const Source& source, cluster::HostGroup& group, const StreamProgress& progress) {
    const bool first = group.rank() == 0;
    const std::string unfinished = unfinished_name(path);
    std::string text;
    auto failure = agree(caught([&] {
                             if (first) text = layout_to_text(lay_out(path, contents, tensors));
                         }),
                         group);
    if (!failure) {
        const Layout layout = layout_from_text(group.broadcast_text(std::move(text), 0));
        const auto blocks = share_of_blocks(layout, group.rank(), group.size());
        Counter counter{progress, 2 * bytes_of(blocks)};
        failure = agree(caught([&] { write_blocks(unfinished, layout, blocks, source, counter); }), group);
        // What lies next to another rank's share must be read back after that is written.
        if (!failure) failure = agree(caught([&] { read_back(unfinished, layout, blocks, counter); }), group);
    }
    if (!failure)
        failure = agree(caught([&] {
                            if (first) publish(path);
                        }),
                        group);
    if (!failure) return;
    if (first) remove_quietly(unfinished);
    throw failure->error;
}

Source source_of(const std::string& path, const std::string& prefix, cluster::HostGroup& group) {
    Layout layout = layout_of_file(path, prefix, group);
    std::shared_ptr<BlockReader> reader;
    cluster::together(group, [&] { reader = std::make_shared<BlockReader>(path, std::move(layout)); });
    return reading(std::move(reader));
}

void pass_through(const std::vector<TensorInfo>& tensors, const Source& source, std::uint64_t most_bytes,
                  const Sink& sink, const cluster::HostGroup& group, const StreamProgress& progress) {
    // A rank has the runs that begin in its part of all elements.
    const std::int64_t longest = elements_of(most_bytes);
    std::int64_t total = 0;
    for (const TensorInfo& tensor : tensors) total += element_count(tensor.shape);
    const auto for_each_own = [&](const auto& take) {
        std::int64_t start = 0;
        for (const TensorInfo& tensor : tensors) {
            const std::int64_t elements = element_count(tensor.shape);
            for (std::int64_t first = 0; first < elements; first += longest)
                if (static_cast<int>(static_cast<long double>(start + first) * group.size() /
                                     static_cast<long double>(total)) == group.rank())
                    take(tensor, first, std::min(longest, elements - first));
            start += elements;
        }
    };
    Counter counter{progress, 0};
    for_each_own([&](const TensorInfo&, std::int64_t, std::int64_t count) { counter.total += bytes_of(count); });
    std::vector<float> values;
    for_each_own([&](const TensorInfo& tensor, std::int64_t first, std::int64_t count) {
        values.resize(static_cast<std::size_t>(count));
        source(tensor.path, first, count, values.data());
        sink(tensor, first, count, values.data());
        counter.add(bytes_of(count));
    });
}

void read_through(const std::string& path, const std::string& prefix, std::uint64_t most_bytes, const Sink& sink,
                  cluster::HostGroup& group, const StreamProgress& progress) {
    Layout layout = layout_of_file(path, prefix, group);
    std::vector<TensorInfo> tensors;
    for (const Place& place : layout.places) tensors.push_back({place.path, place.shape});
    cluster::together(group, [&] {
        pass_through(tensors, reading(std::make_shared<BlockReader>(path, std::move(layout))), most_bytes, sink, group,
                     progress);
    });
}

void fill(const std::vector<Entry>& entries, const Source& source) {
    std::vector<float> values;
    for (const Entry& entry : entries) {
        const SliceRange piece = slice_range(entry);
        for (std::int64_t at = 0; at < piece.count;) {
            const std::int64_t count = std::min(piece.count - at, elements_at_once);
            values.resize(static_cast<std::size_t>(count));
            for (std::int64_t i = at; i < at + count;) {
                const std::int64_t run = run_length(piece, i, at + count);
                source(entry.path, element_of_tensor(piece, i), run, values.data() + (i - at));
                i += run;
            }
            copy_in(entry, at, count, values.data());
            at += count;
        }
    }
}

void check_finite(const std::string& file, const std::string& tensor, const float* values, std::int64_t count) {
    constexpr std::uint32_t infinity = 0x7f800000, magnitude = 0x7fffffff;
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i)
        largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & magnitude);
    if (largest >= infinity)
        throw damaged_error("{}: {} holds values that are not finite (NaN or infinity)", file, tensor);
}

void check_finite(const std::string& file, const std::vector<Entry>& entries) {
    std::vector<float> values;
    for (const Entry& entry : entries) {
        const std::int64_t all = slice_range(entry).count;
        for (std::int64_t at = 0; at < all; at += elements_at_once) {
            const std::int64_t count = std::min(all - at, elements_at_once);
            values.resize(static_cast<std::size_t>(count));
            copy_out(entry, at, count, values.data());
            check_finite(file, entry.path, values.data(), count);
        }
    }
}

}  // namespace lockstep::checkpoint
