// RAII over the HDF5 C API; nothing else calls H5*. Serial: one rank, one thread at a time. Files use the 1.10 format,
// whose metadata is checksummed. Failed calls throw Error, `damaged` while reading and `fault` while writing, with
// HDF5's message.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/open_file.hpp"

namespace lockstep::hdf5 {

class Storage;

enum class ElementType { uint8, uint16, int32, uint32, int64, uint64, fp32, fp64 };
std::size_t element_bytes(ElementType type);

// A record of named fields: an HDF5 compound, in h5py a structured array.
struct RecordType {
    struct Field {
        std::string name;
        ElementType type;
        std::size_t offset = 0;
        std::size_t text_bytes = 0;  // > 0: a fixed-size, zero-padded string; `type` is ignored
    };
    std::vector<Field> fields;
    std::size_t bytes = 0;  // per record, in memory and in the file
};

using Dimensions = std::vector<std::uint64_t>;

struct DatasetInfo {
    Dimensions dimensions;
    std::size_t element_bytes = 0;
    std::uint64_t bytes = 0;   // of the whole dataset
    std::uint64_t stored = 0;  // bytes that the file has of it: fewer if compressed, or if parts were never written
    std::uint64_t offset = 0;  // of the first byte in the file; contiguous, allocated datasets only
    bool contiguous = false;
    std::string type_name;  // "uint16", "fp32", …, "record", "other"
};

bool has_signature(const std::string& path);  // whether the file begins as HDF5 files do

class File {
  public:
    static File open(const std::string& path);  // read-only; missing: usage error; not HDF5: damaged
    // Replaces an existing file. Until close() the file on disk is empty and not an HDF5 file.
    static File create(const std::string& path);
    // Never on a disk: written() has its bytes. `name` is for messages.
    static File create_in_memory(const std::string& name);
    File(File&& other) noexcept;
    File& operator=(File&&) = delete;
    ~File();
    const std::string& path() const { return path_; }

    bool exists(const std::string& object) const;
    // Full paths (without leading '/') of all datasets below `group`, by name.
    std::vector<std::string> datasets(const std::string& group) const;
    void make_group(const std::string& group);  // with parents

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
    // "text", "integer", "number" (floating point) or "other" (including arrays).
    std::string attribute_kind(const std::string& object, const std::string& name) const;
    // Any attribute as text, for display.
    std::string read_as_text(const std::string& object, const std::string& name) const;

    // Contiguous, allocated at once, never filled; creates parents. Write the data with write(), or by other means at
    // info().offset, before or after close().
    void create_dataset(const std::string& path, ElementType type, const Dimensions& dimensions);
    void create_dataset(const std::string& path, const RecordType& type, const Dimensions& dimensions);
    void write(const std::string& path, const void* data);  // the whole dataset, in its element type
    void read(const std::string& path, void* data) const;   // the whole dataset, in its element type
    void read_as(const std::string& path, ElementType type, void* data) const;  // converted
    // Records; file fields are matched to `type` by name.
    void read_records(const std::string& path, const RecordType& type, void* data) const;
    void write_text(const std::string& path, const std::string& bytes);  // a uint8 dataset
    std::string read_text(const std::string& path) const;
    DatasetInfo info(const std::string& path) const;
    void close();  // writes a created file; throws on failure
    // Of a file in memory, once it is closed: the bytes that were written, at their offsets, and how long the file is.
    struct Written {
        std::uint64_t bytes = 0;
        std::vector<std::pair<std::uint64_t, std::string>> pieces;
    };
    Written written() const;
    // `count` existing rows from `first` of the first dimension, converted to `type`.
    void read_rows(const std::string& path, ElementType type, std::uint64_t first, std::uint64_t count,
                   void* data) const;
    void read_rows(const std::string& path, const RecordType& type, std::uint64_t first, std::uint64_t count,
                   void* data) const;

  private:
    File(std::int64_t id, std::string path, std::unique_ptr<Storage> storage, OpenFile created, bool writing);
    static File create(const std::string& path, OpenFile created);
    bool let_go();
    std::int64_t id_;
    std::string path_;
    std::unique_ptr<Storage> storage_;
    OpenFile created_;  // of a file being written, whose storage is a MemoryImage; closed where it stays in memory
    bool writing_;
};

}  // namespace lockstep::hdf5
