// A node's hardware as hwloc describes it: of this machine, or from a file that lstopo wrote on another one. Processing
// units that this process may not use are in it too, so that all ranks of a node see the same numbers.
#pragma once

#include <memory>
#include <string>

#include "cluster/cpu_set.hpp"

struct hwloc_topology;
struct hwloc_bitmap_s;

namespace lockstep::cluster {

class Topology {
  public:
    static Topology live();
    // Written by lstopo or to_xml(). A file that is no such XML is a usage error, one that cannot be taken is damaged.
    static Topology from_xml(const std::string& path);
    // Of this machine as another process of it found it: quicker than each looking for itself.
    static Topology shared(const std::string& xml);

    std::string to_xml() const;
    bool is_this_machine() const;
    CpuSet allowed() const;  // what cgroups and the like leave of all units, not yet what a launcher bound
    // What the calling process may run on: the launcher's binding within allowed(). Only of this machine.
    CpuSet process_binding() const;
    hwloc_topology* get() const { return topology_.get(); }

  private:
    explicit Topology(hwloc_topology* topology);
    struct Destroy {
        void operator()(hwloc_topology* topology) const;
    };
    std::unique_ptr<hwloc_topology, Destroy> topology_;
};

CpuSet cpu_set_of(const hwloc_bitmap_s* bitmap);
struct FreeBitmap {
    void operator()(hwloc_bitmap_s* bitmap) const;
};
std::unique_ptr<hwloc_bitmap_s, FreeBitmap> bitmap_of(const CpuSet& set);

}  // namespace lockstep::cluster
