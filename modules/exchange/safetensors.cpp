#include "exchange/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "exchange/json.hpp"

namespace lockstep::exchange {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t length_bytes = 8, most_axes = 32, longest_name = 500;
constexpr const char* metadata_key = "__metadata__";

struct Word {
    std::string_view word;
    std::uint64_t bytes;
};
// Of an element. Types of less than a byte are not among them.
constexpr std::array<Word, 16> words = {{{"F32", 4},
                                         {"F16", 2},
                                         {"BF16", 2},
                                         {"F64", 8},
                                         {"I64", 8},
                                         {"I32", 4},
                                         {"I16", 2},
                                         {"I8", 1},
                                         {"U64", 8},
                                         {"U32", 4},
                                         {"U16", 2},
                                         {"U8", 1},
                                         {"BOOL", 1},
                                         {"F8_E4M3", 1},
                                         {"F8_E5M2", 1},
                                         {"F8_E8M0", 1}}};

constexpr std::array<FileType, 3> file_types = {
    {{Type::fp32, "F32", "float32"}, {Type::bf16, "BF16", "bfloat16"}, {Type::fp16, "F16", "float16"}}};

// Reads the header in one pass, so that its tensors are all it takes memory for.
class HeaderHandler final : public nlohmann::json_sax<Json> {
  public:
    HeaderHandler(const std::string& path, std::vector<StoredTensor>& tensors) : path_(path), tensors_(tensors) {}

    bool start_object(std::size_t) override {
        if (place_ == Place::before) return enter(Place::header);
        if (place_ != Place::header) refuse("has an unexpected object");
        given_ = {};
        return enter(name_ == metadata_key ? Place::metadata : Place::tensor);
    }
    bool end_object() override {
        if (place_ == Place::header) return enter(Place::behind);
        if (place_ == Place::tensor) {
            if (!given_.type || !given_.shape || !given_.offsets)
                refuse(fmt::format("does not give dtype, shape and data_offsets of {}", shown_name(name_)));
            tensors_.push_back(std::move(tensor_));
        }
        return enter(Place::header);
    }
    bool key(std::string& key) override {
        if (key.size() > longest_name) refuse(fmt::format("has a name of {} characters", key.size()));
        if (place_ == Place::header) {
            if (!names_.insert(key).second) refuse(fmt::format("names {} twice", shown_name(key)));
            name_ = key;
            tensor_ = {};
            tensor_.name = key;
        } else if (place_ == Place::tensor) {
            bool* given = key == "dtype"          ? &given_.type
                          : key == "shape"        ? &given_.shape
                          : key == "data_offsets" ? &given_.offsets
                                                  : nullptr;
            if (!given) refuse(fmt::format("has the unknown key {} for {}", shown_name(key), shown_name(name_)));
            if (*given) refuse(fmt::format("gives {} of {} twice", key, shown_name(name_)));
            *given = true;
            key_ = key;
        }
        return true;
    }
    bool start_array(std::size_t) override {
        if (place_ != Place::tensor || key_ == "dtype") refuse("has an unexpected array");
        numbers_ = 0;
        return enter(key_ == "shape" ? Place::shape : Place::offsets);
    }
    bool end_array() override {
        if (place_ == Place::offsets) {
            if (numbers_ != 2 || end_ < tensor_.first)
                refuse(fmt::format("does not give {} a first byte and an end", shown_name(name_)));
            tensor_.bytes = end_ - tensor_.first;
        }
        return enter(Place::tensor);
    }
    bool number_unsigned(std::uint64_t number) override {
        if (place_ == Place::shape) {
            if (numbers_++ == most_axes)
                refuse(fmt::format("gives {} more than {} axes", shown_name(name_), most_axes));
            if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
                refuse(fmt::format("gives {} an axis of {}", shown_name(name_), number));
            tensor_.shape.push_back(static_cast<std::int64_t>(number));
        } else if (place_ == Place::offsets) {
            (numbers_++ == 0 ? tensor_.first : end_) = number;
            if (numbers_ > 2) refuse(fmt::format("gives {} more than two offsets", shown_name(name_)));
        } else {
            refuse(fmt::format("has the unexpected number {}", number));
        }
        return true;
    }
    bool string(std::string& text) override {
        if (place_ == Place::metadata) return true;
        if (place_ != Place::tensor || key_ != "dtype") refuse("has an unexpected string");
        if (text.size() > 32) refuse(fmt::format("gives {} a dtype of {} characters", shown_name(name_), text.size()));
        tensor_.type = text;
        return true;
    }
    bool null() override { return refuse_value(); }
    bool boolean(bool) override { return refuse_value(); }
    bool number_integer(std::int64_t) override { return refuse_value(); }
    bool number_float(double, const std::string&) override { return refuse_value(); }
    bool binary(binary_t&) override { return refuse_value(); }
    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
        refuse("is not JSON: " + json_problem(error));
    }

  private:
    enum class Place { before, header, metadata, tensor, shape, offsets, behind };
    bool enter(Place place) {
        place_ = place;
        return true;
    }
    bool refuse_value() const { refuse("has a value that is neither a string nor a non-negative whole number"); }
    [[noreturn]] void refuse(const std::string& what) const {
        throw damaged_error("{} is damaged: its header {}", path_, what);
    }

