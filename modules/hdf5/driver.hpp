// Where HDF5's bytes are. HDF5 cannot let go of a file whose writing or closing failed: its objects stay open, and the
// process crashes in MPI_Finalize. So it never opens a file: it reads and writes a Storage of ours, which lets go.
#pragma once

#include <cstdint>
#include <string>

#include "base/open_file.hpp"

namespace lockstep::hdf5 {

class Storage {
  public:
    Storage() = default;
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;
    virtual ~Storage() = default;
    virtual bool writable() const = 0;
    virtual std::uint64_t bytes() const = 0;
    virtual void read(std::uint64_t offset, void* data, std::uint64_t bytes) const = 0;  // zeros behind the end
    virtual void write(std::uint64_t offset, const void* data, std::uint64_t bytes) = 0;
    virtual void resize(std::uint64_t bytes) = 0;
};

// A file to be read.
class DiskFile final : public Storage {
  public:
    explicit DiskFile(const std::string& path) : file_(OpenFile::for_reading(path)) {}
    bool writable() const override { return false; }
    std::uint64_t bytes() const override { return file_.bytes(); }
    void read(std::uint64_t offset, void* data, std::uint64_t bytes) const override;
    void write(std::uint64_t offset, const void* data, std::uint64_t bytes) override;  // a fault
    void resize(std::uint64_t bytes) override;                                         // a fault

  private:
    OpenFile file_;
};

// Makes the file that is opened or created with the property list `access` (an hid_t) lie in `storage`, which outlives
// it. False: HDF5 refused.
bool use_storage(std::int64_t access, Storage& storage);

}  // namespace lockstep::hdf5
