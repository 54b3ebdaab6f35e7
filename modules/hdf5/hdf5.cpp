#include "hdf5/hdf5.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.hpp"

namespace lockstep::hdf5 {
namespace {

static_assert(sizeof(hid_t) == sizeof(std::int64_t));

void silence_hdf5() {
    static const bool once = (H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr), true);
    static_cast<void>(once);
}

herr_t keep_description(unsigned, const H5E_error2_t* entry, void* text) {
    if (entry->desc && *entry->desc) *static_cast<std::string*>(text) = entry->desc;
    return 0;
}

std::string hdf5_says() {
    std::string text = "no reason given";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_description, &text);
    H5Eclear2(H5E_DEFAULT);
    return text;
}

[[noreturn]] void fail(const std::string& path, bool writing, const std::string& doing) {
    const std::string reason = hdf5_says();
    if (writing) throw fault_error("{}: {} failed: {}", path, doing, reason);
    throw damaged_error("{} is damaged or not of this format: {} failed: {}", path, doing, reason);
}

class Handle {
  public:
    using Close = herr_t (*)(hid_t);
    Handle(hid_t id, Close close) : id_(id), close_(close) {}
    Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    Handle& operator=(Handle&&) = delete;
    ~Handle() {
        if (id_ >= 0) close_(id_);
    }
    hid_t get() const { return id_; }
    bool valid() const { return id_ >= 0; }

  private:
    hid_t id_;
    Close close_;
};

hid_t native(ElementType type) {
    switch (type) {
        case ElementType::uint8:
            return H5T_NATIVE_UINT8;
        case ElementType::uint16:
            return H5T_NATIVE_UINT16;
        case ElementType::int32:
            return H5T_NATIVE_INT32;
        case ElementType::uint32:
            return H5T_NATIVE_UINT32;
        case ElementType::int64:
            return H5T_NATIVE_INT64;
        case ElementType::uint64:
            return H5T_NATIVE_UINT64;
        case ElementType::fp32:
            return H5T_NATIVE_FLOAT;
        case ElementType::fp64:
            return H5T_NATIVE_DOUBLE;
    }
    throw fault_error("unknown HDF5 element type");
}

Handle text_type(std::size_t bytes) {
    Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type.get(), std::max<std::size_t>(bytes, 1));
    H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
    H5Tset_cset(type.get(), H5T_CSET_UTF8);
    return type;
}

Handle record_type(const RecordType& record, const std::string& path) {
    Handle type(H5Tcreate(H5T_COMPOUND, record.bytes), H5Tclose);
    for (const auto& field : record.fields) {
        const Handle text = text_type(field.text_bytes);
        if (H5Tinsert(type.get(), field.name.c_str(), field.offset,
                      field.text_bytes > 0 ? text.get() : native(field.type)) < 0)
            fail(path, true, "describing the field " + field.name);
    }
    return type;
}

std::string type_name(hid_t type) {
    constexpr std::pair<ElementType, const char*> names[] = {
        {ElementType::uint8, "uint8"},   {ElementType::uint16, "uint16"}, {ElementType::int32, "int32"},
        {ElementType::uint32, "uint32"}, {ElementType::int64, "int64"},   {ElementType::uint64, "uint64"},
        {ElementType::fp32, "fp32"},     {ElementType::fp64, "fp64"}};
    for (const auto& [element, name] : names)
        if (H5Tequal(type, native(element)) > 0) return name;
    return H5Tget_class(type) == H5T_COMPOUND ? "record" : "other";
}

Handle open_dataset(std::int64_t file, const std::string& file_path, bool writing, const std::string& path) {
    Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose);
    if (!dataset.valid()) fail(file_path, writing, "opening the dataset /" + path);
    return dataset;
}

Handle open_object(std::int64_t file, const std::string& file_path, bool writing, const std::string& path) {
    Handle object(H5Oopen(file, path.c_str(), H5P_DEFAULT), H5Oclose);
    if (!object.valid()) fail(file_path, writing, "opening " + path);
    return object;
}

herr_t collect_name(hid_t, const char* name, const H5L_info_t*, void* names) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}

herr_t collect_dataset(hid_t, const char* name, const H5O_info_t* info, void* names) {
    if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}

herr_t collect_attribute(hid_t, const char* name, const H5A_info_t*, void* names) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}

void write_attribute_raw(hid_t file, const std::string& path, const std::string& object, const std::string& name,
                         hid_t type, const void* value) {
    const Handle target = open_object(file, path, true, object);
    if (H5Aexists(target.get(), name.c_str()) > 0) H5Adelete(target.get(), name.c_str());
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    const Handle attribute(H5Acreate2(target.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                           H5Aclose);
    if (!attribute.valid() || H5Awrite(attribute.get(), type, value) < 0)
        fail(path, true, "writing the attribute " + name);
}

void read_attribute_raw(hid_t file, const std::string& path, bool writing, const std::string& object,
                        const std::string& name, hid_t type, void* value) {
    const Handle source = open_object(file, path, writing, object);
    const Handle attribute(H5Aopen(source.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
    if (!attribute.valid() || H5Aread(attribute.get(), type, value) < 0)
        fail(path, writing, "reading the attribute " + name + " of " + object);
}

}  // namespace

std::size_t element_bytes(ElementType type) {
    return H5Tget_size(native(type));
}

File File::open(const std::string& path) {
    silence_hdf5();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored))
        throw usage_error("{} {}", path, std::filesystem::exists(path, ignored) ? "is not a file" : "does not exist");
    const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    if (id < 0) fail(path, false, "opening it");
    return {id, path, false};
}