    const std::string& path_;
    std::vector<StoredTensor>& tensors_;
    std::set<std::string> names_;
    Place place_ = Place::before;
    std::string name_, key_;
    StoredTensor tensor_;
    std::size_t numbers_ = 0;
    std::uint64_t end_ = 0;
    struct {
        bool type = false, shape = false, offsets = false;
    } given_;
};

std::uint64_t element_bytes(const StoredTensor& tensor, const std::string& path) {
    for (const Word& known : words)
        if (known.word == tensor.type) return known.bytes;
    throw usage_error("{}: {} has the unknown type {}", path, shown_name(tensor.name), shown_name(tensor.type));
}

// Whether the shape has as many bytes as are given, computed without overflow.
bool bytes_agree(const StoredTensor& tensor, std::uint64_t of_element) {
    if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return tensor.bytes == 0;
    std::uint64_t left = tensor.bytes / of_element;
    if (tensor.bytes % of_element != 0) return false;
    for (const std::int64_t size : tensor.shape) {
        if (left % static_cast<std::uint64_t>(size) != 0) return false;
        left /= static_cast<std::uint64_t>(size);
    }
    return left == 1;
}

}  // namespace

std::vector<StoredTensor> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                   const std::string& path) {
    std::vector<StoredTensor> tensors;
    HeaderHandler handler(path, tensors);
    if (json.empty() || json[0] != '{') throw damaged_error("{} is damaged: its header does not begin with {{", path);
    Json::sax_parse(json.begin(), json.end(), &handler);
    std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
        return std::pair(a.first, a.bytes) < std::pair(b.first, b.bytes);
    });
    std::uint64_t end = 0;
    for (const StoredTensor& tensor : tensors) {
        if (!bytes_agree(tensor, element_bytes(tensor, path)))
            throw damaged_error("{} is damaged: {} has {} bytes, which is not {} of type {}", path,
                                shown_name(tensor.name), tensor.bytes, shape_text(tensor.shape), tensor.type);
        if (tensor.first != end)
            throw damaged_error("{} is damaged: {} begins at byte {} of the data, expected {}", path,
                                shown_name(tensor.name), tensor.first, end);
        if (tensor.bytes > data_bytes - end)
            throw damaged_error("{} is damaged or cut short: {} ends at byte {} of the data, which has {}", path,
                                shown_name(tensor.name), tensor.first + tensor.bytes, data_bytes);
        end += tensor.bytes;
    }
    if (end != data_bytes)
        throw damaged_error("{} is damaged: its tensors end at byte {} of the data, which has {}", path, end,
                            data_bytes);
    return tensors;
}

const FileType& file_type(Type type) {
    for (const FileType& each : file_types)
        if (each.type == type) return each;
    throw fault_error("tensors of {} cannot be written as safetensors", type_name(type));
}

Type compute_type(const StoredTensor& tensor, const std::string& path) {
    for (const FileType& each : file_types)
        if (each.word == tensor.type) return each.type;
    throw usage_error("{}: {} has the type {}; F32, F16 and BF16 are supported", path, shown_name(tensor.name),
                      shown_name(tensor.type));
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
    if (file_.bytes() < length_bytes)
        throw damaged_error("{} is damaged: it has {} bytes, too few for a header", path, file_.bytes());
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file_.data(), length_bytes);
    const std::uint64_t rest = file_.bytes() - length_bytes;
    if (header_bytes > largest_safetensors_header)
        throw damaged_error("{} is damaged: its header claims to have {} bytes; at most {} are allowed", path,
                            header_bytes, largest_safetensors_header);
    if (header_bytes > rest)
        throw damaged_error("{} is damaged or cut short: its header claims to have {} bytes, but the file has {}", path,
                            header_bytes, file_.bytes());
    data_ = file_.data() + length_bytes + header_bytes;
    tensors_ = parse_safetensors_header(
        {reinterpret_cast<const char*>(file_.data()) + length_bytes, static_cast<std::size_t>(header_bytes)},
        rest - header_bytes, path);
}

std::string safetensors_beginning(std::vector<StoredTensor>& tensors) {
    std::string text = fmt::format("{{\"{}\":{{\"format\":\"pt\"}}", metadata_key);  // transformers asks for this word
    std::uint64_t end = 0;
    for (StoredTensor& tensor : tensors) {
        tensor.first = end;
        end += tensor.bytes;
        const Json entry = {{"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {tensor.first, end}}};
        text += "," + Json(tensor.name).dump() + ":" + entry.dump();
    }
    text += "}";
    text.resize((text.size() + length_bytes - 1) / length_bytes * length_bytes, ' ');
    const std::uint64_t bytes = text.size();
    if (bytes > largest_safetensors_header)
        throw usage_error("a file of {} tensors would have a header of {} bytes; safetensors allows {}", tensors.size(),
                          bytes, largest_safetensors_header);
    std::string beginning(length_bytes, '\0');
    std::memcpy(beginning.data(), &bytes, length_bytes);
    return beginning + text;
}

}  // namespace lockstep::exchange
