#include "fuzz/hdf5_edits.hpp"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"
#include "base/open_file.hpp"
#include "fuzz/harness.hpp"

namespace lockstep::fuzz {
namespace {

class Handle {
  public:
    Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
    ~Handle() {
        if (id_ >= 0) close_(id_);
    }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    operator hid_t() const { return id_; }
    bool valid() const { return id_ >= 0; }

  private:
    hid_t id_;
    herr_t (*close_)(hid_t);
};

Handle open_to_edit(const std::string& path) {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return {H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose};
}

herr_t add_object(hid_t, const char* name, const H5O_info_t*, void* names) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}
herr_t add_attribute(hid_t, const char* name, const H5A_info_t*, void* names) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}

// "." is the root.
std::vector<std::string> objects_of(hid_t file) {
    std::vector<std::string> names;
    H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, add_object, &names, H5O_INFO_BASIC);
    return names;
}

std::vector<std::string> attributes_of(hid_t object) {
    std::vector<std::string> names;
    H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, add_attribute, &names);
    return names;
}

hid_t number_type(std::size_t which) {
    const std::array<hid_t, 12> types = {H5T_NATIVE_INT64, H5T_NATIVE_UINT64, H5T_NATIVE_DOUBLE, H5T_NATIVE_FLOAT,
                                         H5T_NATIVE_UINT8, H5T_NATIVE_UINT16, H5T_NATIVE_UINT32, H5T_NATIVE_INT32,
                                         H5T_NATIVE_INT8,  H5T_STD_I64BE,     H5T_STD_REF_OBJ,   H5T_NATIVE_B32};
    return types[which % types.size()];
}

void put_attribute(hid_t object, const std::string& name, hid_t type, hid_t space, const void* value) {
    H5Adelete(object, name.c_str());
    const Handle attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    if (attribute.valid()) H5Awrite(attribute, type, value);
}

void put_text(hid_t object, const std::string& name, const std::string& value) {
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose), type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type, std::max<std::size_t>(value.size(), 1));
    put_attribute(object, name, type, space, value.c_str());
}

void put_variable_text(hid_t object, const std::string& name, const std::string& value) {
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose), type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type, H5T_VARIABLE);
    const char* text = value.c_str();
    put_attribute(object, name, type, space, &text);
}

void edit_attribute(hid_t file, const std::string& path, Choices& choices) {
    const Handle object(H5Oopen(file, path.c_str(), H5P_DEFAULT), H5Oclose);
    if (!object.valid()) return;
    const std::vector<std::string> names = attributes_of(object);
    const std::size_t kind = choices.below(7);
    const std::string name = names.empty() || kind == 6 ? choices.text() : names[choices.below(names.size())];
    const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
    constexpr hsize_t two = 2;
    const Handle pair(H5Screate_simple(1, &two, nullptr), H5Sclose);
    const std::array<std::uint64_t, 2> numbers = {kind == 0 ? choices.number() : choices.word(), 1};
    switch (kind) {
        case 0:
        case 1:
            put_attribute(object, name, number_type(choices.below(3)), scalar, numbers.data());
            break;
        case 2:
            put_attribute(object, name, number_type(choices.byte()), choices.below(2) == 0 ? scalar : pair,
                          numbers.data());
            break;
        case 3:
            put_text(object, name, choices.text());
            break;
        case 4:
            put_variable_text(object, name, choices.text());
            break;
        case 5:
            H5Adelete(object, name.c_str());
            break;
        default:
            put_text(object, name, choices.text());
    }
}

// A dataset of another type or size, without values: those that were never written take no space.
void replace_dataset(hid_t file, const std::string& path, Choices& choices) {
    const Handle before(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose);
    if (!before.valid()) return;
    const Handle old_type(H5Dget_type(before), H5Tclose), old_space(H5Dget_space(before), H5Sclose);
    std::array<hsize_t, H5S_MAX_RANK> sizes{};
    int axes = H5Sget_simple_extent_dims(old_space, sizes.data(), nullptr);
    if (axes < 0) return;
    const std::size_t kind = choices.below(4);
    const hid_t type = kind == 0 ? number_type(choices.byte()) : static_cast<hid_t>(old_type);
    if (kind == 1) axes = static_cast<int>(choices.below(5));
    if (kind != 0)
        for (int axis = 0; axis < axes; ++axis) sizes[static_cast<std::size_t>(axis)] = choices.number();
    const bool chunked = axes > 0 && choices.below(2) == 1;
    constexpr std::uint64_t small = 4096;
    std::uint64_t elements = 1;
    for (int axis = 0; axis < axes; ++axis) {
        const hsize_t size = sizes[static_cast<std::size_t>(axis)];
        elements = size > 0 && elements > small / size ? small + 1 : elements * size;
    }
    const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    if (chunked) {
        std::array<hsize_t, H5S_MAX_RANK> chunk{};
        chunk.fill(1);
        if (H5Pset_chunk(creation, axes, chunk.data()) < 0) return;
    } else {
        H5Pset_alloc_time(creation, elements <= small ? H5D_ALLOC_TIME_EARLY : H5D_ALLOC_TIME_LATE);
    }
    const Handle space(axes == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(axes, sizes.data(), nullptr), H5Sclose);
    if (!space.valid()) return;
    H5Ldelete(file, path.c_str(), H5P_DEFAULT);
    const Handle after(H5Dcreate2(file, path.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose);
}

// Bytes to be written once HDF5 has let go of the file.
struct Patch {
    std::uint64_t offset = 0;
    std::string bytes;
};

void edit_values(hid_t file, const std::string& path, Choices& choices, std::vector<Patch>& patches) {
    const Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose);
    if (!dataset.valid()) return;
    const haddr_t offset = H5Dget_offset(dataset);
    const hsize_t bytes = H5Dget_storage_size(dataset);
    if (offset == HADDR_UNDEF || bytes == 0) return;
    const std::size_t width = std::size_t{1} << choices.below(4);
    const std::uint64_t at = (choices.byte() + std::uint64_t{256} * choices.byte()) * width % bytes;
    const std::uint64_t value = choices.below(2) == 0 ? choices.number() : choices.word();
    std::string patch(reinterpret_cast<const char*>(&value), std::min<std::uint64_t>(width, bytes - at));
    patches.push_back({offset + at, std::move(patch)});
}

}  // namespace

