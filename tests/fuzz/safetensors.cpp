// Safetensors files. Tensors of types that are computed with are read to their last byte.
#include <algorithm>

#include "exchange/safetensors.hpp"
#include "exchange/tensor_files.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("a.safetensors", fuzz::text_of(data, size));
    fuzz::judge(size, [&] {
        const exchange::SafetensorsFile file(path);
        for (const exchange::StoredTensor& tensor : file.tensors()) {
            const auto all = static_cast<std::int64_t>(tensor.bytes / type_bytes(exchange::compute_type(tensor, path)));
            const std::int64_t count = std::min<std::int64_t>(all, 256);
            std::vector<float> values(static_cast<std::size_t>(count));
            exchange::read_elements({&file, &tensor}, all - count, count, values.data());
        }
    });
    return 0;
}
