// Local checkpoints: each rank writes its share of the blocks to its node's own disk, as a part of the file that all
// would write together, and a rank on another node keeps a copy of it (format: checkpoints/README.md). Losing a node
// loses none; the parts that are left are put together on any nodes and any number of ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/courses.hpp"
#include "checkpoint/part_files.hpp"
#include "cluster/host_group.hpp"

namespace lockstep::checkpoint {

struct LocalPlace {
    std::string folder;      // on this rank's node
    std::vector<int> nodes;  // of every rank, number_nodes()
    bool partner = true;     // whether copies are kept
};

class LocalWriter {
  public:
    // Collective; the writer needs a group of its own. Writes parts of the last course. Removes what earlier launches
    // left unfinished and the parts that do not count. `complete`: steps of local checkpoints of which all parts are
    // there.
    LocalWriter(LocalPlace place, std::vector<Course> courses, std::vector<std::int64_t> complete,
                std::unique_ptr<cluster::HostGroup> group);
    ~LocalWriter();  // waits for the writer threads; abandons what is not committed

    // Collective. As Writer::begin; moreover sends this rank's blocks to its partner. False where a rank could not: the
    // next call tries again, and only the first of several failures is a warning.
    bool begin(const Contents& contents, const std::vector<Entry>& entries);
    Writer::Progress progress() const;  // of this rank; local and cheap
    // Collective, once no rank is `writing`: every part and copy gets its name, and all but the newest two complete
    // local checkpoints are removed; or, if any rank failed, this one is. Returns whether it was committed.
    bool commit();
    const Writer::Cost& cost() const;  // of the last one committed; bytes: of all parts and copies
    // Collective. If the last one could not be written, removes those before `step`, which has a shared one: they may
    // be what fills the disk.
    void make_room(std::int64_t step);
    // Collective: removes all parts of this run on the launch's nodes.
    void remove_all();

  private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

// A local checkpoint that can be loaded.
struct LocalCheckpoint {
    State state;
    std::string run_description;
    std::string path;  // of its parts without ".part-…", for messages
    PartSet set;
    std::vector<std::size_t> chosen;  // per part: which of its sources is whole
    int own() const, copies() const;  // how many of these are of the ranks that wrote them, and partners' copies
};

// Collective: what the launch's nodes have, complete and counting, newest first. Unreadable files are skipped.
std::vector<PartSet> find_local(const LocalPlace& place, const std::vector<Course>& courses, cluster::HostGroup& group);
// Collective: reads all blocks of the set's parts, each on its node, divided among the ranks there; if a
// source of a part is damaged, the next one. Warns of what is skipped. Nothing if a part has no whole source.
std::optional<LocalCheckpoint> open_local(const LocalPlace& place, const PartSet& set, cluster::HostGroup& group);
// Collective. As load() of a file.
void load_local(const LocalPlace& place, const LocalCheckpoint& checkpoint, const std::vector<Entry>& entries,
                cluster::HostGroup& group);

}  // namespace lockstep::checkpoint
