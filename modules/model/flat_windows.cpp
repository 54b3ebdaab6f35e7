#include "model/flat_windows.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace lockstep::model {

FlatWindows::FlatWindows(Device device, Type type, std::vector<Window> windows, const std::string& name)
    : windows_(std::move(windows)) {
    std::sort(windows_.begin(), windows_.end(), [](const Window& a, const Window& b) {
        return std::pair(a.range.first, a.range.count) < std::pair(b.range.first, b.range.count);
    });
    std::map<std::size_t, std::int64_t> counts;  // of each buffer
    for (const Window& window : windows_) {
        std::int64_t& count = counts[window.buffer];
        count = std::max(count, window.range.count);
    }
    std::map<std::size_t, Tensor> buffers;
    memory_ = planned(device, name, [&](Arena& arena) {
        for (const auto& [number, count] : counts)
            if (count > 0) buffers[number] = arena.allocate(type, {count});
    });
    for (const Window& window : windows_)
        tensors_.push_back(window.range.count > 0 ? buffers[window.buffer].slice(0, window.range.count) : Tensor());
}

Tensor FlatWindows::slice(std::int64_t first, std::int64_t count) const {
    auto window = std::upper_bound(windows_.begin(), windows_.end(), first,
                                   [](std::int64_t position, const Window& at) { return position < at.range.first; });
    while (window != windows_.begin()) {
        --window;
        if (window->range.count == 0) continue;
        const std::int64_t begin = first - window->range.first;
        LOCKSTEP_ASSERT(begin + count <= window->range.count);
        return tensors_[static_cast<std::size_t>(window - windows_.begin())].slice(begin, count);
    }
    throw fault_error("no window has element {} of a flat tensor", first);
}

}  // namespace lockstep::model
