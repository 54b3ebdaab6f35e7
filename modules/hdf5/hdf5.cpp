#include "hdf5/hdf5.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/open_file.hpp"
#include "hdf5/handle.hpp"
#include "hdf5/memory_image.hpp"

namespace lockstep::hdf5 {
namespace {

static_assert(sizeof(hid_t) == sizeof(std::int64_t));

struct NamedType {  // in the order of ElementType
    ElementType type;
    const char* name;
    hid_t native;
};
const std::array<NamedType, 8>& named_types() {
    static const std::array<NamedType, 8> types = {{{ElementType::uint8, "uint8", H5T_NATIVE_UINT8},
                                                    {ElementType::uint16, "uint16", H5T_NATIVE_UINT16},
                                                    {ElementType::int32, "int32", H5T_NATIVE_INT32},
                                                    {ElementType::uint32, "uint32", H5T_NATIVE_UINT32},
                                                    {ElementType::int64, "int64", H5T_NATIVE_INT64},
                                                    {ElementType::uint64, "uint64", H5T_NATIVE_UINT64},
                                                    {ElementType::fp32, "fp32", H5T_NATIVE_FLOAT},
                                                    {ElementType::fp64, "fp64", H5T_NATIVE_DOUBLE}}};
    return types;
}

hid_t native(ElementType type) {
    return named_types()[static_cast<std::size_t>(type)].native;
}

Handle text_type(std::size_t bytes, const std::string& path) {
    const std::string doing = "creating a string type";
    Handle type(H5Tcopy(H5T_C_S1), H5Tclose, path, true, doing);
    const hid_t id = type.get();
    if (H5Tset_size(id, std::max<std::size_t>(bytes, 1)) < 0 || H5Tset_strpad(id, H5T_STR_NULLPAD) < 0 ||
        H5Tset_cset(id, H5T_CSET_UTF8) < 0)
        fail(path, true, doing);
    return type;
}

Handle record_type(const RecordType& record, const std::string& path) {
    Handle type(H5Tcreate(H5T_COMPOUND, record.bytes), H5Tclose, path, true, "creating a record type");
    for (const auto& field : record.fields) {
        const Handle text = text_type(field.text_bytes, path);
        const hid_t member = field.text_bytes > 0 ? text.get() : native(field.type);
        check(H5Tinsert(type.get(), field.name.c_str(), field.offset, member), path, true,
              "creating the field " + field.name);
    }
    return type;
}

std::string type_name(hid_t type) {
    for (const auto& named : named_types())
        if (H5Tequal(type, named.native) > 0) return named.name;
    return H5Tget_class(type) == H5T_COMPOUND ? "record" : "other";
}

Handle open_dataset(hid_t file, const std::string& file_path, bool writing, const std::string& path) {
    return {H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, file_path, writing, "opening the dataset /" + path};
}

Handle open_object(hid_t file, const std::string& file_path, bool writing, const std::string& path) {
    return {H5Oopen(file, path.c_str(), H5P_DEFAULT), H5Oclose, file_path, writing, "opening " + path};
}

herr_t collect_name(hid_t, const char* name, const H5A_info_t*, void* names) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}

herr_t collect_dataset(hid_t, const char* name, const H5O_info_t* info, void* names) {
    if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}

// An open attribute and its type.
struct StoredAttribute {
    StoredAttribute(hid_t file, const std::string& file_path, bool writing, const std::string& path,
                    const std::string& name)
        : doing("reading the attribute " + name + " of " + path),
          object(open_object(file, file_path, writing, path)),
          attribute(H5Aopen(object.get(), name.c_str(), H5P_DEFAULT), H5Aclose, file_path, writing, doing),
          type(H5Aget_type(attribute.get()), H5Tclose, file_path, writing, doing),
          space(H5Aget_space(attribute.get()), H5Sclose, file_path, writing, doing),
          kind(H5Tget_class(type.get())),
          single(H5Sget_simple_extent_npoints(space.get()) == 1) {}

