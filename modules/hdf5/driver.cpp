#include "hdf5/driver.hpp"

#include <hdf5.h>
#if __has_include(<H5FDdevelop.h>)  // from HDF5 1.14 on
#include <H5FDdevelop.h>
#endif

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <new>

#include "base/error.hpp"

namespace lockstep::hdf5 {

void DiskFile::read(std::uint64_t offset, void* data, std::uint64_t bytes) const {
    const std::uint64_t got = file_.read_up_to(data, bytes, offset);
    std::memset(static_cast<char*>(data) + got, 0, bytes - got);
}

void DiskFile::write(std::uint64_t, const void*, std::uint64_t) {
    throw fault_error("{} was opened read-only", file_.path());
}

void DiskFile::resize(std::uint64_t) {
    throw fault_error("{} was opened read-only", file_.path());
}

namespace {

struct DriverFile {
    H5FD_t base;  // first, as HDF5 sees it
    Storage* storage;
    haddr_t end_of_addresses;
};

DriverFile& from(H5FD_t* file) {
    return *reinterpret_cast<DriverFile*>(file);
}
const DriverFile& from(const H5FD_t* file) {
    return *reinterpret_cast<const DriverFile*>(file);
}

// HDF5 is C: no exception may pass through it. What it says goes onto HDF5's stack of errors.
template <class Call>
herr_t guarded(const Call& call) {
    try {
        call();
        return 0;
    } catch (const std::exception& error) {
        H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_VFL, H5E_READERROR, "%s", error.what());
        return -1;
    }
}

H5FD_t* open_storage(const char*, unsigned, hid_t access, haddr_t) {
    const void* information = H5Pget_driver_info(access);
    if (!information) return nullptr;
    auto* file = new (std::nothrow) DriverFile{};
    if (!file) return nullptr;
    file->storage = *static_cast<Storage* const*>(information);
    return &file->base;
}

herr_t close_storage(H5FD_t* file) {
    delete &from(file);
    return 0;
}

int compare_storages(const H5FD_t* one, const H5FD_t* other) {
    const std::less<const Storage*> before;
    return before(from(one).storage, from(other).storage) ? -1 : before(from(other).storage, from(one).storage) ? 1 : 0;
}

// No data sieve and no metadata accumulator while writing: they would write bytes that lie between those that were
// asked for.
herr_t features(const H5FD_t* file, unsigned long* flags) {
    constexpr unsigned long always =
        H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    constexpr unsigned long reading = H5FD_FEAT_ACCUMULATE_METADATA_READ | H5FD_FEAT_DATA_SIEVE;
    if (flags) *flags = file && !from(file).storage->writable() ? always | reading : always;
    return 0;
}

haddr_t end_of_addresses(const H5FD_t* file, H5FD_mem_t) {
    return from(file).end_of_addresses;
}
herr_t set_end_of_addresses(H5FD_t* file, H5FD_mem_t, haddr_t end) {
    from(file).end_of_addresses = end;
    return 0;
}
haddr_t end_of_file(const H5FD_t* file, H5FD_mem_t) {
    return from(file).storage->bytes();
}

herr_t read_storage(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t bytes, void* data) {
    return guarded([&] { from(file).storage->read(offset, data, bytes); });
}
herr_t write_storage(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t bytes, const void* data) {
    return guarded([&] { from(file).storage->write(offset, data, bytes); });
}
herr_t cut_storage(H5FD_t* file, hid_t, hbool_t) {
    return guarded([&] { from(file).storage->resize(from(file).end_of_addresses); });
}

hid_t register_driver() {
    H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
    driver.version = H5FD_CLASS_VERSION;
    driver.value = static_cast<H5FD_class_value_t>(511);  // of the private ones
#endif
    driver.name = "lockstep";
    driver.maxaddr = ~haddr_t{0} >> 1;
    driver.fc_degree = H5F_CLOSE_SEMI;  // H5Fclose fails where an object is still open, and would use the storage
    driver.fapl_size = sizeof(Storage*);
    driver.open = open_storage;
    driver.close = close_storage;
    driver.cmp = compare_storages;
    driver.query = features;
    driver.get_eoa = end_of_addresses;
    driver.set_eoa = set_end_of_addresses;
    driver.get_eof = end_of_file;
    driver.read = read_storage;
    driver.write = write_storage;
    driver.truncate = cut_storage;
    const H5FD_mem_t map[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(map), std::end(map), driver.fl_map);
    return H5FDregister(&driver);
}

}  // namespace

bool use_storage(std::int64_t access, Storage& storage) {
    static const hid_t driver = register_driver();
    const Storage* information = &storage;
    return driver >= 0 && H5Pset_driver(access, driver, &information) >= 0;
}

}  // namespace lockstep::hdf5