std::string_view Choices::take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
}
std::uint8_t Choices::byte() {
    const std::string_view one = take(1);
    return one.empty() ? 0 : static_cast<std::uint8_t>(one.front());
}
std::size_t Choices::below(std::size_t limit) {
    return limit == 0 ? 0 : byte() % limit;
}
std::uint64_t Choices::word() {
    const std::string_view bytes = take(sizeof(std::uint64_t));
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
}
std::uint64_t Choices::number() {
    constexpr std::array<std::uint64_t, 12> telling = {
        0,          1,          ~std::uint64_t{0}, 0x7fffffff, 1ull << 31, 1ull << 32,
        1ull << 62, 1ull << 63, 1ull << 17,        1ull << 40, 3,          0xffffffff};
    switch (below(4)) {
        case 0:
            return telling[below(telling.size())];
        case 1:
            return byte();
        case 2:
            return byte() + std::uint64_t{256} * byte();
        default:
            return word();
    }
}
std::string Choices::text() {
    return std::string(take(byte()));
}

void edit_hdf5(const std::string& path, Choices& choices) {
    std::vector<Patch> patches;
    std::uint64_t cut = 0;
    {
        const Handle file = open_to_edit(path);
        if (!file.valid()) return;
        constexpr int most_edits = 16;
        for (int edits = 0; edits < most_edits && !choices.empty(); ++edits) {
            const std::vector<std::string> objects = objects_of(file);
            if (objects.empty()) break;
            const std::size_t kind = choices.below(12);
            const std::string object = objects[choices.below(objects.size())];
            if (kind < 4) {
                edit_attribute(file, object, choices);
            } else if (kind < 6) {
                replace_dataset(file, object, choices);
            } else if (kind < 9) {
                edit_values(file, object, choices, patches);
            } else if (kind == 9) {
                if (object != ".") H5Ldelete(file, object.c_str(), H5P_DEFAULT);
            } else if (kind == 10) {
                const std::string to = choices.text();
                const std::size_t how = choices.below(3);
                if (how == 0 && object != ".")
                    H5Lmove(file, object.c_str(), file, to.c_str(), H5P_DEFAULT, H5P_DEFAULT);
                else if (how == 1)
                    H5Lcreate_hard(file, object.c_str(), file, to.c_str(), H5P_DEFAULT, H5P_DEFAULT);
                else
                    H5Lcreate_soft(object.c_str(), file, to.c_str(), H5P_DEFAULT, H5P_DEFAULT);
            } else {
                cut = 1 + choices.byte() + std::uint64_t{256} * choices.byte();
            }
        }
    }
    OpenFile file = OpenFile::for_writing(path);
    for (const Patch& patch : patches)
        if (patch.offset + patch.bytes.size() <= file.bytes())
            file.write(patch.bytes.data(), patch.bytes.size(), patch.offset);
    if (cut > 0) file.resize(file.bytes() - std::min(cut - 1, file.bytes()));
}

void set_text_attributes(const std::string& path, const std::vector<TextAttribute>& attributes) {
    const Handle file = open_to_edit(path);
    if (!file.valid()) return;
    for (const TextAttribute& one : attributes) {
        const Handle target(H5Oopen(file, one.object.c_str(), H5P_DEFAULT), H5Oclose);
        if (target.valid()) put_text(target, one.name, one.value);
    }
}

std::string bytes_of_dataset(const hdf5::File& file, const std::string& dataset) {
    try {
        if (!file.exists(dataset)) return "";
        const hdf5::DatasetInfo about = file.info(dataset);
        const std::uint64_t size = file_bytes(file.path());
        if (!about.contiguous || about.offset == 0 || about.offset > size || about.bytes > size - about.offset)
            return "";
        std::string bytes(about.bytes, '\0');
        OpenFile::for_reading(file.path()).read(bytes.data(), bytes.size(), about.offset);
        return bytes;
    } catch (const Error&) {
        return "";
    }
}

}  // namespace lockstep::fuzz
