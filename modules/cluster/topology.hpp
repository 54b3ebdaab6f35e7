// A node's hardware as hwloc sees it: this machine's, or from a file written by lstopo on another. Includes units that
// this process may not use, so that all ranks of a node see the same numbers.
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
    // Written by lstopo or to_xml(). Not such XML: usage error; unreadable by hwloc: damaged error.
    static Topology from_xml(const std::string& path);
    // This machine's, as found by another process of it: quicker than discovering it again.
    static Topology shared(const std::string& xml);

    std::string to_xml() const;
    bool is_this_machine() const;
    CpuSet allowed() const;  // by cgroups and the like, before the launcher's binding
    // The units this process may run on: the launcher's binding within allowed(). Only for this machine.
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
