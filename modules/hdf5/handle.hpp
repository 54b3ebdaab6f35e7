// What the calls of the HDF5 C API return: handles, and errors in HDF5's own words. Only hdf5/ includes this.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

namespace lockstep::hdf5 {

// HDF5 prints no errors of its own from here on.
void silence_hdf5();

// Throws what failed and why: a fault while writing, `damaged` while reading.
[[noreturn]] void fail(const std::string& path, bool writing, const std::string& doing);
inline void check(herr_t result, const std::string& path, bool writing, const std::string& doing) {
    if (result < 0) fail(path, writing, doing);
}

// Owns a valid handle of the C API.
class Handle {
  public:
    using Close = herr_t (*)(hid_t);
    Handle(hid_t id, Close close, const std::string& path, bool writing, const std::string& doing)
        : id_(id), close_(close) {
        if (id < 0) fail(path, writing, doing);
    }
    Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    Handle& operator=(Handle&&) = delete;
    ~Handle() {
        if (id_ >= 0) close_(id_);
    }
    hid_t get() const { return id_; }

  private:
    hid_t id_;
    Close close_;
};

}  // namespace lockstep::hdf5
