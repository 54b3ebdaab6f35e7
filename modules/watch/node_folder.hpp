// A folder in the memory of this node, with the flight recorders of this launch's ranks here and one pipe a rank that
// stays open as long as the rank lives.
#pragma once

#include <string>
#include <vector>

#include "cluster/host_group.hpp"
#include "cluster/session.hpp"

namespace lockstep::watch {

// What the folder of a node holds of one rank.
struct NodeMember {
    int rank = 0;
    std::string recorder, life;  // paths
};
// Ascending by rank.
std::vector<NodeMember> node_members(const std::string& folder);

class NodeFolder {
  public:
    // Collective. Puts this rank's recorder and pipe there. Where this node has no place for them, path() is empty and
    // the recorder stays this process's own.
    NodeFolder(cluster::HostGroup& world, const cluster::RankPlace& place);
    // Removes what is this rank's. What killed ranks leave is removed by the witness, or by a later launch.
    ~NodeFolder();
    NodeFolder(const NodeFolder&) = delete;
    NodeFolder& operator=(const NodeFolder&) = delete;

    const std::string& path() const { return path_; }
    const std::string& key() const { return key_; }  // of this launch, on all its nodes

  private:
    bool enter(const std::string& of_user, const std::string& folder, int rank);
    std::string key_, path_, recorder_, life_;
    int pipe_ = -1;
};

}  // namespace lockstep::watch