    std::string doing;
    Handle object, attribute, type, space;
    H5T_class_t kind;
    bool single;
};

void write_attribute_raw(hid_t file, const std::string& path, const std::string& object, const std::string& name,
                         hid_t type, const void* value) {
    const std::string doing = "writing the attribute " + name + " of " + object;
    const Handle target = open_object(file, path, true, object);
    const htri_t there = H5Aexists(target.get(), name.c_str());
    check(there, path, true, doing);
    if (there > 0) check(H5Adelete(target.get(), name.c_str()), path, true, doing);
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose, path, true, doing);
    const Handle attribute(H5Acreate2(target.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                           H5Aclose, path, true, doing);
    check(H5Awrite(attribute.get(), type, value), path, true, doing);
}

void read_number_raw(hid_t file, const std::string& path, bool writing, const std::string& object,
                     const std::string& name, hid_t type, void* value) {
    const StoredAttribute stored(file, path, writing, object, name);
    if (stored.single && stored.kind == H5T_ENUM && H5Tequal(type, H5T_NATIVE_INT64) > 0) {
        // h5py writes booleans as an enumeration over an integer, read as that integer.
        const Handle base(H5Tget_super(stored.type.get()), H5Tclose, path, writing, stored.doing);
        std::int64_t number = 0;
        check(H5Aread(stored.attribute.get(), stored.type.get(), &number), path, writing, stored.doing);
        check(H5Tconvert(base.get(), H5T_NATIVE_INT64, 1, &number, nullptr, H5P_DEFAULT), path, writing, stored.doing);
        *static_cast<std::int64_t*>(value) = number;
        return;
    }
    if (!stored.single || (stored.kind != H5T_INTEGER && stored.kind != H5T_FLOAT))
        throw damaged_error("{}: the attribute {} of {} is not a number", path, name, object);
    check(H5Aread(stored.attribute.get(), type, value), path, writing, stored.doing);
}

// No modification times: equal contents make equal files.
void keep_no_times(const Handle& creation, const std::string& path, const std::string& doing) {
    check(H5Pset_obj_track_times(creation.get(), false), path, true, doing);
}

void create_contiguous(hid_t file, const std::string& file_path, const std::string& path, hid_t type,
                       const Dimensions& dimensions) {
    const std::string doing = "creating the dataset /" + path;
    const std::vector<hsize_t> sizes(dimensions.begin(), dimensions.end());
    const Handle space(
        sizes.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
        H5Sclose, file_path, true, doing);
    const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, file_path, true, doing);
    check(H5Pset_layout(creation.get(), H5D_CONTIGUOUS), file_path, true, doing);
    check(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY), file_path, true, doing);
    check(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), file_path, true, doing);
    keep_no_times(creation, file_path, doing);
    const Handle dataset(H5Dcreate2(file, path.c_str(), type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                         H5Dclose, file_path, true, doing);
}

constexpr hid_t own_type = -1;  // no conversion
void read_into(hid_t file, const std::string& file_path, bool writing, const std::string& path, hid_t type,
               void* data) {
    const std::string doing = "reading /" + path;
    const Handle dataset = open_dataset(file, file_path, writing, path);
    const Handle stored(H5Dget_type(dataset.get()), H5Tclose, file_path, writing, doing);
    const Handle space(H5Dget_space(dataset.get()), H5Sclose, file_path, writing, doing);
    if (H5Sget_simple_extent_npoints(space.get()) == 0) return;
    check(H5Dread(dataset.get(), type == own_type ? stored.get() : type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data),
          file_path, writing, doing);
}

}  // namespace

std::size_t element_bytes(ElementType type) {
    return H5Tget_size(native(type));
}

bool has_signature(const std::string& path) {
    constexpr std::string_view signature("\x89HDF\r\n\x1a\n", 8);
    std::array<char, signature.size()> start{};
    return OpenFile::for_reading(path).read_up_to(start.data(), start.size(), 0) == start.size() &&
           std::string_view(start.data(), start.size()) == signature;
}

File File::open(const std::string& path) {
    silence_hdf5();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored))
        throw usage_error("{} {}", path, std::filesystem::exists(path, ignored) ? "is not a file" : "does not exist");
    auto storage = std::make_unique<DiskFile>(path);
    if (storage->bytes() == 0) throw damaged_error("{} is empty", path);
    const std::string doing = "opening it";
    const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, path, false, doing);
    if (!use_storage(access.get(), *storage)) fail(path, false, doing);
    const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get());
    if (id < 0) fail(path, false, doing);
    return {id, path, std::move(storage), OpenFile(), false};
}