File File::create(const std::string& path) {
    silence_hdf5();
    const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_alignment(access.get(), 65536, 4096);
    const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get());
    if (id < 0) fail(path, true, "creating the file");
    return {id, path, true};
}

File::~File() {
    if (id_ >= 0) H5Fclose(id_);
}

void File::close() {
    if (id_ >= 0 && H5Fclose(std::exchange(id_, -1)) < 0) fail(path_, writing_, "closing the file");
}

bool File::exists(const std::string& object) const {
    // H5Lexists wants every parent to exist.
    for (std::size_t end = object.find('/', 1);; end = object.find('/', end + 1)) {
        const std::string part = object.substr(0, end);
        if (part != "/" && !part.empty() && H5Lexists(id_, part.c_str(), H5P_DEFAULT) <= 0) return false;
        if (end == std::string::npos) return true;
    }
}

std::vector<std::string> File::children(const std::string& group) const {
    std::vector<std::string> names;
    const Handle handle = open_object(id_, path_, writing_, group);
    if (H5Literate(handle.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_name, &names) < 0)
        fail(path_, writing_, "listing " + group);
    return names;
}

std::vector<std::string> File::datasets(const std::string& group) const {
    std::vector<std::string> names;
    const Handle handle = open_object(id_, path_, writing_, group);
    if (H5Ovisit2(handle.get(), H5_INDEX_NAME, H5_ITER_INC, collect_dataset, &names, H5O_INFO_BASIC) < 0)
        fail(path_, writing_, "listing " + group);
    std::sort(names.begin(), names.end());
    std::string prefix = group;
    while (!prefix.empty() && prefix.front() == '/') prefix.erase(0, 1);
    if (!prefix.empty() && prefix.back() != '/') prefix += '/';
    for (auto& name : names) name.insert(0, prefix);
    return names;
}

