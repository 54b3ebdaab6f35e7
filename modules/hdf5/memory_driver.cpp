#include "hdf5/memory_driver.hpp"

#include <hdf5.h>
#if __has_include(<H5FDdevelop.h>)  // from HDF5 1.14 on
#include <H5FDdevelop.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

namespace lockstep::hdf5 {

void MemoryImage::write(std::uint64_t offset, const void* data, std::uint64_t bytes) {
    const char* from = static_cast<const char*>(data);
    for (std::uint64_t count; bytes > 0; from += count, offset += count, bytes -= count) {
        const std::uint64_t first = offset % page_bytes;
        count = std::min(bytes, page_bytes - first);
        Page& page = pages_[offset / page_bytes];
        std::memcpy(page.bytes.data() + first, from, count);
        for (std::uint64_t i = first; i < first + count; ++i) page.written.set(i);
        bytes_ = std::max(bytes_, offset + count);
    }
}

void MemoryImage::read(std::uint64_t offset, void* data, std::uint64_t bytes) const {
    char* to = static_cast<char*>(data);
    for (std::uint64_t count; bytes > 0; to += count, offset += count, bytes -= count) {
        const std::uint64_t first = offset % page_bytes;
        count = std::min(bytes, page_bytes - first);
        const auto page = pages_.find(offset / page_bytes);
        if (page == pages_.end())
            std::memset(to, 0, count);
        else
            std::memcpy(to, page->second.bytes.data() + first, count);
    }
}

void MemoryImage::store(const OpenFile& file) const {
    constexpr std::size_t joined_bytes = std::size_t{1} << 20;
    std::vector<char> joined;  // what lies together, in one call
    std::uint64_t begin = 0;
    const auto flush = [&] {
        if (!joined.empty()) file.write(joined.data(), joined.size(), begin);
        joined.clear();
    };
    for (const auto& [number, page] : pages_) {
        for (std::uint64_t first = 0; first < page_bytes;) {
            std::uint64_t last = first;
            while (last < page_bytes && page.written[last]) ++last;
            const std::uint64_t offset = number * page_bytes + first;
            if (last > first && (offset != begin + joined.size() || joined.size() >= joined_bytes)) {
                flush();
                begin = offset;
            }
            joined.insert(joined.end(), page.bytes.data() + first, page.bytes.data() + last);
            first = last + 1;
        }
    }
    flush();
    file.resize(bytes_);
}

namespace {

struct MemoryFile {
    H5FD_t base;  // first, as HDF5 sees it
    MemoryImage* image;
    haddr_t end_of_addresses;
};

MemoryFile& from(H5FD_t* file) {
    return *reinterpret_cast<MemoryFile*>(file);
}
const MemoryFile& from(const H5FD_t* file) {
    return *reinterpret_cast<const MemoryFile*>(file);
}

// HDF5 is C: no exception may pass through it.
template <class Call>
herr_t guarded(const Call& call) {
    try {
        call();
        return 0;
    } catch (const std::bad_alloc&) {
        return -1;
    }
}

H5FD_t* open_image(const char*, unsigned, hid_t access, haddr_t) {
    const void* information = H5Pget_driver_info(access);
    if (!information) return nullptr;
    auto* file = new (std::nothrow) MemoryFile{};
    if (!file) return nullptr;
    file->image = *static_cast<MemoryImage* const*>(information);
    return &file->base;
}

herr_t close_image(H5FD_t* file) {
    delete &from(file);
    return 0;
}

int compare_images(const H5FD_t* one, const H5FD_t* other) {
    const std::less<const MemoryImage*> before;
    return before(from(one).image, from(other).image) ? -1 : before(from(other).image, from(one).image) ? 1 : 0;
}

// No data sieve and no metadata accumulator: they would write bytes that lie between those that were asked for.
herr_t features(const H5FD_t*, unsigned long* flags) {
    if (flags) *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
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
    return from(file).image->bytes();
}

herr_t read_image(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t bytes, void* data) {
    return guarded([&] { from(file).image->read(offset, data, bytes); });
}
herr_t write_image(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t bytes, const void* data) {
    return guarded([&] { from(file).image->write(offset, data, bytes); });
}
herr_t cut_image(H5FD_t* file, hid_t, hbool_t) {
    from(file).image->resize(from(file).end_of_addresses);
    return 0;
}

hid_t register_driver() {
    H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
    driver.version = H5FD_CLASS_VERSION;
    driver.value = static_cast<H5FD_class_value_t>(511);  // of the private ones
#endif
    driver.name = "lockstep_memory";
    driver.maxaddr = ~haddr_t{0} >> 1;
    driver.fc_degree = H5F_CLOSE_WEAK;
    driver.fapl_size = sizeof(MemoryImage*);
    driver.open = open_image;
    driver.close = close_image;
    driver.cmp = compare_images;
    driver.query = features;
    driver.get_eoa = end_of_addresses;
    driver.set_eoa = set_end_of_addresses;
    driver.get_eof = end_of_file;
    driver.read = read_image;
    driver.write = write_image;
    driver.truncate = cut_image;
    const H5FD_mem_t map[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(map), std::end(map), driver.fl_map);
    return H5FDregister(&driver);
}

}  // namespace

bool write_to_memory(std::int64_t access, MemoryImage& image) {
    static const hid_t driver = register_driver();
    const MemoryImage* information = &image;
    return driver >= 0 && H5Pset_driver(access, driver, &information) >= 0;
}

}  // namespace lockstep::hdf5