File::File(std::int64_t id, std::string path, std::unique_ptr<Storage> storage, OpenFile created, bool writing)
    : id_(id), path_(std::move(path)), storage_(std::move(storage)), created_(std::move(created)), writing_(writing) {}

File::File(File&& other) noexcept
    : id_(std::exchange(other.id_, -1)),
      path_(std::move(other.path_)),
      storage_(std::move(other.storage_)),
      created_(std::move(other.created_)),
      writing_(other.writing_) {}

File File::create(const std::string& path) {
    return create(path, OpenFile::create(path));
}

File File::create_in_memory(const std::string& name) {
    return create(name, OpenFile());
}

File File::create(const std::string& path, OpenFile created) {
    silence_hdf5();
    const std::string doing = "creating the file";
    const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, path, true, doing);
    check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), path, true, doing);
    check(H5Pset_alignment(access.get(), 65536, 4096), path, true, doing);
    auto image = std::make_unique<MemoryImage>();
    if (!use_storage(access.get(), *image)) fail(path, true, doing);
    const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, path, true, doing);
    keep_no_times(creation, path, doing);
    const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get());
    if (id < 0) fail(path, true, doing);
    return {id, path, std::move(image), std::move(created), true};
}

bool File::let_go() {
    if (id_ < 0 || H5Fclose(std::exchange(id_, -1)) >= 0) return true;
    static_cast<void>(storage_.release());  // HDF5 may still use it when the process ends
    return false;
}

File::~File() {
    let_go();
}

void File::close() {
    if (id_ < 0) return;
    if (!let_go()) fail(path_, writing_, "closing the file");
    if (!created_.is_open()) return;
    static_cast<const MemoryImage&>(*storage_).store(created_);
    created_.close();
}

File::Written File::written() const {
    LOCKSTEP_ASSERT(id_ < 0 && writing_);
    Written written;
    written.bytes = storage_->bytes();
    static_cast<const MemoryImage&>(*storage_).for_each_piece(
        [&](std::uint64_t offset, const std::vector<char>& bytes) {
            written.pieces.emplace_back(offset, std::string(bytes.begin(), bytes.end()));
        });
    return written;
}

bool File::exists(const std::string& object) const {
    // H5Lexists requires all parents to exist.
    for (std::size_t end = object.find('/', 1);; end = object.find('/', end + 1)) {
        const std::string part = object.substr(0, end);
        if (part != "/" && !part.empty()) {
            const htri_t there = H5Lexists(id_, part.c_str(), H5P_DEFAULT);
            check(there, path_, writing_, "looking for " + part);
            if (there == 0) return false;
        }
        if (end == std::string::npos) return true;
    }
}

std::vector<std::string> File::datasets(const std::string& group) const {
    std::vector<std::string> names;
    const Handle handle = open_object(id_, path_, writing_, group);
    check(H5Ovisit2(handle.get(), H5_INDEX_NAME, H5_ITER_INC, collect_dataset, &names, H5O_INFO_BASIC), path_, writing_,
          "listing " + group);
    std::sort(names.begin(), names.end());
    std::string prefix = group;
    while (!prefix.empty() && prefix.front() == '/') prefix.erase(0, 1);
    if (!prefix.empty() && prefix.back() != '/') prefix += '/';
    for (auto& name : names) name.insert(0, prefix);
    return names;
}

void File::make_group(const std::string& group_or_slash) {
    std::string group = group_or_slash;
    while (!group.empty() && group.back() == '/') group.pop_back();
    if (group.empty() || exists(group)) return;
    const std::size_t parent = group.rfind('/');
    if (parent != std::string::npos && parent > 0) make_group(group.substr(0, parent));
    const std::string doing = "creating the group " + group;
    const Handle creation(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, path_, true, doing);
    keep_no_times(creation, path_, doing);
    const Handle made(H5Gcreate2(id_, group.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), H5Gclose, path_, true,
                      doing);
}

