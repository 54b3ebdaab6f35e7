// Safetensors files. Tensors of types that are computed with are read to their last byte.
#include <algorithm>

#include "exchange/safetensors.hpp"
#include "exchange/tensor_files.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

namespace {

// Headers of tensors that follow each other, as ours do.
void read_written_again(const exchange::SafetensorsFile& file) {
    std::vector<exchange::StoredTensor> tensors = file.tensors();
    std::uint64_t bytes = 0;
    for (const exchange::StoredTensor& tensor : tensors) bytes += tensor.bytes;
    const std::string beginning = exchange::safetensors_beginning(tensors);
    constexpr std::size_t length_bytes = 8;
    const auto again = exchange::parse_safetensors_header(beginning.substr(length_bytes), bytes, "again");
    fuzz::require(again.size() == tensors.size(), "a header that was written again has other tensors");
    for (std::size_t i = 0; i < again.size(); ++i)
        fuzz::require(again[i].name == tensors[i].name && again[i].type == tensors[i].type &&
                          again[i].shape == tensors[i].shape && again[i].first == tensors[i].first &&
                          again[i].bytes == tensors[i].bytes,
                      "a tensor that was written again reads back differently");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("a.safetensors", fuzz::text_of(data, size));
    fuzz::judge(size, [&] {
        const exchange::SafetensorsFile file(path);
        read_written_again(file);
        for (const exchange::StoredTensor& tensor : file.tensors()) {
            const auto all = static_cast<std::int64_t>(tensor.bytes / type_bytes(exchange::compute_type(tensor, path)));
            const std::int64_t count = std::min<std::int64_t>(all, 256);
            std::vector<float> values(static_cast<std::size_t>(count));
            exchange::read_elements({&file, &tensor}, all - count, count, values.data());
        }
    });
    return 0;
}
