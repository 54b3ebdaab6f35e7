// RAII over the HDF5 C API; nothing else calls H5*. Serial use only: one rank, one thread at a time.
// Files are written in the 1.10 format, whose metadata carries its own checksums. A failed call throws Error: `damaged`
// while reading, `fault` while writing, with HDF5's own words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::hdf5 {

enum class ElementType { uint8, uint16, int32, uint32, int64, uint64, fp32, fp64 };
std::size_t element_bytes(ElementType type);

// A record of named fields, as one HDF5 compound: what h5py shows as a structured array.
struct RecordType {
    struct Field {
        std::string name;
        ElementType type;
        std::size_t offset = 0;
        std::size_t text_bytes = 0;  // > 0: a fixed-size, zero-padded string; `type` is not looked at
    };
    std::vector<Field> fields;
    std::size_t bytes = 0;  // of one record in memory and in the file
};

using Dimensions = std::vector<std::uint64_t>;

struct DatasetInfo {
    Dimensions dimensions;
    std::size_t element_bytes = 0;
    std::uint64_t bytes = 0;   // of the whole dataset
    std::uint64_t offset = 0;  // of its first byte in the file; only of contiguous, allocated datasets
    bool contiguous = false;
    std::string type_name;  // "uint16", "fp32", …, "record", "other"
};

class File {
  public:
    static File open(const std::string& path);  // read only; no such file: usage error; no HDF5 file: damaged
    // Replaces what is there. The file on the disk is empty until close(), and no HDF5 file without it.
    static File create(const std::string& path);
    File(File&& other) noexcept;
    File& operator=(File&&) = delete;
    ~File();
    const std::string& path() const { return path_; }

    bool exists(const std::string& object) const;
    std::vector<std::string> children(const std::string& group) const;  // in name order
    // Full paths (no leading '/') of every dataset below `group`, in name order.
    std::vector<std::string> datasets(const std::string& group) const;
    void make_group(const std::string& group);  // with its parents

    // Attributes of a group or dataset ("/" for the root).
    void write_attribute(const std::string& object, const std::string& name, const std::string& value);
    void write_attribute(const std::string& object, const std::string& name, std::int64_t value);
    void write_attribute(const std::string& object, const std::string& name, std::uint64_t value);
    void write_attribute(const std::string& object, const std::string& name, double value);
    bool has_attribute(const std::string& object, const std::string& name) const;
    std::vector<std::string> attributes(const std::string& object) const;
    std::string read_string(const std::string& object, const std::string& name) const;
    std::int64_t read_integer(const std::string& object, const std::string& name) const;
    std::uint64_t read_unsigned(const std::string& object, const std::string& name) const;
    double read_number(const std::string& object, const std::string& name) const;
    // "text", "integer", "number" (floating point) or "other" (also: several values).
    std::string attribute_kind(const std::string& object, const std::string& name) const;
    // Any attribute as text, for people.
    std::string read_as_text(const std::string& object, const std::string& name) const;

    // Contiguous, allocated at once, never filled; parents are made. The bytes are then written by write(), or by
    // others at info().offset, before close() or after it.
    void create_dataset(const std::string& path, ElementType type, const Dimensions& dimensions);
    void create_dataset(const std::string& path, const RecordType& type, const Dimensions& dimensions);
    void write(const std::string& path, const void* data);  // the whole dataset, in its own element type
    void read(const std::string& path, void* data) const;   // the whole dataset, in its own element type
    void read_as(const std::string& path, ElementType type, void* data) const;  // converted
    // Records whose file fields are matched to `type` by name.
    void read_records(const std::string& path, const RecordType& type, void* data) const;
    void write_text(const std::string& path, const std::string& bytes);  // a uint8 dataset
    std::string read_text(const std::string& path) const;
    DatasetInfo info(const std::string& path) const;
    void close();  // of a created file: writes it; throws where that fails
    // `count` rows from `first` of the dataset's first dimension, converted to `type`; the rows must exist.
    void read_rows(const std::string& path, ElementType type, std::uint64_t first, std::uint64_t count,
                   void* data) const;
    void read_rows(const std::string& path, const RecordType& type, std::uint64_t first, std::uint64_t count,
                   void* data) const;

  private:
    struct Created;  // what a file is written through
    File(std::int64_t id, std::string path, std::unique_ptr<Created> created);
    std::int64_t id_;
    std::string path_;
    std::unique_ptr<Created> created_;
    bool writing_;
};

}  // namespace lockstep::hdf5