void File::write_attribute(const std::string& object, const std::string& name, const std::string& value) {
    // Attributes of 64 KiB and more need dense storage, available in the 1.10 format.
    const Handle type = text_type(value.size(), path_);
    const char empty = '\0';
    write_attribute_raw(id_, path_, object, name, type.get(), value.empty() ? &empty : value.data());
}

void File::write_attribute(const std::string& object, const std::string& name, std::int64_t value) {
    write_attribute_raw(id_, path_, object, name, H5T_NATIVE_INT64, &value);
}

void File::write_attribute(const std::string& object, const std::string& name, std::uint64_t value) {
    write_attribute_raw(id_, path_, object, name, H5T_NATIVE_UINT64, &value);
}

void File::write_attribute(const std::string& object, const std::string& name, double value) {
    write_attribute_raw(id_, path_, object, name, H5T_NATIVE_DOUBLE, &value);
}

bool File::has_attribute(const std::string& object, const std::string& name) const {
    const htri_t there = H5Aexists_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT);
    check(there, path_, writing_, "looking for the attribute " + name + " of " + object);
    return there > 0;
}

std::vector<std::string> File::attributes(const std::string& object) const {
    std::vector<std::string> names;
    const Handle handle = open_object(id_, path_, writing_, object);
    check(H5Aiterate2(handle.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_name, &names), path_, writing_,
          "listing the attributes of " + object);
    return names;
}

std::string File::read_string(const std::string& object, const std::string& name) const {
    const StoredAttribute stored(id_, path_, writing_, object, name);
    if (!stored.single || stored.kind != H5T_STRING)
        throw damaged_error("{}: the attribute {} of {} is not a string", path_, name, object);
    if (H5Tis_variable_str(stored.type.get()) > 0) {
        char* text = nullptr;
        check(H5Aread(stored.attribute.get(), stored.type.get(), &text), path_, writing_, stored.doing);
        std::string value = text ? text : "";
        H5free_memory(text);
        return value;
    }
    std::string value(H5Tget_size(stored.type.get()), '\0');
    check(H5Aread(stored.attribute.get(), stored.type.get(), value.data()), path_, writing_, stored.doing);
    return value.substr(0, value.find('\0'));
}

std::int64_t File::read_integer(const std::string& object, const std::string& name) const {
    std::int64_t value = 0;
    read_number_raw(id_, path_, writing_, object, name, H5T_NATIVE_INT64, &value);
    return value;
}

std::uint64_t File::read_unsigned(const std::string& object, const std::string& name) const {
    std::uint64_t value = 0;
    read_number_raw(id_, path_, writing_, object, name, H5T_NATIVE_UINT64, &value);
    return value;
}

double File::read_number(const std::string& object, const std::string& name) const {
    double value = 0;
    read_number_raw(id_, path_, writing_, object, name, H5T_NATIVE_DOUBLE, &value);
    return value;
}

std::string File::attribute_kind(const std::string& object, const std::string& name) const {
    const StoredAttribute stored(id_, path_, writing_, object, name);
    if (stored.single && stored.kind == H5T_STRING) return "text";
    if (stored.single && stored.kind == H5T_INTEGER) return "integer";
    if (stored.single && stored.kind == H5T_FLOAT) return "number";
    return "other";
}

std::string File::read_as_text(const std::string& object, const std::string& name) const {
    const std::string kind = attribute_kind(object, name);
    if (kind == "text") return read_string(object, name);
    if (kind == "number") return fmt::format("{}", read_number(object, name));
    if (kind == "other") return "(not a single string or number)";
    const StoredAttribute stored(id_, path_, writing_, object, name);
    if (H5Tget_sign(stored.type.get()) == H5T_SGN_NONE) return fmt::format("{}", read_unsigned(object, name));
    return fmt::format("{}", read_integer(object, name));
}

void File::create_dataset(const std::string& path, ElementType type, const Dimensions& dimensions) {
    make_group(path.substr(0, path.find_last_of('/') + 1));
    create_contiguous(id_, path_, path, native(type), dimensions);
}

void File::create_dataset(const std::string& path, const RecordType& type, const Dimensions& dimensions) {
    const Handle record = record_type(type, path_);
    make_group(path.substr(0, path.find_last_of('/') + 1));
    create_contiguous(id_, path_, path, record.get(), dimensions);
}

