// The safetensors format: 8 bytes with the length of a JSON header, the header, and the tensors' bytes one after
// another (github.com/huggingface/safetensors).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/mapped_file.hpp"
#include "device/tensor.hpp"

namespace lockstep::exchange {

constexpr std::uint64_t largest_safetensors_header = 100'000'000;  // bytes; the format's own bound

struct StoredTensor {
    std::string name;
    std::string type;  // the format's word: "F32", "BF16", "I64", …
    Shape shape;
    std::uint64_t first = 0, bytes = 0;  // within the data behind the header
};

// The tensors of a header in the order of their bytes. Damaged error for whatever the format does not allow: another
// structure, a name that stands twice, a shape whose bytes are not those given, tensors that overlap, leave holes or do
// not end where the `data_bytes` do. Usage error for a type that this program does not know.
std::vector<StoredTensor> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                   const std::string& path);

// The types that are read and written: fp32, bf16 and fp16.
struct FileType {
    Type type;
    const char *word, *torch_word;  // of the format, "BF16"; of torch, "bfloat16"
};
const FileType& file_type(Type type);
// Of the words of these types. Usage error for others, with the tensor's name.
Type compute_type(const StoredTensor& tensor, const std::string& path);

// A file mapped into memory; all of it but the tensors' values has been checked.
class SafetensorsFile {
  public:
    explicit SafetensorsFile(const std::string& path);
    const std::string& path() const { return path_; }
    const std::vector<StoredTensor>& tensors() const { return tensors_; }
    const std::byte* data(const StoredTensor& tensor) const { return data_ + tensor.first; }

  private:
    std::string path_;
    data::MappedFile file_;
    const std::byte* data_ = nullptr;
    std::vector<StoredTensor> tensors_;
};

// The beginning of a file with these tensors one after another: 8 bytes and the header, padded so that the data begin
// at a multiple of 8 bytes. `first` of each tensor is filled in.
std::string safetensors_beginning(std::vector<StoredTensor>& tensors);

}  // namespace lockstep::exchange