void File::make_group(const std::string& group) {
    if (exists(group)) return;
    const Handle link(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
    H5Pset_create_intermediate_group(link.get(), 1);
    const Handle made(H5Gcreate2(id_, group.c_str(), link.get(), H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
    if (!made.valid()) fail(path_, true, "making the group " + group);
}

void File::write_attribute(const std::string& object, const std::string& name, const std::string& value) {
    // Attributes of 64 KiB and more need dense storage, which files of the 1.10 format have.
    const Handle type = text_type(value.size());
    const char empty = '\0';
    write_attribute_raw(id_, path_, object, name, type.get(), value.empty() ? &empty : value.data());
}

void File::write_attribute(const std::string& object, const std::string& name, std::int64_t value) {
    write_attribute_raw(id_, path_, object, name, H5T_NATIVE_INT64, &value);
}

void File::write_attribute(const std::string& object, const std::string& name, double value) {
    write_attribute_raw(id_, path_, object, name, H5T_NATIVE_DOUBLE, &value);
}

bool File::has_attribute(const std::string& object, const std::string& name) const {
    return H5Aexists_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

std::vector<std::string> File::attributes(const std::string& object) const {
    std::vector<std::string> names;
    const Handle handle = open_object(id_, path_, writing_, object);
    if (H5Aiterate2(handle.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_attribute, &names) < 0)
        fail(path_, writing_, "listing the attributes of " + object);
    return names;
}

std::string File::read_string(const std::string& object, const std::string& name) const {
    const Handle source = open_object(id_, path_, writing_, object);
    const Handle attribute(H5Aopen(source.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
    if (!attribute.valid()) fail(path_, writing_, "reading the attribute " + name + " of " + object);
    const Handle type(H5Aget_type(attribute.get()), H5Tclose);
    if (H5Tget_class(type.get()) != H5T_STRING)
        throw damaged_error("{}: the attribute {} of {} is not text", path_, name, object);
    if (H5Tis_variable_str(type.get()) > 0) {
        char* text = nullptr;
        if (H5Aread(attribute.get(), type.get(), &text) < 0) fail(path_, writing_, "reading the attribute " + name);
        std::string value = text ? text : "";
        H5free_memory(text);
        return value;
    }
    std::string value(H5Tget_size(type.get()), '\0');
    if (H5Aread(attribute.get(), type.get(), value.data()) < 0) fail(path_, writing_, "reading the attribute " + name);
    return value.substr(0, value.find('\0'));
}

std::int64_t File::read_integer(const std::string& object, const std::string& name) const {
    std::int64_t value = 0;
    read_attribute_raw(id_, path_, writing_, object, name, H5T_NATIVE_INT64, &value);
    return value;
}

double File::read_number(const std::string& object, const std::string& name) const {
    double value = 0;
    read_attribute_raw(id_, path_, writing_, object, name, H5T_NATIVE_DOUBLE, &value);
    return value;
}

std::string File::read_as_text(const std::string& object, const std::string& name) const {
    const Handle source = open_object(id_, path_, writing_, object);
    const Handle attribute(H5Aopen(source.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
    if (!attribute.valid()) fail(path_, writing_, "reading the attribute " + name + " of " + object);
    const Handle type(H5Aget_type(attribute.get()), H5Tclose);
    switch (H5Tget_class(type.get())) {
        case H5T_STRING:
            return read_string(object, name);
        case H5T_INTEGER:
            return fmt::format("{}", read_integer(object, name));
        case H5T_FLOAT:
            return fmt::format("{}", read_number(object, name));
        default:
            return "(not text, not a number)";
    }
}

namespace {
void create_contiguous(hid_t file, const std::string& file_path, const std::string& path, hid_t type,
                       const Dimensions& dimensions) {
    const std::vector<hsize_t> sizes(dimensions.begin(), dimensions.end());
    const Handle space(
        sizes.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
        H5Sclose);
    const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
    H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
    const Handle link(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
    H5Pset_create_intermediate_group(link.get(), 1);
    const Handle dataset(H5Dcreate2(file, path.c_str(), type, space.get(), link.get(), creation.get(), H5P_DEFAULT),
                         H5Dclose);
    if (!dataset.valid()) fail(file_path, true, "creating the dataset /" + path);
}
}  // namespace

void File::create_dataset(const std::string& path, ElementType type, const Dimensions& dimensions) {
    create_contiguous(id_, path_, path, native(type), dimensions);
}

void File::create_dataset(const std::string& path, const RecordType& type, const Dimensions& dimensions) {
    const Handle record = record_type(type, path_);
    create_contiguous(id_, path_, path, record.get(), dimensions);
}

void File::write(const std::string& path, const void* data) {
    const Handle dataset = open_dataset(id_, path_, writing_, path);
    const Handle type(H5Dget_type(dataset.get()), H5Tclose);
    if (info(path).bytes > 0 && H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        fail(path_, true, "writing /" + path);
}

void File::read(const std::string& path, void* data) const {
    const Handle dataset = open_dataset(id_, path_, writing_, path);
    const Handle type(H5Dget_type(dataset.get()), H5Tclose);
    if (info(path).bytes > 0 && H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        fail(path_, writing_, "reading /" + path);
}

void File::read_as(const std::string& path, ElementType type, void* data) const {
    const Handle dataset = open_dataset(id_, path_, writing_, path);
    if (info(path).bytes > 0 && H5Dread(dataset.get(), native(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        fail(path_, writing_, "reading /" + path);
}

void File::read_records(const std::string& path, const RecordType& type, void* data) const {
    const Handle dataset = open_dataset(id_, path_, writing_, path);
    const Handle record = record_type(type, path_);
    if (info(path).bytes > 0 && H5Dread(dataset.get(), record.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        fail(path_, writing_, "reading /" + path);
}

void File::write_text(const std::string& path, const std::string& bytes) {
    create_dataset(path, ElementType::uint8, {bytes.size()});
    write(path, bytes.data());
}

std::string File::read_text(const std::string& path) const {
    const DatasetInfo about = info(path);
    if (about.type_name != "uint8") throw damaged_error("{}: /{} does not hold bytes", path_, path);
    std::string bytes(about.bytes, '\0');
    read(path, bytes.data());
    return bytes;
}

DatasetInfo File::info(const std::string& path) const {
    const Handle dataset = open_dataset(id_, path_, writing_, path);
    const Handle space(H5Dget_space(dataset.get()), H5Sclose);
    const Handle type(H5Dget_type(dataset.get()), H5Tclose);
    const Handle creation(H5Dget_create_plist(dataset.get()), H5Pclose);
    DatasetInfo about;
    const int rank = H5Sget_simple_extent_ndims(space.get());
    std::vector<hsize_t> sizes(static_cast<std::size_t>(std::max(rank, 0)));
    if (rank < 0 || (rank > 0 && H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr) < 0))
        fail(path_, writing_, "reading the shape of /" + path);
    about.dimensions.assign(sizes.begin(), sizes.end());
    about.element_bytes = H5Tget_size(type.get());
    about.bytes = about.element_bytes;
    for (const auto size : about.dimensions) about.bytes *= size;
    about.contiguous = H5Pget_layout(creation.get()) == H5D_CONTIGUOUS;
    const haddr_t offset = H5Dget_offset(dataset.get());
    about.offset = offset == HADDR_UNDEF ? 0 : offset;
    about.type_name = type_name(type.get());
    return about;
}

}  // namespace lockstep::hdf5
