// Where everything lies in a checkpoint file, and who writes or reads which part. Only checkpoint/ includes this.
// HDF5 makes and reads the metadata, on one rank; tensors are moved with pread and pwrite at the places found here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "base/open_file.hpp"

namespace lockstep::checkpoint {

// 1: what readers of the first format can resume; 2: the state of another optimizer than the first.
constexpr std::int64_t first_format_version = 1, newest_format_version = 2;
constexpr const char* tokenizer_model_path = "tokenizer_model";
constexpr std::uint64_t standard_block_bytes = std::uint64_t{4} << 20;

struct Place {         // of one dataset
    std::string path;  // "parameters/blocks/0/mixer/query/weight"
    Shape shape;
    std::uint64_t bytes = 0, offset = 0;
    std::uint64_t checksums_offset = 0;  // of its checksums, 8 bytes a block
};

struct Layout {
    std::uint64_t file_bytes = 0, block_bytes = standard_block_bytes;
    std::vector<Place> places;  // in the order of their offsets
};

// A piece of a tensor that has one checksum.
struct Block {
    std::size_t place = 0;               // index into Layout::places
    std::uint64_t index = 0;             // of the tensor's blocks
    std::uint64_t first = 0, bytes = 0;  // within the tensor
};

// The blocks of `rank`: contiguous in file order, about as many bytes for each of `ranks`.
std::vector<Block> share_of_blocks(const Layout& layout, int rank, int ranks);

std::uint64_t offset_of(const Layout& layout, const Block& block);
std::uint64_t checksum_offset_of(const Layout& layout, const Block& block);
// Throws a damaged error that names the tensor where the block's bytes do not have this checksum.
void check_block(const std::string& file_path, const Layout& layout, const Block& block, const void* data,
                 std::uint64_t checksum);
// Reads the block into `data` and its checksum from the file; throws a damaged error that names the tensor if they
// differ.
void read_block(const OpenFile& file, const std::string& file_path, const Layout& layout, const Block& block,
                void* data);

// Makes the file: all metadata, the tokenizer model and its checksums, and room for tensors and their checksums.
Layout write_header(const std::string& path, const Contents& contents, const std::vector<TensorInfo>& tensors);

struct Header {
    Contents contents;
    Layout layout;  // parameters, moments, and the tokenizer model if there is one
};
Header read_header(const std::string& path);  // checks everything but the blocks

// To pass a layout between ranks.
std::string layout_to_text(const Layout& layout);
Layout layout_from_text(const std::string& text);

}  // namespace lockstep::checkpoint