void File::write(const std::string& path, const void* data) {
    const std::string doing = "writing /" + path;
    const Handle dataset = open_dataset(id_, path_, writing_, path);
    const Handle type(H5Dget_type(dataset.get()), H5Tclose, path_, true, doing);
    if (info(path).bytes > 0)
        check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data), path_, true, doing);
}

void File::read(const std::string& path, void* data) const {
    read_into(id_, path_, writing_, path, own_type, data);
}

void File::read_as(const std::string& path, ElementType type, void* data) const {
    read_into(id_, path_, writing_, path, native(type), data);
}

void File::read_records(const std::string& path, const RecordType& type, void* data) const {
    const Handle record = record_type(type, path_);
    read_into(id_, path_, writing_, path, record.get(), data);
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
    const std::string doing = "reading the shape of /" + path;
    const Handle dataset = open_dataset(id_, path_, writing_, path);
    const Handle space(H5Dget_space(dataset.get()), H5Sclose, path_, writing_, doing);
    const Handle type(H5Dget_type(dataset.get()), H5Tclose, path_, writing_, doing);
    const Handle creation(H5Dget_create_plist(dataset.get()), H5Pclose, path_, writing_, doing);
    DatasetInfo about;
    std::array<hsize_t, H5S_MAX_RANK> sizes{};
    const int axes = H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
    check(axes, path_, writing_, doing);
    about.dimensions.assign(sizes.begin(), sizes.begin() + axes);
    about.element_bytes = H5Tget_size(type.get());
    // Sizes that only a damaged file has are not to wrap around, nor to do so where another axis is empty.
    constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    about.bytes = about.element_bytes;
    for (const auto size : about.dimensions) {
        if (size > 0 && about.bytes > most / size)
            throw damaged_error("{} is damaged: /{} cannot have {} elements", path_, path,
                                fmt::join(about.dimensions, " x "));
        about.bytes *= std::max<std::uint64_t>(size, 1);
    }
    if (std::find(about.dimensions.begin(), about.dimensions.end(), 0) != about.dimensions.end()) about.bytes = 0;
    about.stored = H5Dget_storage_size(dataset.get());
    about.contiguous = H5Pget_layout(creation.get()) == H5D_CONTIGUOUS;
    const haddr_t offset = H5Dget_offset(dataset.get());
    about.offset = offset == HADDR_UNDEF ? 0 : offset;
    about.type_name = type_name(type.get());
    return about;
}

namespace {
void read_row_range(const std::string& file_path, bool writing, const std::string& path, hid_t dataset, hid_t type,
                    std::uint64_t first, std::uint64_t count, void* data) {
    const std::string doing = "reading /" + path;
    const Handle space(H5Dget_space(dataset), H5Sclose, file_path, writing, doing);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    std::vector<hsize_t> sizes(static_cast<std::size_t>(std::max(rank, 0)));
    if (rank < 1 || H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr) < 0 || first > sizes[0] ||
        count > sizes[0] - first)
        throw damaged_error("{}: /{} has no rows {} to {}", file_path, path, first, first + count);
    if (count == 0) return;
    std::vector<hsize_t> start(sizes.size(), 0);
    start[0] = first;
    sizes[0] = count;
    const Handle memory(H5Screate_simple(rank, sizes.data(), nullptr), H5Sclose, file_path, writing, doing);
    if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, sizes.data(), nullptr) < 0 ||
        H5Dread(dataset, type, memory.get(), space.get(), H5P_DEFAULT, data) < 0)
        fail(file_path, writing, doing);
}
}  // namespace

void File::read_rows(const std::string& path, ElementType type, std::uint64_t first, std::uint64_t count,
                     void* data) const {
    const Handle dataset = open_dataset(id_, path_, writing_, path);
    read_row_range(path_, writing_, path, dataset.get(), native(type), first, count, data);
}

void File::read_rows(const std::string& path, const RecordType& type, std::uint64_t first, std::uint64_t count,
                     void* data) const {
    const Handle dataset = open_dataset(id_, path_, writing_, path);
    const Handle record = record_type(type, path_);
    read_row_range(path_, writing_, path, dataset.get(), record.get(), first, count, data);
}

}  // namespace lockstep::hdf5
