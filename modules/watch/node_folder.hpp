// A folder in this node's memory with the flight recorders of the launch's local ranks, and one pipe per rank that
// stays open while the rank lives.
#pragma once

#include <string>
#include <vector>

#include "cluster/host_group.hpp"
#include "cluster/session.hpp"

namespace lockstep::watch {

// One rank's files in the node folder.
struct NodeMember {
    int rank = 0;
    std::string recorder, life;  // paths
};
// by rank
std::vector<NodeMember> node_members(const std::string& folder);

class NodeFolder {
  public:
    // Collective. Puts this rank's recorder and pipe there. If the node has no suitable place, path() is empty and the
    // recorder stays private.
    NodeFolder(cluster::HostGroup& world, const cluster::RankPlace& place);
    // Removes this rank's files. Those of killed ranks are removed by the witness, or by a later launch.
    ~NodeFolder();
    NodeFolder(const NodeFolder&) = delete;
    NodeFolder& operator=(const NodeFolder&) = delete;

    const std::string& path() const { return path_; }
    const std::string& key() const { return key_; }  // of this launch, the same on all nodes

  private:
    bool enter(const std::string& of_user, const std::string& folder, int rank);
    std::string key_, path_, recorder_, life_;
    int pipe_ = -1;
};

}  // namespace lockstep::watch
