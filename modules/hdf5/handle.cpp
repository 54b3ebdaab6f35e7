#include "hdf5/handle.hpp"

#include "base/error.hpp"

namespace lockstep::hdf5 {
namespace {

// Keeps the innermost message: the walk goes from the failed call down to its cause.
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

}  // namespace

void silence_hdf5() {
    static const bool once = (H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr), true);
    static_cast<void>(once);
}

void fail(const std::string& path, bool writing, const std::string& doing) {
    const std::string reason = hdf5_says();
    if (writing) throw fault_error("{}: {} failed: {}", path, doing, reason);
    throw damaged_error("{} is damaged or of another format: {} failed: {}", path, doing, reason);
}

}  // namespace lockstep::hdf5
