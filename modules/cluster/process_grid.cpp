#include "cluster/process_grid.hpp"

#include <algorithm>

namespace lockstep::cluster {

GridPlace grid_place(int rank, const config::Grid& grid) {
    LOCKSTEP_ASSERT(rank >= 0 && rank < grid.ranks());
    GridPlace place;
    std::int64_t left = rank;
    place.tensor = left % grid.tensor;
    left /= grid.tensor;
    place.context = left % grid.context;
    left /= grid.context;
    place.data = left % grid.data;
    place.pipeline = left / grid.data;
    return place;
}

int grid_rank(const GridPlace& place, const config::Grid& grid) {
    return static_cast<int>(place.tensor +
                            grid.tensor * (place.context + grid.context * (place.data + grid.data * place.pipeline)));
}

std::vector<int> ranks_along(int rank, const config::Grid& grid, std::initializer_list<Axis> axes) {
    const auto varies = [&](Axis axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
    const GridPlace own = grid_place(rank, grid);
    std::vector<int> ranks;
    for (int other = 0; other < grid.ranks(); ++other) {
        const GridPlace place = grid_place(other, grid);
        if ((varies(Axis::tensor) || place.tensor == own.tensor) &&
            (varies(Axis::context) || place.context == own.context) && (varies(Axis::data) || place.data == own.data) &&
            (varies(Axis::pipeline) || place.pipeline == own.pipeline))
            ranks.push_back(other);
    }
    return ranks;
}

// All ranks create the groups in the same order, axis by axis, so that groups of one axis wait only for one another.
ProcessGroups make_groups(CommunicatorSource& source, int rank, const config::Grid& grid) {
    ProcessGroups groups;
    groups.place = grid_place(rank, grid);
    groups.tensor = source.make(ranks_along(rank, grid, {Axis::tensor}), Use::collectives, "tensor");
    groups.replicas = source.make(ranks_along(rank, grid, {Axis::data, Axis::context}), Use::collectives, "replicas");
    groups.model = source.make(ranks_along(rank, grid, {Axis::tensor, Axis::pipeline}), Use::collectives, "model");
    groups.context = source.make(ranks_along(rank, grid, {Axis::context}), Use::transfers, "context");
    const std::vector<int> column = ranks_along(rank, grid, {Axis::pipeline});
    groups.activations = source.make(column, Use::transfers, "activations");
    groups.gradients = source.make(column, Use::transfers, "gradients");
    if (rank == column.front() || rank == column.back())
        groups.ends = source.make(column.size() > 1 ? std::vector<int>{column.front(), column.back()} : column,
                                  Use::collectives, "ends");
    return groups;
}

void use_once(const ProcessGroups& groups, Tensor scratch, Tensor other) {
    for (const auto* group : {&groups.tensor, &groups.replicas, &groups.model, &groups.ends})
        if (*group && (*group)->size() > 1) (*group)->all_reduce(scratch, Reduce::sum);
    const auto pass = [&](Communicator& group, int from_rank, int to_rank) {
        std::unique_ptr<Transfer> receive, send;
        if (group.rank() == to_rank) receive = group.begin_receive(other, from_rank, 0);
        if (group.rank() == from_rank) send = group.begin_send(scratch, to_rank, 0);
        if (receive) receive->wait();
        if (send) send->wait();
    };
    for (const auto* group : {&groups.context, &groups.activations})
        for (int rank = 1; rank < (*group)->size(); ++rank) pass(**group, rank - 1, rank);
    for (const auto* group : {&groups.context, &groups.gradients})
        for (int rank = (*group)->size() - 1; rank > 0; --rank) pass(**group, rank, rank - 1);
}

}  // namespace lockstep::cluster
