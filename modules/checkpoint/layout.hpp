// The layout of a checkpoint file, and which rank writes or reads which part. Only checkpoint/ includes this. HDF5
// makes and reads the metadata, on one rank; tensors are transferred with pread and pwrite at the offsets found here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/open_file.hpp"
#include "checkpoint/checkpoint.hpp"

namespace lockstep::checkpoint {

// 1: resumable by the first format's readers; 2: state of another optimizer, or the files of a tokenizer; 3: adapters
// alone.
constexpr std::int64_t first_format_version = 1, adapters_format_version = 3, newest_format_version = 3;
constexpr std::uint64_t standard_block_bytes = std::uint64_t{4} << 20;

struct Place {         // of one dataset
    std::string path;  // "parameters/blocks/0/mixer/query/weight"
    Shape shape;
    std::uint64_t bytes = 0, offset = 0;
    std::uint64_t checksums_offset = 0;  // of its checksums, 8 bytes per block
};

struct Layout {
    std::uint64_t file_bytes = 0, block_bytes = standard_block_bytes;
    std::vector<Place> places;  // by offset
};

// The unit of checksumming: a piece of one tensor.
struct ChecksumBlock {
    std::size_t place = 0;               // index into Layout::places
    std::uint64_t index = 0;             // among the tensor's blocks
    std::uint64_t first = 0, bytes = 0;  // within the tensor
};

// The blocks of `rank`: contiguous in file order, about equal in bytes for each of `ranks`.
std::vector<ChecksumBlock> share_of_blocks(const Layout& layout, int rank, int ranks);
std::vector<std::vector<ChecksumBlock>> shares_of_blocks(const Layout& layout, int ranks);  // of all ranks

// Whether the dataset is a file of the tokenizer, not a tensor.
bool is_tokenizer_file(const Place& place);
Layout without_tokenizer(Layout layout);  // the one that ranks write

std::uint64_t offset_of(const Layout& layout, const ChecksumBlock& block);
std::uint64_t checksum_offset_of(const Layout& layout, const ChecksumBlock& block);
// Throws a damaged error that names the tensor if the block's checksum differs.
void check_block(const std::string& file_path, const Layout& layout, const ChecksumBlock& block, const void* data,
                 std::uint64_t checksum);
// Reads the block into `data` and verifies its stored checksum; throws a damaged error that names the tensor.
void read_block(const OpenFile& file, const std::string& file_path, const Layout& layout, const ChecksumBlock& block,
                void* data);

// Creates the file: all metadata, the tokenizer's files and their checksums, and space for tensors and their checksums.
Layout write_header(const std::string& path, const Contents& contents, const std::vector<TensorInfo>& tensors);

// What the parts of a local checkpoint have in common: how many there are, and the course of the run that they are of
// (courses.hpp).
struct OfParts {
    std::int64_t parts = 0;  // 0: a whole file
    std::string course;
};
// The same in memory, for the parts of a local checkpoint: as text, to be sent to those who write them.
struct PartHeader {
    Layout layout;
    std::string image;  // of the file without tensors and their checksums
};
PartHeader make_part_header(const Contents& contents, const std::vector<TensorInfo>& tensors, const OfParts& of_parts);
// Creates the file of a part with that image; the rest of it is a hole.
void write_image(const std::string& path, const std::string& image);

struct Header {
    Contents contents;
    Layout layout;  // parameters, optimizer state, and the tokenizer's files, if any
    OfParts of_parts;
    std::uint64_t checksum = 0;
};
Header read_header(const std::string& path);        // verifies everything but the blocks
Header read_whole_header(const std::string& path);  // the same; usage error for a part

// Serialization, to pass a layout between ranks.
std::string layout_to_text(const Layout& layout);
Layout layout_from_text(const std::string& text);
std::string state_to_text(const State& state);
State state_from_text(const std::string& text);

}  // namespace lockstep::checkpoint
