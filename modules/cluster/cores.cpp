#include "cluster/cores.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.hpp"

namespace lockstep::cluster {

AllowedCores allowed_cores() {
    hwloc_topology_t loaded = nullptr;
    if (hwloc_topology_init(&loaded) != 0) throw fault_error("hwloc could not start: {}", system_error_text());
    const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(loaded, hwloc_topology_destroy);
    if (hwloc_topology_load(loaded) != 0)
        throw fault_error("hwloc could not read this machine: {}", system_error_text());

    const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> bound(hwloc_bitmap_alloc(), hwloc_bitmap_free);
    const hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(loaded);
    if (hwloc_get_cpubind(loaded, bound.get(), HWLOC_CPUBIND_PROCESS) != 0 || hwloc_bitmap_iszero(bound.get()))
        hwloc_bitmap_copy(bound.get(), allowed);
    hwloc_bitmap_and(bound.get(), bound.get(), allowed);

    AllowedCores result;
    for (int unit = hwloc_bitmap_first(bound.get()); unit >= 0; unit = hwloc_bitmap_next(bound.get(), unit))
        result.units.push_back(unit);
    char* text = nullptr;
    if (hwloc_bitmap_list_asprintf(&text, bound.get()) >= 0 && text) result.text = text;
    std::free(text);
    const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(loaded, bound.get(), HWLOC_OBJ_CORE);
    // A core only partly allowed is not "inside" the set; each allowed unit then counts.
    result.cores = std::max(1, cores > 0 ? cores : static_cast<int>(result.units.size()));
    return result;
}

}  // namespace lockstep::cluster
